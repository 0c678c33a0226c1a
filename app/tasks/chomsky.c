/* The Chomsky hierarchy: formal languages, learnt from short strings and scored on longer ones. chomsky.def lists
 * them. */
#include "core/mem.h"
#include "tasks/chomsky.h"
#include "tasks/split.h"

#include <stdio.h>
#include <string.h>

enum { PAPER_PROTOCOL, DEEPMIND_PROTOCOL };
static const char *const protocols[] = {"paper", "deepmind", NULL};

/* Devices record a step for each shape that they meet, so lengths are rounded up to few of them. The models are causal:
 * what follows an answer changes nothing. */
enum { TRAIN_MULTIPLE = 16, EVAL_MULTIPLE = 32 };

/* The random stream that draws what all rows of a batch share; rows use the numbers below it. */
#define SHARED UINT32_MAX
/* The strings of each split, in the order of mr_split: "chomsky", "chomtest". */
static const uint64_t eval_seeds[] = {0x63686f6d736b79, 0x63686f6d74657374};

typedef struct settings {
    char task[MR_TEXT_MAX];
    int protocol, split;
    int64_t train_length, eval_from, eval_to, eval_lengths, eval_samples;
} settings;

/* What follows from the settings; what is scored is `blocks` times `samples` sequences of one length. */
typedef struct chomsky {
    const mr_chomsky *kind;
    int train_length, from, to, blocks, samples;
    int parts; /* batches that a block is cut into */
    int drawn; /* the lengths of blocks are drawn, else one after another */
} chomsky;

static int round_up(int n, int multiple) { return (n + multiple - 1) / multiple * multiple; }

static int tokens_of(const mr_chomsky *kind, int length, int place)
{
    return kind->inputs(length, place) + kind->answers(length);
}

/* ---- batches ---- */

/* Which rows of which place a batch holds. */
typedef struct part {
    uint64_t seed;
    uint32_t stream, a;
    int length, first, rows, multiple, scored;
} part;

/* What follows the end of an answer is learnt, as published, but not scored. */
static void cut_after_end(const mr_chomsky *kind, int32_t *answer, int n)
{
    int i = 0;
    while (i < n && answer[i] != kind->end) i++;
    for (i++; i < n; i++) answer[i] = -1;
}

static void fill_row(const part *p, const mr_chomsky_row *row, int T, int32_t *target)
{
    const mr_chomsky *kind = row->kind;
    int inputs = kind->inputs(row->length, row->place), answers = kind->answers(row->length);
    for (int t = 0; t < T; t++) {
        row->ids[t] = kind->symbols;
        target[t] = t >= inputs && t < inputs + answers ? 0 : -1;
    }
    kind->draw(row);
    if (p->scored && kind->end) cut_after_end(kind, row->answer, answers);
}

static void fill(const mr_chomsky *kind, const part *p, int place, mr_batch *batch)
{
    batch->B = p->rows;
    batch->T = round_up(tokens_of(kind, p->length, place), p->multiple);
    batch->counted = 0;
    for (int i = 0; i < p->rows; i++) {
        mr_rng rng = mr_rng_at(p->seed, p->stream, p->a, (uint32_t)(p->first + i));
        int32_t *ids = batch->ids + (size_t)i * (size_t)batch->T,
                *target = batch->target + (size_t)i * (size_t)batch->T;
        mr_chomsky_row row = {kind, p->length, place, &rng, ids, target + kind->inputs(p->length, place)};
        fill_row(p, &row, batch->T, target);
        for (int t = 0; t < batch->T; t++) batch->counted += target[t] >= 0;
    }
}

static void train_batch(const mr_task *task, uint32_t step, uint32_t micro, mr_batch *batch)
{
    const chomsky *c = task->data;
    part p = {.seed = task->seed,
              .stream = MR_STREAM_TRAIN + micro,
              .a = step,
              .rows = task->batch,
              .multiple = TRAIN_MULTIPLE};
    mr_rng shared = mr_rng_at(p.seed, p.stream, p.a, SHARED);
    p.length = 1 + (int)mr_rng_below(&shared, (uint32_t)c->train_length);
    fill(c->kind, &p, (int)mr_rng_below(&shared, (uint32_t)p.length), batch);
}

/* Lengths are drawn one from each of as many equal shares of the range as there are blocks: each length is as likely
 * as any other, and one split is not harder or easier than another because its draws happened to be longer or
 * shorter. */
static int scored_length(const chomsky *c, int block, mr_rng *rng)
{
    const uint32_t span = (uint32_t)(c->to - c->from + 1);
    return c->from +
           (c->drawn ? (int)(((uint64_t)block * span + mr_rng_below(rng, span)) / (uint64_t)c->blocks) : block);
}

static void eval_batch(const mr_task *task, int index, mr_batch *batch)
{
    const chomsky *c = task->data;
    const settings *s = task->settings;
    int block = index / c->parts, first = index % c->parts * task->batch, left = c->samples - first;
    part p = {.seed = eval_seeds[s->split],
              .stream = MR_STREAM_EVAL,
              .a = (uint32_t)block,
              .first = first,
              .multiple = EVAL_MULTIPLE,
              .scored = 1};
    mr_rng shared = mr_rng_at(p.seed, p.stream, p.a, SHARED);
    p.rows = left < task->batch ? left : task->batch;
    p.length = scored_length(c, block, &shared);
    fill(c->kind, &p, (int)mr_rng_below(&shared, (uint32_t)p.length), batch);
}

