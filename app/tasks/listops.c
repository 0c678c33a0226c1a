/* ListOps, as in Long Range Arena: the value of a long expression of nested lists, from its tokens. */
#include "core/mem.h"
#include "tasks/data.h"
#include "tasks/listops_data.h"
#include "tasks/shuffle.h"
#include "tasks/split.h"

#include <stdlib.h>

typedef struct settings {
    int source, pool, split;
    int64_t min_length, max_length, depth, arguments, train_size, validation_size, test_size, start_length, grow_steps;
} settings;

/* Rows first … first + count − 1. */
typedef struct range {
    uint32_t first, count;
} range;

enum { STAGES = 16, STAGE_ROWS = 32768 };

typedef struct listops {
    mr_byte_rows rows;
    range train, eval;
    range stage[STAGES]; /* shorter expressions, each stage twice as long as the one before, to be trained on first */
    int stages;
    uint32_t *order; /* [eval.count] rows by length, so that batches hold little padding */
} listops;

/* ---- batches */

/* batch->length first holds the rows' numbers; each is then replaced by the row's length. */
static void fill(const mr_task *task, mr_batch *batch)
{
    const mr_byte_rows *rows = &((const listops *)task->data)->rows;
    int longest = 0;
    for (int b = 0; b < batch->B; b++)
        if ((int)rows->length[batch->length[b]] > longest) longest = (int)rows->length[batch->length[b]];
    batch->T = mr_padded_T(longest, task->max_T);
    batch->counted = batch->B;
    for (int b = 0; b < batch->B; b++) {
        const int32_t row = batch->length[b];
        int32_t *ids = batch->ids + (size_t)b * (size_t)batch->T;
        const uint8_t *tokens = rows->bytes + rows->at[row];
        batch->length[b] = (int32_t)rows->length[row];
        batch->target[b] = rows->label[row];
        for (int t = 0; t < batch->T; t++) ids[t] = t < batch->length[b] ? tokens[t] : MR_LISTOPS_PAD;
    }
}

/* Equal shares of grow-steps for the stages, then the training set. */
static range range_at(const mr_task *task, uint32_t step)
{
    const listops *l = task->data;
    const int64_t stage = mr_task_stage(step, l->stages, ((const settings *)task->settings)->grow_steps);
    return stage < l->stages ? l->stage[stage] : l->train;
}

static void train_batch(const mr_task *task, uint32_t step, uint32_t micro, mr_batch *batch)
{
    const listops *l = task->data;
    const range from = range_at(task, step);
    batch->B = task->batch;
    batch->length = mr_batch_lengths(batch);
    mr_shuffle_batch(task, step, micro, l->rows.length + from.first, from.count, batch->B, batch->length);
    for (int b = 0; b < batch->B; b++) batch->length[b] += (int32_t)from.first;
    fill(task, batch);
}

static void eval_batch(const mr_task *task, int index, mr_batch *batch)
{
    const listops *l = task->data;
    uint32_t first = (uint32_t)index * (uint32_t)task->batch, left = l->eval.count - first;
    batch->B = left < (uint32_t)task->batch ? (int)left : task->batch;
    batch->length = mr_batch_lengths(batch);
    for (int b = 0; b < batch->B; b++) batch->length[b] = (int32_t)l->order[first + (uint32_t)b];
    fill(task, batch);
}

/* ---- the data */

/* The test set comes first, then the validation set, so that neither depends on how much there is to train on. */
static int generate(const settings *s, listops *l, mr_error *err)
{
    const mr_listops_shape shape = {.min_length = (int)s->min_length,
                                    .max_length = (int)s->max_length,
                                    .depth = (int)s->depth,
                                    .arguments = (int)s->arguments};
    const uint32_t test = (uint32_t)s->test_size, validation = (uint32_t)s->validation_size,
                   train = (uint32_t)s->train_size;
    l->eval = s->split == MR_SPLIT_TEST ? (range){0, test} : (range){test, validation};
    l->train = (range){test + validation, train};
    return mr_listops_generate(&shape, test + validation + train, &l->rows, err);
}

/* Expressions of start-length tokens down to half of that, then of twice as many, while they are shorter than those
 * of the training set. */
static int generate_stages(const settings *s, listops *l, mr_error *err)
{
    int status = 0;
    for (int64_t longest = s->start_length; longest && longest <= s->min_length && l->stages < STAGES && !status;
         longest *= 2) {
        const mr_listops_shape shape = {.min_length = (int)(longest / 2 - 1),
                                        .max_length = (int)longest + 1,
                                        .depth = (int)s->depth,
                                        .arguments = (int)s->arguments};
        l->stage[l->stages++] = (range){l->rows.count, STAGE_ROWS};
        status = mr_listops_generate(&shape, STAGE_ROWS, &l->rows, err);
    }
    return status;
}

static int read_part(const char *file, uint32_t longest, mr_byte_rows *rows, range *part, mr_error *err)
{
    char *path;
    part->first = rows->count;
    int status = mr_data_find_member("lra", file, &path, err);
    if (!status) status = mr_listops_read(path, longest, rows, err);
    part->count = rows->count - part->first;
    mr_free(path);
    return status;
}

static int read_published(mr_task *task, mr_error *err)
{
    const settings *s = task->settings;
    listops *l = task->data;
    const uint32_t longest = (uint32_t)s->max_length;
    int status = read_part("listops/basic_train.tsv", longest, &l->rows, &l->train, err);
    if (!status)
        status = read_part(s->split == MR_SPLIT_TEST ? "listops/basic_test.tsv" : "listops/basic_val.tsv", longest,
                           &l->rows, &l->eval, err);
    if (!status) mr_sha256_of(l->rows.bytes, l->rows.used, task->data_sha256);
    return status;
}

