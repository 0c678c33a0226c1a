/* What the tests of the public API share: nothing here uses the library's internals. */
#ifndef MR_TESTS_API_SUPPORT_H
#define MR_TESTS_API_SUPPORT_H

#include "assert_that.h"

#include <minrnn_experimental.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Calls that must succeed (shows the message when they do not), and calls that must fail
 * with a status and a message. */
#define OK(call)                                                                                                       \
    do {                                                                                                               \
        mr_error err = {0};                                                                                            \
        int status_ = (call);                                                                                          \
        if (status_) fail_msg("%s: %d: %s", #call, status_, err.text);                                                 \
    } while (0)

#define FAILS(wanted, word, call)                                                                                      \
    do {                                                                                                               \
        mr_error err = {0};                                                                                            \
        int status_ = (call);                                                                                          \
        if (status_ != (wanted) || !strstr(err.text, word)) fail_msg("%s: %d: %s", #call, status_, err.text);          \
        assert_int_equal(err.status, wanted);                                                                          \
    } while (0)

/* With MINRNN_TEST_API_DEVICE=cuda the tests of nets and streams run there, in fp32, in place of the CPU. Programs that
 * pass host memory to raw calls define HOST_MEMORY and stay on the CPU. */
static inline mr_context *context_on(const char *device)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
#ifdef HOST_MEMORY
    const char *instead = NULL;
#else
    const char *instead = getenv("MINRNN_TEST_API_DEVICE");
#endif
    mr_context *ctx;
    options.device = instead && !strcmp(device, "cpu") ? instead : device;
    options.exact = 1;
    options.threads = 1;
    OK(mr_context_new(&options, &ctx, &err));
    return ctx;
}

/* The same numbers every time, in −1 … 1. */
static inline float random_float(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

static inline int32_t random_below(uint32_t *state, int n)
{
    return (int32_t)((random_float(state) + 1) * 0.49999f * (float)n);
}

static inline void *room(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

static inline mr_net *net_of(mr_context *ctx, const char *const *settings)
{
    mr_net *net;
    OK(mr_net_create(ctx, settings, &net, &err));
    return net;
}

static inline mr_stream *stream_on(mr_net *net)
{
    mr_stream *stream;
    OK(mr_stream_new(net, &stream, &err));
    return stream;
}

static inline void near_floats(const char *what, const float *got, const float *want, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * fmax(1, fabs((double)want[i]))))
            fail_msg("%s: element %zu of %zu is %.9g, wanted %.9g", what, i, n, (double)got[i], (double)want[i]);
}

/* Memory with guard bytes on both sides, which must not change. */
typedef struct fenced {
    unsigned char *all;
    size_t size;
} fenced;

enum { FENCE = 1 << 16 };

static inline void *fence(fenced *f, size_t size)
{
    f->size = size;
    f->all = aligned_alloc(64, (size + 2 * FENCE + 63) / 64 * 64);
    assert_non_null(f->all);
    memset(f->all, 0xA5, size + 2 * FENCE);
    return f->all + FENCE;
}

static inline void check_fence(fenced *f)
{
    for (int i = 0; i < FENCE; i++)
        if (f->all[i] != 0xA5 || f->all[FENCE + f->size + (size_t)i] != 0xA5)
            fail_msg("written outside of what was given");
    free(f->all);
}

static inline void fill_random(float *x, size_t n, float scale, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) x[i] = scale * random_float(&seed);
}

/* ---- a small model of tokens, and sequences in which each token follows from the one before */

enum { VOCAB = 11, BATCH = 3, TIME = 17 };

static const char *const tiny[] = {"inputs", "11",  "outputs", "11", "dim",  "16",   "layers", "2", "conv",
                                   "4",      "mlp", "2",       "lr", "0.01", "seed", "3",      NULL};
static const char *const tiny_lstm[] = {"mixer", "minlstm", "inputs", "11", "outputs", "11", "dim",
                                        "16",    "layers",  "3",      "h0", "learned", NULL};
static const char *const tiny_values[] = {"input",   "reals", "inputs", "3", "head",   "last", "loss", "mse",
                                          "outputs", "2",     "dim",    "8", "layers", "2",    NULL};

typedef struct lesson {
    int32_t ids[BATCH * TIME], target[BATCH * TIME];
    mr_batch data;
} lesson;

static inline void make_lesson(lesson *l, uint32_t seed)
{
    memset(l, 0, sizeof *l);
    for (int b = 0; b < BATCH; b++) {
        int32_t token = (random_below(&seed, VOCAB) + 4 * b) % VOCAB;
        for (int t = 0; t < TIME; t++) {
            l->ids[b * TIME + t] = token;
            token = (token * 3 + 1) % VOCAB;
            l->target[b * TIME + t] = token;
        }
    }
    l->data = (mr_batch)MR_BATCH;
    l->data.B = BATCH;
    l->data.T = TIME;
    l->data.ids = l->ids;
    l->data.target = l->target;
}

static inline void train(mr_net *net, int from, int to)
{
    lesson l;
    for (int i = from; i < to; i++) {
        make_lesson(&l, (uint32_t)i);
        OK(mr_net_train(net, &l.data, NULL, &err));
    }
}

enum { SCORES = BATCH * TIME * VOCAB };

/* The scores of lesson 5. */
static inline void forward_scores(mr_net *net, float *scores)
{
    lesson l;
    make_lesson(&l, 5);
    OK(mr_net_forward(net, &l.data, scores, SCORES, &err));
}

/* ---- all tensors of a net, one after another */

static inline size_t count_all(const mr_net *net)
{
    size_t count = 0;
    for (int i = 0; i < mr_net_tensors(net); i++) {
        mr_tensor t = MR_TENSOR;
        OK(mr_net_tensor(net, i, &t, &err));
        count += t.count;
    }
    return count;
}

static inline float *get_all(mr_net *net, mr_vector which)
{
    float *all = room(count_all(net) * sizeof *all);
    size_t at = 0;
    for (int i = 0; i < mr_net_tensors(net); i++) {
        mr_tensor t = MR_TENSOR;
        OK(mr_net_tensor(net, i, &t, &err));
        OK(mr_net_get(net, which, t.name, all + at, t.count, &err));
        at += t.count;
    }
    return all;
}

/* Are the vectors of two nets the same, to this tolerance? */
static inline void same_vectors(const char *what, mr_net *got, mr_net *want, mr_vector which, double tolerance)
{
    float *a = get_all(got, which), *b = get_all(want, which);
    assert_int_equal(count_all(got), count_all(want));
    near_floats(what, a, b, count_all(got), tolerance);
    free(a), free(b);
}

/* ---- every mixer */

/* Their names, the default one first; NULL: no more. */
static inline const char *const *mixers(void) { return mr_key_find("mixer")->choices; }

static inline mr_net *net_with(mr_context *ctx, const char *mixer)
{
    const char *const settings[] = {"mixer", mixer,  "inputs", "11",      "outputs", "11", "dim",  "16", "layers",
                                    "2",     "conv", "4",      "horizon", "32",      "lr", "0.01", NULL};
    return net_of(ctx, settings);
}

/* The same with 3 values in and 2 out at every step. */
static inline mr_net *values_net_with(mr_context *ctx, const char *mixer)
{
    const char *const settings[] = {"mixer",   mixer,  "input", "reals", "inputs", "3",      "outputs",
                                    "2",       "loss", "mse",   "dim",   "16",     "layers", "2",
                                    "horizon", "32",   "lr",    "0.01",  NULL};
    return net_of(ctx, settings);
}

#endif
