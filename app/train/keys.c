/* Tables of a recipe's keys, made once from the library's catalogue and the program's own. */
#include "train/keys.h"

#include "core/mem.h"
#include "minrnn_experimental.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char *const dtypes[] = {"f32", "bf16", NULL};                                  /* mr_train_dtype */
static const char *const logs[] = {"jsonl", "csv", "tensorboard", "csv,tensorboard", NULL}; /* mr_log_formats */

#define FIELD(name) offsetof(mr_train_settings, name)

/* The program's own keys of [train]. */
static const mr_option own[] = {
    {"batch", MR_OPT_INT, FIELD(batch), "32", 1, 1 << 20, NULL,
     "sequences per step (or per micro-batch, see accumulate)", 0},
    {"context", MR_OPT_INT, FIELD(context), "256", 1, 1 << 24, NULL,
     "tokens per sequence, where the task leaves it open", 0},
    {"max-seconds", MR_OPT_REAL, FIELD(max_seconds), "0", 0, 1e9, NULL,
     "end the run after this many seconds, reading and evaluation included; 0: never", MR_OPT_MAY_CHANGE},
    {"accumulate", MR_OPT_INT, FIELD(accumulate), "1", 1, 1 << 16, NULL, "micro-batches per step", 0},
    {"eval-every", MR_OPT_INT, FIELD(eval_every), "100", 1, 1e12, NULL, "steps between evaluations", MR_OPT_MAY_CHANGE},
    {"eval-tokens", MR_OPT_INT, FIELD(eval_tokens), "200000", 0, 1e15, NULL,
     "test tokens that an evaluation scores, evenly spread over the test data; 0: all", 0},
    {"save-every", MR_OPT_INT, FIELD(save_every), "0", 0, 1e12, NULL, "steps between checkpoints; 0: every 15 seconds",
     MR_OPT_MAY_CHANGE},
    {"patience", MR_OPT_INT, FIELD(patience), "0", 0, 1e9, NULL,
     "stop after this many evaluations without an improvement; 0: never", MR_OPT_MAY_CHANGE},
    {"dtype", MR_OPT_CHOICE, FIELD(dtype), "f32", 0, 0, dtypes, "what matrix products are computed in",
     MR_OPT_MAY_CHANGE},
    {"log", MR_OPT_CHOICE, FIELD(log), "jsonl", 0, 0, logs,
     "write log.csv or TensorBoard events in addition to log.jsonl", MR_OPT_MAY_CHANGE},
    {"tf32", MR_OPT_BOOL, FIELD(tf32), "yes", 0, 0, NULL, "GPU: f32 products may round to TF32", MR_OPT_MAY_CHANGE},
    {"init", MR_OPT_TEXT, FIELD(init), "", 0, 0, NULL,
     "start from the weights of this model (a file or a run's folder), with its [model] and vocabulary", MR_OPT_PATH},
    {0}};

/* How a recipe is written; keys that are not named here come last. */
static const char *const order[] = {"batch",        "context",     "steps",      "max-seconds",     "lr",
                                    "schedule",     "warmup",      "optimizer",  "betas",           "eps",
                                    "weight-decay", "decay-set",   "clip",       "accumulate",      "gradient-sum",
                                    "eval-every",   "eval-tokens", "save-every", "patience",        "log",
                                    "dtype",        "tf32",        "recompute",  "recompute-chunk", "seed",
                                    "init",         NULL};

/* Each table ends with a row that has no key; that of own[] counts for train_rows, too. */
static mr_option model_rows[MR_MODEL_SLOTS + 1], train_rows[MR_LEARN_SLOTS + sizeof own / sizeof *own];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A key of the library as an option whose field is a slot. */
static mr_option row_of(const mr_key *key, size_t offset)
{
    return (mr_option){.key = key->name,
                       .type = (mr_option_type)key->type,
                       .offset = offset,
                       .fallback = key->fallback,
                       .min = key->min,
                       .max = key->max,
                       .choices = key->choices,
                       .help = key->help,
                       .flags = key->flags & (MR_OPT_DERIVED | MR_OPT_MAY_CHANGE | MR_OPT_SPARSE)};
}

/* The library's keys of [train], each with its slot. */
static void learn_rows(mr_option *to)
{
    int count = 0;
    for (int i = 0; mr_key_at(i) && count < MR_LEARN_SLOTS; i++) {
        const mr_key *key = mr_key_at(i);
        if (!(key->flags & MR_KEY_LEARN)) continue;
        to[count] = row_of(key, FIELD(learn) + (size_t)count * sizeof(mr_slot));
        count++;
    }
}

/* Adds rows to the table of [train], those that it has already aside. */
static void add_train_rows(const mr_option *rows)
{
    mr_option *end = train_rows;
    while (end->key) end++;
    for (const mr_option *o = rows; o->key; o++)
        if (!mr_option_find(train_rows, o->key)) *end++ = *o;
}

static void make_tables(void)
{
    mr_option learn[MR_LEARN_SLOTS + 1] = {{0}};
    int models = 0;
    for (int i = 0; mr_key_at(i) && models < MR_MODEL_SLOTS; i++)
        if (!(mr_key_at(i)->flags & MR_KEY_LEARN)) {
            model_rows[models] = row_of(mr_key_at(i), (size_t)models * sizeof(mr_slot));
            models++;
        }
    learn_rows(learn);
    for (int i = 0; order[i]; i++) {
        const mr_option *o = mr_option_find(own, order[i]);
        if (!o) o = mr_option_find(learn, order[i]);
        if (o) add_train_rows((const mr_option[]){*o, {0}});
    }
    add_train_rows(own);
    add_train_rows(learn);
}

const mr_option *mr_model_table(void)
{
    pthread_once(&once, make_tables);
    return model_rows;
}

const mr_option *mr_train_table(void)
{
    pthread_once(&once, make_tables);
    return train_rows;
}

static int64_t *whole(const mr_train_settings *train, const char *key)
{
    return (int64_t *)((char *)train + mr_option_find(mr_train_table(), key)->offset);
}

int64_t mr_train_steps(const mr_train_settings *train) { return *whole(train, "steps"); }
int64_t mr_train_seed(const mr_train_settings *train) { return *whole(train, "seed"); }
void mr_train_set_whole(mr_train_settings *train, const char *key, int64_t value) { *whole(train, key) = value; }

/* ---- lists ---- */

void mr_key_list_add(mr_key_list *l, const char *key, const char *value)
{
    char *const name = mr_strdup(key), *const text = mr_strdup(value);
    if (name && text && l->count + 2 < MR_KEY_LIST) {
        l->list[l->count++] = name;
        l->list[l->count++] = text;
        return;
    }
    mr_free(name);
    mr_free(text);
    l->failed = 1;
}

void mr_key_list_take(mr_key_list *l, const mr_option *table, const void *settings)
{
    char value[MR_TEXT_MAX];
    for (const mr_option *o = table; o->key; o++)
        if (mr_key_find(o->key) && !(o->flags & MR_OPT_DERIVED))
            mr_key_list_add(l, o->key, mr_option_print(o, settings, value));
}

void mr_key_list_free(mr_key_list *l)
{
    for (int i = 0; i < l->count; i++) mr_free(l->list[i]);
    *l = (mr_key_list){0};
}
