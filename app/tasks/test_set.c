/* The identity of a test set: each sequence is hashed with its answers, and the hashes are added up, so that neither
 * the order nor the size of batches matters. Padding is left out for the same reason. */
#include "tasks/test_set.h"

#include "core/mem.h"

#include <math.h>
#include <stdio.h>

typedef struct tally {
    const mr_task *task;
    const mr_batch *batch;
    uint64_t sum;
    int64_t *counts; /* of each class */
    mr_test_set *set;
} tally;

/* Targets of sequence b: their first index and how many; of a pair, the second sequence has none. */
static size_t targets_of(const tally *t, int b, size_t *first)
{
    const mr_head head = t->task->interface.head;
    const size_t T = (size_t)t->batch->T;
    *first = head == MR_HEAD_TOKEN ? (size_t)b * T : mr_head_pairs(head) ? (size_t)b / 2 : (size_t)b;
    if (head == MR_HEAD_TOKEN) return T;
    return mr_head_pairs(head) ? (size_t)(b % 2 == 0) : 1;
}

/* Tokens that matter: without padding, and without what follows the last answer. */
static size_t tokens_of(const tally *t, int b)
{
    size_t first, n = targets_of(t, b, &first), T = (size_t)t->batch->T;
    if (t->batch->length) T = (size_t)t->batch->length[b];
    if (t->task->interface.head != MR_HEAD_TOKEN || !t->batch->target) return T;
    while (n && t->batch->target[first + n - 1] < 0) n--;
    return n < T ? n : T;
}

static void add_targets(tally *t, mr_sha256 *sha, int b, size_t tokens)
{
    const mr_batch *batch = t->batch;
    size_t first, n = targets_of(t, b, &first), outputs = (size_t)t->task->interface.outputs;
    if (t->task->interface.head == MR_HEAD_TOKEN) n = tokens;
    if (batch->target_values) {
        mr_sha256_add(sha, batch->target_values + first * outputs, n * outputs * sizeof *batch->target_values);
        if (batch->mask) mr_sha256_add(sha, batch->mask + first, n);
        for (size_t i = 0; i < n; i++) t->set->answers += !batch->mask || batch->mask[first + i];
        return;
    }
    mr_sha256_add(sha, batch->target + first, n * sizeof *batch->target);
    for (size_t i = 0; i < n; i++) {
        if (batch->target[first + i] < 0) continue;
        t->counts[batch->target[first + i]]++;
        t->set->answers++;
    }
}

/* Of a pair, both sequences are one: the second is hashed on top of the first. */
static void add_sequence(tally *t, int b, mr_sha256 *sha)
{
    const mr_batch *batch = t->batch;
    const size_t T = (size_t)batch->T, inputs = (size_t)t->task->interface.inputs, tokens = tokens_of(t, b);
    if (batch->ids) mr_sha256_add(sha, batch->ids + (size_t)b * T, tokens * sizeof *batch->ids);
    else mr_sha256_add(sha, batch->values + (size_t)b * T * inputs, tokens * inputs * sizeof *batch->values);
    if (batch->reset) mr_sha256_add(sha, batch->reset + (size_t)b * T, tokens);
    add_targets(t, sha, b, tokens);
}

static void add_batch(tally *t)
{
    const int each = mr_head_pairs(t->task->interface.head) ? 2 : 1;
    for (int b = 0; b + each <= t->batch->B; b += each) {
        char text[MR_SHA256_TEXT];
        unsigned long long part;
        mr_sha256 sha;
        mr_sha256_begin(&sha);
        for (int i = 0; i < each; i++) add_sequence(t, b + i, &sha);
        mr_sha256_end(&sha, text);
        text[16] = 0;
        if (sscanf(text, "%llx", &part) == 1) t->sum += part;
        t->set->sequences++;
    }
}

static void finish(tally *t)
{
    const int classes = t->task->interface.loss == MR_LOSS_XENT ? t->task->interface.outputs : 0;
    int64_t most = 0;
    for (int i = 0; i < classes; i++)
        if (t->counts[i] > most) most = t->counts[i];
    t->set->chance = classes ? 1.0 / classes : NAN;
    t->set->constant = classes ? (double)most / (double)t->set->answers : NAN;
    snprintf(t->set->identity, sizeof t->set->identity, "%016llx", (unsigned long long)t->sum);
}

int mr_test_set_of(const mr_task *task, mr_test_set *set, mr_error *err)
{
    mr_shape shapes[2];
    mr_batch batch;
    *set = (mr_test_set){.chance = NAN, .constant = NAN};
    if (task->type->play_identity) return task->type->play_identity(task, set->identity, &set->sequences, err);
    tally t = {.task = task, .batch = &batch, .set = set};
    mr_task_shapes(task, shapes);
    if (mr_batch_new(&batch, &task->interface, shapes[1].B, shapes[1].T))
        return mr_no_memory(err, "batches; lower --batch or the length");
    t.counts = mr_alloc((size_t)task->interface.outputs, sizeof *t.counts);
    int status = t.counts ? 0 : mr_no_memory(err, "the test set");
    for (int i = 0; !status && i < task->eval_batches; i++) {
        if (task->stop && *task->stop) status = mr_fail(err, MR_ESTOPPED, "stopped while the test set was read");
        if (!status) task->type->eval_batch(task, i, &batch), add_batch(&t);
    }
    if (!status) finish(&t);
    mr_free(t.counts);
    mr_batch_free(&batch);
    return status;
}
