/* Retrieval, as in Long Range Arena: does one of two papers (AAN) cite the other? Both are read byte by byte by the
 * same blocks. */
#include "core/mem.h"
#include "tasks/aan.h"
#include "tasks/data.h"
#include "tasks/shuffle.h"
#include "tasks/split.h"

typedef struct settings {
    int64_t length;
    int pool, split;
} settings;

typedef struct retrieval {
    mr_byte_rows documents;
    mr_pairs train, eval;
} retrieval;

enum { PAD = 0, VOCABULARY = 257 }; /* a byte c is the token c + 1 */

static const mr_head heads[] = {MR_HEAD_PAIR_LAST, MR_HEAD_PAIR_MEAN}; /* in the order of mr_pool_choices */

/* ---- batches: rows 2i and 2i+1 are a pair */

static void put_document(const mr_byte_rows *documents, uint32_t which, int row, mr_batch *batch)
{
    const uint8_t *bytes = documents->bytes + documents->at[which];
    int32_t *ids = batch->ids + (size_t)row * (size_t)batch->T;
    const int length = (int)documents->length[which];
    batch->length[row] = length;
    for (int t = 0; t < batch->T; t++) ids[t] = t < length ? 1 + bytes[t] : PAD;
}

/* batch->target first holds the pairs' numbers; each is then replaced by the pair's label. */
static void fill(const mr_task *task, const mr_pairs *pairs, int count, mr_batch *batch)
{
    const retrieval *r = task->data;
    uint32_t longest = 0;
    for (int p = 0; p < count; p++)
        if (pairs->length[batch->target[p]] > longest) longest = pairs->length[batch->target[p]];
    batch->B = 2 * count;
    batch->length = mr_batch_lengths(batch);
    batch->T = mr_padded_T((int)longest, task->max_T);
    batch->counted = count;
    for (int p = 0; p < count; p++) {
        const uint32_t which = (uint32_t)batch->target[p];
        for (uint32_t k = 0; k < 2; k++)
            put_document(&r->documents, pairs->document[2 * which + k], 2 * p + (int)k, batch);
        batch->target[p] = pairs->label[which];
    }
}

static void train_batch(const mr_task *task, uint32_t step, uint32_t micro, mr_batch *batch)
{
    const retrieval *r = task->data;
    mr_shuffle_batch(task, step, micro, r->train.length, r->train.count, task->batch / 2, batch->target);
    fill(task, &r->train, task->batch / 2, batch);
}

static void eval_batch(const mr_task *task, int index, mr_batch *batch)
{
    const retrieval *r = task->data;
    const uint32_t pairs = (uint32_t)task->batch / 2, first = (uint32_t)index * pairs, left = r->eval.count - first;
    const int count = (int)(left < pairs ? left : pairs);
    for (int p = 0; p < count; p++) batch->target[p] = (int32_t)first + p;
    fill(task, &r->eval, count, batch);
}

/* ---- opening */

static int read_data(mr_task *task, mr_error *err)
{
    const settings *s = task->settings;
    retrieval *r = task->data;
    const char *files[] = {"retrieval/new_aan_pairs.train.tsv", s->split == MR_SPLIT_TEST
                                                                    ? "retrieval/new_aan_pairs.test.tsv"
                                                                    : "retrieval/new_aan_pairs.eval.tsv"};
    mr_pairs *parts[] = {&r->train, &r->eval};
    mr_sha256 sha;
    int status = 0;
    mr_sha256_begin(&sha);
    for (int i = 0; !status && i < 2; i++) {
        char *path;
        status = mr_data_find_member("lra", files[i], &path, err);
        if (!status) status = mr_aan_read(path, (uint32_t)s->length, &r->documents, parts[i], &sha, err);
        mr_free(path);
    }
    mr_sha256_end(&sha, task->data_sha256);
    return status;
}

static int open_task(mr_task *task, mr_error *err)
{
    const settings *s = task->settings;
    if (task->batch % 2)
        return mr_fail(err, MR_ECONFIG, "batch = %d: a pair is two rows of a batch, so --batch must be even",
                       task->batch);
    retrieval *r = task->data = mr_alloc(1, sizeof *r);
    int status = r ? read_data(task, err) : mr_no_memory(err, "the task");
    if (status) return status;
    task->interface = (mr_interface){
        .input = MR_INPUT_TOKENS, .inputs = VOCABULARY, .head = heads[s->pool], .loss = MR_LOSS_XENT, .outputs = 2};
    task->max_T = (int)s->length;
    task->eval_batches = (int)((2 * (uint64_t)r->eval.count + (uint32_t)task->batch - 1) / (uint32_t)task->batch);
    return 0;
}

static void close_task(mr_task *task)
{
    retrieval *r = task->data;
    if (!r) return;
    mr_byte_rows_free(&r->documents);
    mr_pairs_free(&r->train);
    mr_pairs_free(&r->eval);
    mr_free(r);
}

static const mr_option options[] = {{.key = "length",
                                     .type = MR_OPT_INT,
                                     .offset = offsetof(settings, length),
                                     .fallback = "4000",
                                     .min = 1,
                                     .max = 1 << 20,
                                     .help = "bytes of a document that are read, at most"},
                                    MR_OPTION_POOL(offsetof(settings, pool), "mean"),
                                    MR_OPTION_SPLIT(offsetof(settings, split)),
                                    {.key = NULL}};

const mr_task_type mr_task_retrieval = {
    .name = "retrieval",
    .summary = "does one of two papers cite the other? from their bytes (Long Range Arena's AAN)",
    .options = options,
    .settings_size = sizeof(settings),
    .best_by_accuracy = 1,
    .open = open_task,
    .close = close_task,
    .train_batch = train_batch,
    .eval_batch = eval_batch,
};
