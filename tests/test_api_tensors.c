/* Tensors by name: listed, copied out and in; gradients against finite differences; weights in 8 bits. */
#include "api_support.h"
#include "scratch.h"

static void tensors_are_listed(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    for (int m = 0; mixers()[m]; m++) {
        mr_net *net = net_with(ctx, mixers()[m]);
        int seen = 0, matrices = 0;
        for (int i = 0; i < mr_net_tensors(net); i++) {
            mr_tensor t = MR_TENSOR;
            size_t count = 1;
            OK(mr_net_tensor(net, i, &t, &err));
            assert_true(*t.name);
            assert_that(t.ndim, >=, 1);
            assert_that(t.ndim, <=, 4);
            assert_string_equal(t.dtype, "F32");
            for (int d = 0; d < t.ndim; d++) count *= (size_t)t.shape[d];
            assert_int_equal(t.count, count);
            seen += !strcmp(t.name, "head.weight") && t.ndim == 2 && t.shape[0] == VOCAB && t.shape[1] == 16;
            matrices += t.ndim == 2;
        }
        assert_that(seen, ==, 1);
        assert_that(matrices, >, 3);
        assert_int_equal(count_all(net), mr_net_parameters(net));
        mr_tensor t = MR_TENSOR;
        FAILS(MR_EINVAL, "tensor -1", mr_net_tensor(net, -1, &t, &err));
        FAILS(MR_EINVAL, "numbered from 0", mr_net_tensor(net, mr_net_tensors(net), &t, &err));
        t.size = 0;
        FAILS(MR_EINVAL, "size", mr_net_tensor(net, 0, &t, &err));
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

/* After copying all vectors into another net, it continues in the same bits. */
static void vectors_are_copied(void **state)
{
    (void)state;
    static const mr_vector moved[] = {MR_WEIGHTS, MR_MOMENT1, MR_MOMENT2};
    const char *const other_seed[] = {"inputs", "11", "outputs", "11",   "dim",  "16", "layers", "2",       "conv", "4",
                                      "mlp",    "2",  "lr",      "0.01", "seed", "4",  "betas",  "0,0.999", NULL};
    const char *const one_seed[] = {"inputs", "11", "outputs", "11",   "dim",  "16", "layers", "2",       "conv", "4",
                                    "mlp",    "2",  "lr",      "0.01", "seed", "3",  "betas",  "0,0.999", NULL};
    mr_context *ctx = context_on("cpu");
    mr_net *from = net_of(ctx, one_seed), *to = net_of(ctx, other_seed);
    train(from, 0, 3);
    train(to, 5, 8); /* as many steps: Adam's bias correction depends on it */
    for (int i = 0; i < mr_net_tensors(from); i++) {
        mr_tensor t = MR_TENSOR;
        OK(mr_net_tensor(from, i, &t, &err));
        float *copy = room((t.count + 1) * sizeof *copy);
        for (int v = 0; v < 3; v++) {
            copy[t.count] = 77;
            OK(mr_net_get(from, moved[v], t.name, copy, t.count, &err));
            assert_that(copy[t.count], ==, 77);
            OK(mr_net_put(to, moved[v], t.name, copy, t.count, &err));
        }
        free(copy);
    }
    train(from, 3, 5);
    train(to, 3, 5);
    same_vectors("weights", to, from, MR_WEIGHTS, 0);
    same_vectors("second moments", to, from, MR_MOMENT2, 0);
    mr_net_free(from), mr_net_free(to);
    mr_context_free(ctx);
}

static void wrong_tensors_are_refused(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    float head[VOCAB * 16 + 1] = {0};
    enum { HEAD = VOCAB * 16 };
    head[HEAD - 1] = 77;
    FAILS(MR_EINVAL, "nothing", mr_net_get(net, MR_WEIGHTS, "nothing", head, HEAD, &err));
    FAILS(MR_EINVAL, "room for 175 where 176", mr_net_get(net, MR_WEIGHTS, "head.weight", head, HEAD - 1, &err));
    FAILS(MR_EINVAL, "which = 9", mr_net_get(net, (mr_vector)9, "head.weight", head, HEAD, &err));
    FAILS(MR_EINVAL, "mr_net_mark_best", mr_net_get(net, MR_BEST, "head.weight", head, HEAD, &err));
    FAILS(MR_EINVAL, "176 elements, not 175", mr_net_put(net, MR_WEIGHTS, "head.weight", head, HEAD - 1, &err));
    FAILS(MR_EINVAL, "176 elements, not 0", mr_net_put(net, MR_WEIGHTS, "head.weight", NULL, HEAD, &err));
    assert_that(head[HEAD - 1], ==, 77);
    head[5] = NAN;
    FAILS(MR_EINVAL, "element 5 is NaN", mr_net_put(net, MR_WEIGHTS, "head.weight", head, HEAD, &err));
    OK(mr_net_get(net, MR_MOMENT1, "head.weight", head, HEAD, &err)); /* before the first step */
    for (int i = 0; i < HEAD; i++) assert_that(head[i], ==, 0);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- gradients */

static double loss_with(mr_net *net, const mr_batch *batch, const char *name, float *tensor, size_t count, size_t at,
                        double shift)
{
    const float kept = tensor[at];
    mr_result result = MR_RESULT;
    tensor[at] = (float)(kept + shift);
    OK(mr_net_put(net, MR_WEIGHTS, name, tensor, count, &err));
    tensor[at] = kept;
    OK(mr_net_evaluate(net, batch, &result, &err));
    return result.loss;
}

static void check_gradients(mr_context *ctx, const char *mixer)
{
    const int has_candidate =
        !strncmp(mixer, "min", 3); /* the default candidate has a kink, where differences are unreliable */
    const char *const settings[] = {"mixer",  mixer, "inputs",  "11",   "outputs",
                                    "11",     "dim", "8",       "conv", "4",
                                    "layers", "2",   "horizon", "8",    has_candidate ? "candidate" : NULL,
                                    "tanh",   NULL};
    mr_net *net = net_of(ctx, settings);
    lesson l;
    make_lesson(&l, 8);
    l.data.T = 6;
    OK(mr_net_set(net, "lr", "0", &err));
    OK(mr_net_set(net, "clip", "0", &err));
    OK(mr_net_train(net, &l.data, NULL, &err));
    for (int i = 0; i < mr_net_tensors(net); i++) {
        mr_tensor t = MR_TENSOR;
        OK(mr_net_tensor(net, i, &t, &err));
        float *weights = room(t.count * sizeof *weights), *grads = room(t.count * sizeof *grads);
        OK(mr_net_get(net, MR_WEIGHTS, t.name, weights, t.count, &err));
        OK(mr_net_get(net, MR_GRADS, t.name, grads, t.count, &err));
        for (size_t k = 0; k < 3; k++) {
            const size_t at = t.count * (2 * k + 1) / 6;
            const double h = 5e-3, up = loss_with(net, &l.data, t.name, weights, t.count, at, h);
            const double down = loss_with(net, &l.data, t.name, weights, t.count, at, -h), want = (up - down) / (2 * h);
            if (!(fabs(grads[at] - want) < 1e-3 * fmax(0.1, fabs(want))))
                fail_msg("%s: %s[%zu]: gradient %g, differences %g", mixer, t.name, at, (double)grads[at], want);
        }
        OK(mr_net_put(net, MR_WEIGHTS, t.name, weights, t.count, &err));
        free(weights), free(grads);
    }
    mr_net_free(net);
}

static void gradients_are_those_of_the_loss(void **state)
{
    (void)state;
    mr_context *ctx = context_on("ref");
    for (int m = 0; mixers()[m]; m++) check_gradients(ctx, mixers()[m]);
    mr_context_free(ctx);
}

/* ---- 8 bits */

static void check_int8(mr_net *net, mr_net *small)
{
    int bytes = 0;
    for (int i = 0; i < mr_net_tensors(small); i++) {
        mr_tensor t = MR_TENSOR;
        OK(mr_net_tensor(small, i, &t, &err));
        float *want = room(t.count * sizeof *want), *got = room(t.count * sizeof *got);
        OK(mr_net_get(net, MR_WEIGHTS, t.name, want, t.count, &err));
        OK(mr_net_get(small, MR_WEIGHTS, t.name, got, t.count, &err));
        if (strcmp(t.dtype, "I8")) {
            near_floats(t.name, got, want, t.count, 0);
            free(want), free(got);
            continue;
        }
        bytes++;
        const size_t columns = (size_t)t.shape[1];
        for (size_t r = 0; r < (size_t)t.shape[0];
             r++) { /* rounded to the nearest of 127 steps of the row's largest weight */
            double largest = 0;
            for (size_t c = 0; c < columns; c++) largest = fmax(largest, fabs((double)want[r * columns + c]));
            const double step = largest / 127;
            for (size_t c = 0; c < columns; c++) {
                const double w = want[r * columns + c], g = got[r * columns + c];
                assert_that(fabs(g - w), <=, 0.5001 * step + 1e-9);
                assert_that(fabs(g / step - round(g / step)), <, 1e-3);
            }
        }
        FAILS(MR_ECONFIG, "8 bits", mr_net_put(small, MR_WEIGHTS, t.name, got, t.count, &err));
        FAILS(MR_ECONFIG, "8-bit", mr_net_get(small, MR_MOMENT1, t.name, got, t.count, &err));
        free(want), free(got);
    }
    assert_that(bytes, >, 3);
}

static void weights_in_8_bits(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], again[MR_TEXT_MAX], text[16];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny), *small;
    lesson l;
    mr_result want = MR_RESULT, got = MR_RESULT;
    make_lesson(&l, 3);
    train(net, 0, 20);
    OK(mr_net_set_meta(net, "mine.author", "me", &err));
    in_folder("int8.safetensors", path);
    in_folder("again.safetensors", again);
    OK(mr_net_save_int8(net, path, &err));
    OK(mr_net_open(ctx, path, &small, &err));
    check_int8(net, small);
    OK(mr_net_setting(small, "weights", text, sizeof text, &err));
    assert_string_equal(text, "int8");
    assert_string_equal(mr_net_meta(small, "mine.author"), "me");
    assert_that(mr_net_steps(small), ==, 20);
    assert_that(mr_net_parameters(small), ==, mr_net_parameters(net));
    OK(mr_net_evaluate(net, &l.data, &want, &err));
    OK(mr_net_evaluate(small, &l.data, &got, &err));
    assert_that(fabs(got.loss - want.loss), <, 0.05);
    assert_that(got.loss, !=, want.loss);
    FAILS(MR_ECONFIG, "8-bit", mr_net_train(small, &l.data, NULL, &err));
    float scores[SCORES];
    FAILS(MR_ECONFIG, "8-bit", mr_net_keep_forward(small, &l.data, NULL, scores, SCORES, &err));
    OK(mr_net_forward(small, &l.data, scores, SCORES, &err)); /* no kept forward blocks it */
    FAILS(MR_ECONFIG, "8-bit", mr_net_save(small, again, &err));
    FAILS(MR_EINVAL, "8 bits", mr_net_save_int8(small, again, &err));
    FAILS(MR_ECONFIG, "8-bit", mr_net_mark_best(small, &err));
    FAILS(MR_ECONFIG, "8-bit", mr_net_save_training(small, again, NULL, &err));
    mr_net_free(net), mr_net_free(small);
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_listed),        cmocka_unit_test(vectors_are_copied),
        cmocka_unit_test(wrong_tensors_are_refused), cmocka_unit_test(gradients_are_those_of_the_loss),
        cmocka_unit_test(weights_in_8_bits),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