static int sort_eval(listops *l, mr_error *err)
{
    uint64_t *keys = mr_alloc(l->eval.count, sizeof *keys);
    l->order = mr_alloc(l->eval.count, sizeof *l->order);
    int status = keys && l->order ? 0 : mr_no_memory(err, "the test set");
    if (!status) {
        for (uint32_t i = 0; i < l->eval.count; i++)
            keys[i] = (uint64_t)l->rows.length[l->eval.first + i] << 32 | (l->eval.first + i);
        qsort(keys, l->eval.count, sizeof *keys, mr_by_length);
        for (uint32_t i = 0; i < l->eval.count; i++) l->order[i] = (uint32_t)keys[i];
    }
    mr_free(keys);
    return status;
}

static int open_task(mr_task *task, mr_error *err)
{
    const settings *s = task->settings;
    if (s->min_length + 2 > s->max_length)
        return mr_fail(err, MR_ECONFIG,
                       "no length is more than %lld and less than %lld: lower --min-length or raise --max-length",
                       (long long)s->min_length, (long long)s->max_length);
    if (s->start_length && s->start_length < 16)
        return mr_fail(err, MR_ECONFIG,
                       "start-length = %lld: there are not enough expressions that short; take 16 or more, or 0",
                       (long long)s->start_length);
    listops *l = task->data = mr_alloc(1, sizeof *l);
    int status = !l ? mr_no_memory(err, "the task") : s->source ? read_published(task, err) : generate(s, l, err);
    if (!status) status = generate_stages(s, l, err);
    if (!status) status = sort_eval(l, err);
    if (status) return status;
    task->interface = (mr_interface){.input = MR_INPUT_TOKENS,
                                     .inputs = MR_LISTOPS_VOCABULARY,
                                     .head = mr_pool_heads[s->pool],
                                     .loss = MR_LOSS_XENT,
                                     .outputs = 10};
    task->max_T = (int)s->max_length;
    task->eval_batches = (int)((l->eval.count + (uint32_t)task->batch - 1) / (uint32_t)task->batch);
    return 0;
}

static void close_task(mr_task *task)
{
    listops *l = task->data;
    if (!l) return;
    mr_byte_rows_free(&l->rows);
    mr_free(l->order);
    mr_free(l);
}

static const char *const sources[] = {"generated", "lra", NULL};

#define FIELD(name) offsetof(settings, name)

static const mr_option options[] = {
    {.key = "source",
     .type = MR_OPT_CHOICE,
     .offset = FIELD(source),
     .fallback = "generated",
     .choices = sources,
     .help = "made here by Long Range Arena's rules, or its own files (`minrnn data get lra`)"},
    MR_OPTION_POOL(FIELD(pool), "mean"),
    MR_OPTION_SPLIT(FIELD(split)),
    {.key = "min-length",
     .type = MR_OPT_INT,
     .offset = FIELD(min_length),
     .fallback = "500",
     .min = 0,
     .max = MR_LISTOPS_LONGEST,
     .help = "expressions have more tokens than this"},
    {.key = "max-length",
     .type = MR_OPT_INT,
     .offset = FIELD(max_length),
     .fallback = "2000",
     .min = 2,
     .max = MR_LISTOPS_LONGEST,
     .help = "and fewer than this"},
    {.key = "depth",
     .type = MR_OPT_INT,
     .offset = FIELD(depth),
     .fallback = "10",
     .min = 2,
     .max = MR_LISTOPS_DEPTH,
     .help = "levels of a tree, digits included, at most"},
    {.key = "arguments",
     .type = MR_OPT_INT,
     .offset = FIELD(arguments),
     .fallback = "10",
     .min = 2,
     .max = MR_LISTOPS_ARGUMENTS,
     .help = "most arguments of an operator (2 or more)"},
    {.key = "train-size",
     .type = MR_OPT_INT,
     .offset = FIELD(train_size),
     .fallback = "96000",
     .min = 1,
     .max = 1 << 24,
     .help = "expressions to train on, where they are generated"},
    {.key = "validation-size",
     .type = MR_OPT_INT,
     .offset = FIELD(validation_size),
     .fallback = "2000",
     .min = 1,
     .max = 1 << 20,
     .help = "expressions to choose the best checkpoint by"},
    {.key = "test-size",
     .type = MR_OPT_INT,
     .offset = FIELD(test_size),
     .fallback = "2000",
     .min = 1,
     .max = 1 << 20,
     .help = "expressions kept for the end"},
    {.key = "start-length",
     .type = MR_OPT_INT,
     .offset = FIELD(start_length),
     .fallback = "0",
     .min = 0,
     .max = MR_LISTOPS_LONGEST,
     .help = "trains first on expressions of this many tokens, 16 or more, then on longer and longer ones; 0: on the "
             "training set alone"},
    {.key = "grow-steps",
     .type = MR_OPT_INT,
     .offset = FIELD(grow_steps),
     .fallback = "10000",
     .min = 1,
     .max = 1000000000,
     .help = "steps until training reaches the training set (with start-length)"},
    {.key = NULL}};

const mr_task_type mr_task_listops = {
    .name = "listops",
    .summary = "the value of a long expression of nested lists (Long Range Arena)",
    .options = options,
    .settings_size = sizeof(settings),
    .best_by_accuracy = 1,
    .open = open_task,
    .close = close_task,
    .train_batch = train_batch,
    .eval_batch = eval_batch,
};
