/* A vocabulary so large that scores are computed in slices of rows: through the public API, training, scores, losses,
 * evaluation and a loss of the caller's own all agree. */
#include "api_support.h"

enum { TOKENS = 20011, ROWS = 1800, CHANNELS = 8 }; /* 36 million scores; the limit is 2^24, in slices of 838 rows */

static const char *const settings[] = {"inputs",    "20011", "outputs", "20011",  "dim",       "8",
                                       "layers",    "1",     "mixer",   "mingru", "head-bias", "yes",
                                       "expansion", "1",     "lr",      "0.01",   NULL};

typedef struct reading {
    int32_t ids[ROWS], target[ROWS];
    mr_batch batch;
    int counted;
} reading;

/* Every seventh row does not count. */
static void make_reading(reading *l)
{
    uint32_t random = 5;
    *l = (reading){.batch = MR_BATCH};
    for (int i = 0; i < ROWS; i++) {
        l->ids[i] = random_below(&random, TOKENS);
        l->target[i] = i % 7 ? random_below(&random, TOKENS) : -1;
        l->counted += l->target[i] >= 0;
    }
    l->batch.B = 1;
    l->batch.T = ROWS;
    l->batch.ids = l->ids;
    l->batch.target = l->target;
}

/* From scores to row losses; the scores become the gradient of the mean loss. */
static void cross_entropy(const reading *l, float *scores, double *losses)
{
    for (int r = 0; r < ROWS; r++) {
        float *x = scores + (size_t)r * TOKENS, top = x[0];
        double sum = 0;
        for (int c = 1; c < TOKENS; c++) top = fmaxf(top, x[c]);
        for (int c = 0; c < TOKENS; c++) sum += exp((double)x[c] - top);
        losses[r] = l->target[r] < 0 ? 0 : log(sum) + top - x[l->target[r]];
        for (int c = 0; c < TOKENS; c++)
            x[c] = l->target[r] < 0 ? 0 : (float)((exp((double)x[c] - top) / sum - (c == l->target[r])) / l->counted);
    }
}

static void check_gradients(mr_net *got, mr_net *want, const char *name, size_t count)
{
    float *a = room(count * sizeof *a), *b = room(count * sizeof *b);
    double off = 0, size = 0;
    OK(mr_net_get(got, MR_GRADS, name, a, count, &err));
    OK(mr_net_get(want, MR_GRADS, name, b, count, &err));
    for (size_t i = 0; i < count; i++) off += (double)(a[i] - b[i]) * (a[i] - b[i]), size += (double)b[i] * b[i];
    if (!(sqrt(off) <= 1e-5 * sqrt(size)) || !(size > 0)) fail_msg("%s: off by %g of %g", name, sqrt(off), sqrt(size));
    free(a);
    free(b);
}

static void all_ways_agree(void **state)
{
    (void)state;
    static reading l;
    static float losses[ROWS];
    double wanted[ROWS], sum = 0;
    mr_context *ctx = context_on("cpu");
    mr_net *own = net_of(ctx, settings), *net = net_of(ctx, settings);
    float *scores = room((size_t)ROWS * TOKENS * sizeof *scores), *kept = room((size_t)ROWS * TOKENS * sizeof *kept);
    mr_result scored = MR_RESULT, learned = MR_RESULT, updated = MR_RESULT;
    make_reading(&l);
    OK(mr_net_forward(own, &l.batch, scores, (size_t)ROWS * TOKENS, &err));
    OK(mr_net_losses(own, &l.batch, losses, ROWS, &err));
    OK(mr_net_evaluate(own, &l.batch, &scored, &err));
    OK(mr_net_keep_forward(own, &l.batch, NULL, kept, (size_t)ROWS * TOKENS, &err));
    for (size_t i = 0; i < (size_t)ROWS * TOKENS; i++)
        if (!(fabsf(scores[i] - kept[i]) <= 1e-5f)) fail_msg("score %zu: %g, kept %g", i, scores[i], kept[i]);
    cross_entropy(&l, kept, wanted);
    for (int r = 0; r < ROWS; r++) {
        if (!(fabs(losses[r] - wanted[r]) <= 1e-4)) fail_msg("row %d: %g, wanted %g", r, losses[r], wanted[r]);
        sum += wanted[r];
    }
    assert_true(fabs(scored.loss - sum / l.counted) <= 1e-5);
    assert_int_equal(scored.rows, l.counted);
    OK(mr_net_backward(own, kept, (size_t)ROWS * TOKENS, &err));
    OK(mr_net_update(own, &updated, &err));
    OK(mr_net_train(net, &l.batch, &learned, &err));
    assert_true(fabs(learned.loss - scored.loss) <= 1e-5);
    assert_true(fabs(learned.grad_norm - updated.grad_norm) <= 1e-5 * learned.grad_norm);
    check_gradients(own, net, "head.weight", (size_t)TOKENS * CHANNELS);
    check_gradients(own, net, "head.bias", TOKENS);
    check_gradients(own, net, "embed.weight", (size_t)TOKENS * CHANNELS);
    assert_true(mr_net_memory(net) < (size_t)ROWS * TOKENS * sizeof(float));
    free(scores);
    free(kept);
    mr_net_free(own);
    mr_net_free(net);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_ways_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
