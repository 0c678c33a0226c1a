/* Selective copying: remember a few tokens scattered over a long stretch of noise, and repeat them in order at
 * the end. */
#include "core/rng.h"
#include "tasks/split.h"

#include <inttypes.h>

typedef struct settings {
    int64_t length, tokens, symbols, eval_batches, start_length, grow_steps;
    int split;
} settings;

/* What is scored is the same whatever the model, its seed or its batch: `eval-batches` batches of 64 sequences, drawn
 * from a fixed seed for each split and cut into batches of task->batch rows. */
enum { MARKER = 0, EVAL_ROWS = 64 };
static const uint64_t eval_seeds[] = {0x73656c636f7079, 0x73656c74657374}; /* "selcopy", "seltest" */

static int32_t noise(const settings *s) { return (int32_t)s->symbols + 1; }

/* Floyd's sampling: every set of `tokens` places is equally likely, with one draw a place. The row itself
 * remembers which places are taken, and walking it gives them sorted. */
static void draw_places(const settings *s, int64_t length, mr_rng *rng, int32_t *ids)
{
    for (int64_t i = 0; i < length; i++) ids[i] = noise(s);
    for (int64_t last = length - s->tokens; last < length; last++) {
        uint32_t place = mr_rng_below(rng, (uint32_t)last + 1);
        ids[ids[place] == noise(s) ? place : last] = MARKER;
    }
}

static void draw_row(const settings *s, int64_t length, mr_rng rng, int32_t *ids, int32_t *target)
{
    int64_t next = length;
    draw_places(s, length, &rng, ids);
    for (int64_t i = 0; i < length; i++) {
        target[i] = -1;
        if (ids[i] == noise(s)) continue;
        ids[i] = 1 + (int32_t)mr_rng_below(&rng, (uint32_t)s->symbols);
        ids[next] = MARKER;
        target[next++] = ids[i];
    }
}

/* Sequences that grow: start-length (or as many as there are data tokens), and twice that after each equal share of
 * grow-steps, to the full length. Few lengths, because a GPU records a step for each. */
static int64_t length_at(const settings *s, uint32_t step)
{
    if (!s->start_length) return s->length;
    const int64_t start = s->start_length > s->tokens ? s->start_length : s->tokens;
    int doublings = 0;
    for (int64_t l = start; l < s->length; l *= 2) doublings++;
    const int64_t length = start << mr_task_stage(step, doublings, s->grow_steps);
    return length < s->length ? length : s->length;
}

static void start_batch(const mr_task *task, int rows, int64_t length, mr_batch *batch)
{
    const settings *s = task->settings;
    batch->B = rows;
    batch->T = (int)(length + s->tokens);
    batch->counted = rows * s->tokens;
}

static void train_batch(const mr_task *task, uint32_t step, uint32_t micro, mr_batch *batch)
{
    int64_t length = length_at(task->settings, step);
    start_batch(task, task->batch, length, batch);
    for (int row = 0; row < batch->B; row++) {
        size_t at = (size_t)row * (size_t)batch->T;
        mr_rng rng = mr_rng_at(task->seed, MR_STREAM_TRAIN + micro, step, (uint32_t)row);
        draw_row(task->settings, length, rng, batch->ids + at, batch->target + at);
    }
}

static void eval_batch(const mr_task *task, int index, mr_batch *batch)
{
    const settings *s = task->settings;
    int64_t first = (int64_t)index * task->batch, left = s->eval_batches * EVAL_ROWS - first;
    start_batch(task, left < task->batch ? (int)left : task->batch, s->length, batch);
    for (int row = 0; row < batch->B; row++) {
        size_t at = (size_t)row * (size_t)batch->T;
        int64_t sequence = first + row;
        uint32_t a = (uint32_t)(sequence / EVAL_ROWS), b = (uint32_t)(sequence % EVAL_ROWS);
        draw_row(s, s->length, mr_rng_at(eval_seeds[s->split], MR_STREAM_EVAL, a, b), batch->ids + at,
                 batch->target + at);
    }
}

static int open_task(mr_task *task, mr_error *err)
{
    const settings *s = task->settings;
    if (s->tokens > s->length)
        return mr_fail(err, MR_ECONFIG,
                       "%" PRId64 " tokens do not fit into a length of %" PRId64 ": lower --tokens or raise --length",
                       s->tokens, s->length);
    int vocabulary = noise(s) + 1;
    task->interface = (mr_interface){.input = MR_INPUT_TOKENS,
                                     .inputs = vocabulary,
                                     .head = MR_HEAD_TOKEN,
                                     .loss = MR_LOSS_XENT,
                                     .outputs = vocabulary};
    task->max_T = (int)(s->length + s->tokens);
    task->eval_batches = (int)((s->eval_batches * EVAL_ROWS + task->batch - 1) / task->batch);
    return 0;
}

static const mr_option options[] = {
    MR_OPTION_SPLIT_WITH(offsetof(settings, split), MR_OPT_SPARSE),
    {.key = "length",
     .type = MR_OPT_INT,
     .offset = offsetof(settings, length),
     .fallback = "4096",
     .min = 1,
     .max = 1 << 24,
     .help = "positions of noise and data, before the markers"},
    {.key = "tokens",
     .type = MR_OPT_INT,
     .offset = offsetof(settings, tokens),
     .fallback = "16",
     .min = 1,
     .max = 1 << 24,
     .help = "data tokens to remember"},
    {.key = "symbols",
     .type = MR_OPT_INT,
     .offset = offsetof(settings, symbols),
     .fallback = "14",
     .min = 1,
     .max = 65534,
     .help = "different data tokens; the vocabulary is two larger"},
    {.key = "eval-batches",
     .type = MR_OPT_INT,
     .offset = offsetof(settings, eval_batches),
     .fallback = "200",
     .min = 1,
     .max = 1 << 20,
     .help = "size of the validation and of the test set, in batches of 64 sequences"},
    {.key = "start-length",
     .type = MR_OPT_INT,
     .offset = offsetof(settings, start_length),
     .fallback = "0",
     .min = 0,
     .max = 1 << 24,
     .flags = MR_OPT_SPARSE,
     .help = "length of the first training sequences, which then grow by doubling; 0: all have the full length"},
    {.key = "grow-steps",
     .type = MR_OPT_INT,
     .offset = offsetof(settings, grow_steps),
     .fallback = "1000",
     .min = 1,
     .max = 1000000000,
     .flags = MR_OPT_SPARSE,
     .help = "steps until training sequences have their full length (with start-length)"},
    {.key = NULL}};

const mr_task_type mr_task_selective_copy = {
    .name = "selective-copy",
    .summary = "repeat the data tokens scattered over a long stretch of noise",
    .options = options,
    .settings_size = sizeof(settings),
    .best_by_accuracy = 1,
    .open = open_task,
    .train_batch = train_batch,
    .eval_batch = eval_batch,
};
