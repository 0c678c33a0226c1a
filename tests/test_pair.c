/* The head for pairs, recomputed from the two codes by the formula of docs/format.md; and what the
 * API refuses for such models. */
#include "support.h"

#include "minrnn.h"

enum { D = 6, B = 8, P = B / 2, T = 9, C = 3 };

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static const float *tensor(const mr_model *m, const float *weights, const char *name)
{
    const mr_params *params = mr_model_params(m);
    return weights + params->list[mr_params_find(params, name)].offset;
}

/* Scores of one pair from its codes. */
static void score(const mr_model *m, const float *weights, const float *a, const float *b, double out[C])
{
    const float *W = tensor(m, weights, "pair.weight"), *bias = tensor(m, weights, "pair.bias"),
                *head = tensor(m, weights, "head.weight");
    const float *shift = m->config.head_bias ? tensor(m, weights, "head.bias") : NULL;
    double hidden[D];
    for (int i = 0; i < D; i++) {
        double sum = bias[i];
        for (int j = 0; j < D; j++) {
            sum += (double)W[i * 4 * D + j] * a[j] + (double)W[i * 4 * D + D + j] * b[j];
            sum += (double)W[i * 4 * D + 2 * D + j] * a[j] * b[j] + (double)W[i * 4 * D + 3 * D + j] * (a[j] - b[j]);
        }
        hidden[i] = gelu(sum);
    }
    for (int c = 0; c < C; c++) {
        out[c] = shift ? shift[c] : 0;
        for (int i = 0; i < D; i++) out[c] += head[c * D + i] * hidden[i];
    }
}

/* The code of a sequence that is alone in its batch, from its tokens' outputs with the same weights. */
static void code_of(mr_model *m, const mr_batch *batch, int row, float code[D])
{
    mr_batch alone = *batch;
    float normed[T * D];
    alone.B = 1;
    const int n = alone.T = batch->length[row]; /* no padding */
    alone.length = NULL;
    alone.ids = batch->ids + row * T;
    mr_model_forward(m, &alone, NULL, 0);
    m->dev->get_act(m->dev, normed, m->normed, (size_t)n * D);
    for (int d = 0; d < D; d++) {
        double sum = 0;
        for (int t = 0; t < n; t++) sum += normed[t * D + d];
        code[d] = m->interface.head == MR_HEAD_PAIR_MEAN ? (float)(sum / n) : normed[(n - 1) * D + d];
    }
}

static void check_pairs_on(mr_dev *dev)
{
    for (int i = 0; i < 4; i++) {
        const int head = i % 2 ? MR_HEAD_PAIR_MEAN : MR_HEAD_PAIR_LAST;
        const mr_interface interface = {MR_INPUT_TOKENS, 11, (mr_head)head, MR_LOSS_XENT, C};
        mr_config config = config_with("mingru", &interface);
        config.dim = D;
        config.head_bias = i / 2;
        mr_model *m = make_model(&config, dev, B, T, 0);
        float *weights = mr_alloc(mr_model_params(m)->total, sizeof *weights), scores[P * C], codes[B][D];
        mr_model_get(m, MR_WEIGHTS, weights);
        mr_batch batch = make_batch(&interface, B, T, 0, 1, 4);
        assert_int_equal(mr_batch_rows(&batch, interface.head), P);
        mr_model_forward(m, &batch, NULL, 0);
        mr_model_logits(m, scores, 0, P);
        for (int b = 0; b < B; b++) code_of(m, &batch, b, codes[b]);
        for (int p = 0; p < P; p++) {
            double want[C];
            score(m, weights, codes[2 * p], codes[2 * p + 1], want);
            for (int c = 0; c < C; c++)
                if (!(fabs(scores[p * C + c] - want[c]) <= (is_bf16(dev) ? 0.1 : 1e-5) * fmax(1, fabs(want[c]))))
                    fail_msg("head %d, pair %d, score %d: %g, wanted %g", head, p, c, (double)scores[p * C + c],
                             want[c]);
        }
        mr_batch_free(&batch);
        mr_free(weights);
        mr_model_free(m);
    }
}

ON_DEVICES(pairs_follow_the_formula, check_pairs_on)

static void the_api_takes_pairs(void **state)
{
    (void)state;
    static const char *const settings[] = {"head", "pair-mean", "inputs", "5", "outputs", "2",
                                           "dim",  "8",         "layers", "1", NULL};
    static int32_t ids[] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1}, target[] = {1, 0};
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx;
    mr_net *net;
    mr_stream *stream;
    mr_error err;
    mr_result result = MR_RESULT;
    mr_batch data = MR_BATCH;
    float scores[2][2];
    options.device = "cpu";
    assert_int_equal(mr_context_new(&options, &ctx, &err), 0);
    assert_int_equal(mr_net_create(ctx, settings, &net, &err), 0);
    data.B = 4;
    data.T = 3;
    data.ids = ids;
    data.target = target;
    assert_int_equal(mr_net_head(net), MR_HEAD_PAIR_MEAN);
    assert_int_equal(mr_net_rows(net, 4, 3), 2);
    assert_int_equal(mr_net_forward(net, &data, scores[0], 4, &err), 0);
    assert_true(isfinite(scores[0][0]));
    assert_true(isfinite(scores[1][1]));
    assert_int_equal(mr_net_train(net, &data, &result, &err), 0);
    assert_int_equal(result.rows, 2);
    data.B = 3;
    assert_int_equal(mr_net_forward(net, &data, scores[0], 4, &err), MR_EINVAL);
    assert_non_null(strstr(err.text, "B must be even"));
    assert_int_equal(mr_stream_new(net, &stream, &err), MR_EINVAL);
    assert_non_null(strstr(err.text, "two sequences"));
    mr_net_free(net);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DEVICE_TESTS(pairs_follow_the_formula),
        cmocka_unit_test(the_api_takes_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