/* Where every length is scored, each is a group: all of them count the same, however many answers they have. */
static int eval_group(const mr_task *task, int index)
{
    const chomsky *c = task->data;
    return c->drawn ? 0 : index / c->parts;
}

/* ---- opening ---- */

static int no_such_task(const settings *s, const mr_chomsky *kinds, mr_error *err)
{
    char names[512] = "";
    for (size_t n = 0; kinds->name && n < sizeof names; kinds++)
        n += (size_t)snprintf(names + n, sizeof names - n, " %s", kinds->name);
    return mr_fail(err, MR_ECONFIG, "the %s protocol has no task \"%.100s\": choose --task among%s",
                   protocols[s->protocol], s->task, names);
}

static int find_kind(const settings *s, const mr_chomsky **kind, mr_error *err)
{
    const mr_chomsky *kinds = s->protocol == PAPER_PROTOCOL ? mr_chomsky_paper : mr_chomsky_deepmind;
    for (*kind = kinds; (*kind)->name; ++*kind)
        if (!strcmp((*kind)->name, s->task)) return 0;
    return no_such_task(s, kinds, err);
}

/* 0: the protocol's own value. */
static int64_t or_else(int64_t value, int64_t usual) { return value ? value : usual; }

static int settle(const mr_task *task, chomsky *c, mr_error *err)
{
    const settings *s = task->settings;
    int paper = s->protocol == PAPER_PROTOCOL;
    int status = find_kind(s, &c->kind, err);
    if (status) return status;
    c->drawn = paper;
    c->train_length = (int)s->train_length;
    c->from = (int)or_else(s->eval_from, paper ? 40 : s->train_length + 1);
    c->to = (int)or_else(s->eval_to, paper ? 256 : 100);
    if (c->from > c->to)
        return mr_fail(err, MR_ECONFIG, "lengths %d to %d cannot be scored: lower --eval-from or raise --eval-to",
                       c->from, c->to);
    c->blocks = paper ? (int)s->eval_lengths : c->to - c->from + 1;
    c->samples = (int)or_else(s->eval_samples, paper ? 256 : 512);
    c->parts = (c->samples + task->batch - 1) / task->batch;
    return 0;
}

static int open_task(mr_task *task, mr_error *err)
{
    chomsky *c = task->data = mr_alloc(1, sizeof *c);
    if (!c) return mr_no_memory(err, "the task");
    int status = settle(task, c, err);
    if (status) return status;
    int train_T = round_up(tokens_of(c->kind, c->train_length, c->train_length - 1), TRAIN_MULTIPLE);
    int eval_T = round_up(tokens_of(c->kind, c->to, c->to - 1), EVAL_MULTIPLE);
    task->interface = (mr_interface){.input = MR_INPUT_TOKENS,
                                     .inputs = c->kind->symbols + 1,
                                     .head = MR_HEAD_TOKEN,
                                     .loss = MR_LOSS_XENT,
                                     .outputs = c->kind->classes};
    task->max_T = train_T > eval_T ? train_T : eval_T;
    task->train_T = train_T;
    task->eval_rows = c->samples < task->batch ? c->samples : task->batch;
    task->eval_batches = c->blocks * c->parts;
    return 0;
}

static void close_task(mr_task *task)
{
    mr_free(task->data);
    task->data = NULL;
}

/* ---- options ---- */

#define PAPER(name, ...) " " #name
#define DEEPMIND(...)
static const char task_help[] = "the language, of the protocol's; the paper's:"
#include "tasks/chomsky.def"
    ;
#undef PAPER
#undef DEEPMIND
#define PAPER(...)
#define DEEPMIND(name, ...) " " #name
static const char protocol_help[] = "whose tasks and lengths; deepmind's tasks:"
#include "tasks/chomsky.def"
    ;

#define FIELD(name) offsetof(settings, name)
static const mr_option options[] = {
    {"task", MR_OPT_TEXT, FIELD(task), "even_pairs", 0, 0, NULL, task_help, 0},
    {"protocol", MR_OPT_CHOICE, FIELD(protocol), "paper", 0, 0, protocols, protocol_help, 0},
    MR_OPTION_SPLIT_WITH(FIELD(split), MR_OPT_SPARSE),
    {"train-length", MR_OPT_INT, FIELD(train_length), "40", 1, MR_CHOMSKY_LONGEST, NULL,
     "longest string that is trained on", 0},
    {"eval-from", MR_OPT_INT, FIELD(eval_from), "0", 0, MR_CHOMSKY_LONGEST, NULL,
     "shortest string that is scored; 0: 40 (paper), train-length + 1 (deepmind)", 0},
    {"eval-to", MR_OPT_INT, FIELD(eval_to), "0", 0, MR_CHOMSKY_LONGEST, NULL,
     "longest string that is scored; 0: 256 (paper), 100 (deepmind)", 0},
    {"eval-lengths", MR_OPT_INT, FIELD(eval_lengths), "100", 1, 10000, NULL,
     "paper: lengths that are scored, one drawn from each equal share of the range (deepmind: every one)", 0},
    {"eval-samples", MR_OPT_INT, FIELD(eval_samples), "0", 0, 1 << 16, NULL,
     "strings of each length that are scored; 0: 256 (paper), 512 (deepmind)", 0},
    {0}};

const mr_task_type mr_task_chomsky = {
    .name = "chomsky",
    .summary = "formal languages: learn short strings, be scored on longer ones",
    .options = options,
    .settings_size = sizeof(settings),
    .best_by_accuracy = 1,
    .open = open_task,
    .close = close_task,
    .train_batch = train_batch,
    .eval_batch = eval_batch,
    .eval_group = eval_group,
};
