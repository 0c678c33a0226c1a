/* G-Image, as in Long Range Arena: what a picture of CIFAR-10 shows, from its grey values one after the other. */
#include "core/mem.h"
#include "core/rng.h"
#include "tasks/cifar.h"
#include "tasks/shuffle.h"
#include "tasks/split.h"

typedef struct settings {
    int values, pool, split, side, flip;
    int64_t shift;
} settings;

typedef enum form { TOKENS, REALS } form;

static const char *const forms[] = {"tokens", "reals", NULL};
static const char *const sides[] = {"32", "16", "8", NULL}; /* the choice k is 32 / 2ᵏ */

/* The first 45,000 pictures are trained on, the next 5,000 are for validation, the last 10,000 are the test set. */
enum { TRAINED = 45000, VIEWS = 1 << 25 /* added to a stream: how pictures are looked at */ };

static int side_of(const settings *s) { return MR_CIFAR_SIDE >> s->side; }

/* The mean of the picture's pixels that pixel (x, y) of a smaller one covers, rounded to the nearest whole number. */
static int pixel(const uint8_t *gray, int shrink, int x, int y)
{
    const int n = 1 << shrink;
    int sum = 0;
    for (int v = 0; v < n; v++)
        for (int u = 0; u < n; u++) sum += gray[(y * n + v) * MR_CIFAR_SIDE + x * n + u];
    return (sum + n * n / 2) / (n * n);
}

/* How a picture is looked at: mirrored, and moved by some pixels; what comes into view repeats the edge. */
typedef struct view {
    int mirrored, dx, dy;
} view;

static int within(int x, int side) { return x < 0 ? 0 : x < side ? x : side - 1; }

static void put_picture(const mr_task *task, uint32_t which, view v, int row, mr_batch *batch)
{
    const settings *s = task->settings;
    const uint8_t *record = (const uint8_t *)task->data + (size_t)which * MR_CIFAR_GRAY;
    const int side = side_of(s);
    size_t at = (size_t)row * (size_t)batch->T;
    batch->target[row] = record[0];
    for (int y = 0; y < side; y++)
        for (int x = 0; x < side; x++, at++) {
            int gray = pixel(record + 1, s->side, within((v.mirrored ? side - 1 - x : x) + v.dx, side),
                             within(y + v.dy, side));
            if (s->values == TOKENS) batch->ids[at] = gray;
            else batch->values[at] = (float)gray / 127.5f - 1;
        }
}

static view draw_view(const settings *s, mr_rng *rng)
{
    const uint32_t places = 2 * (uint32_t)s->shift + 1;
    view v = {.mirrored = s->flip && mr_rng_below(rng, 2)};
    if (s->shift) {
        v.dx = (int)mr_rng_below(rng, places) - (int)s->shift;
        v.dy = (int)mr_rng_below(rng, places) - (int)s->shift;
    }
    return v;
}

static void start_batch(const mr_task *task, int rows, mr_batch *batch)
{
    batch->B = rows;
    batch->T = task->max_T;
    batch->counted = rows;
}

static void train_batch(const mr_task *task, uint32_t step, uint32_t micro, mr_batch *batch)
{
    const settings *s = task->settings;
    const uint32_t stream = MR_STREAM_TRAIN + micro;
    start_batch(task, task->batch, batch);
    for (int row = 0; row < batch->B; row++) {
        uint32_t which =
            mr_shuffle_at(task->seed, stream, TRAINED, (uint64_t)step * (uint64_t)batch->B + (uint64_t)row);
        mr_rng rng = mr_rng_at(task->seed, stream + VIEWS, step, (uint32_t)row);
        put_picture(task, which, draw_view(s, &rng), row, batch);
    }
}

static uint32_t scored_from(const settings *s) { return s->split == MR_SPLIT_TEST ? MR_CIFAR_TRAIN : TRAINED; }
static uint32_t scored_to(const settings *s) { return s->split == MR_SPLIT_TEST ? MR_CIFAR_ALL : MR_CIFAR_TRAIN; }

static void eval_batch(const mr_task *task, int index, mr_batch *batch)
{
    uint32_t first = scored_from(task->settings) + (uint32_t)index * (uint32_t)task->batch,
             left = scored_to(task->settings) - first;
    start_batch(task, left < (uint32_t)task->batch ? (int)left : task->batch, batch);
    for (int row = 0; row < batch->B; row++) put_picture(task, first + (uint32_t)row, (view){0}, row, batch);
}

static int open_task(mr_task *task, mr_error *err)
{
    const settings *s = task->settings;
    uint8_t *gray;
    int status = mr_cifar_load(&gray, task->data_sha256, err);
    if (status) return status;
    task->data = gray;
    task->interface = (mr_interface){.input = s->values == TOKENS ? MR_INPUT_TOKENS : MR_INPUT_REALS,
                                     .inputs = s->values == TOKENS ? 256 : 1,
                                     .head = mr_pool_heads[s->pool],
                                     .loss = MR_LOSS_XENT,
                                     .outputs = 10};
    task->max_T = side_of(s) * side_of(s);
    task->eval_batches = ((int)(scored_to(s) - scored_from(s)) + task->batch - 1) / task->batch;
    return 0;
}

static void close_task(mr_task *task) { mr_free(task->data); }

#define FIELD(name) offsetof(settings, name)

static const mr_option options[] = {
    {.key = "values",
     .type = MR_OPT_CHOICE,
     .offset = FIELD(values),
     .fallback = "tokens",
     .choices = forms,
     .help = "a grey value is one of 256 tokens, or a number from -1 to 1"},
    MR_OPTION_POOL(FIELD(pool), "mean"),
    MR_OPTION_SPLIT(FIELD(split)),
    {.key = "flip",
     .type = MR_OPT_BOOL,
     .offset = FIELD(flip),
     .fallback = "no",
     .help = "mirror half of the pictures in training"},
    {.key = "shift",
     .type = MR_OPT_INT,
     .offset = FIELD(shift),
     .fallback = "0",
     .min = 0,
     .max = MR_CIFAR_SIDE - 1,
     .help = "in training, move each picture by up to this many pixels, down or up and to either side"},
    {.key = "side",
     .type = MR_OPT_CHOICE,
     .offset = FIELD(side),
     .fallback = "32",
     .choices = sides,
     .help = "width and height in pixels; smaller pictures average squares of pixels"},
    {.key = NULL}};

const mr_task_type mr_task_image = {
    .name = "image",
    .summary = "what a grey picture of CIFAR-10 shows, read pixel by pixel (Long Range Arena's G-Image)",
    .options = options,
    .settings_size = sizeof(settings),
    .best_by_accuracy = 1,
    .open = open_task,
    .close = close_task,
    .train_batch = train_batch,
    .eval_batch = eval_batch,
};
