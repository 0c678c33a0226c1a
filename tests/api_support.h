/* What the tests of the public header share: nothing here knows the inside of the library. */
#ifndef MR_TESTS_API_SUPPORT_H
#define MR_TESTS_API_SUPPORT_H

#include <minrnn_experimental.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Calls that must succeed, with the sentence when they do not; and calls that must fail with a status and a word. */
#define OK(call)                                                                   \
    do {                                                                           \
        mr_error err = {0};                                                        \
        int status_ = (call);                                                      \
        if (status_) fail_msg("%s: %d: %s", #call, status_, err.text);             \
    } while (0)

#define FAILS(wanted, word, call)                                                                            \
    do {                                                                                                     \
        mr_error err = {0};                                                                                  \
        int status_ = (call);                                                                                \
        if (status_ != (wanted) || !strstr(err.text, word)) fail_msg("%s: %d: %s", #call, status_, err.text); \
        assert_int_equal(err.status, wanted);                                                                \
    } while (0)

static inline mr_context *context_on(const char *device)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx;
    options.device = device;
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

static inline int32_t random_below(uint32_t *state, int n) { return (int32_t)((random_float(state) + 1) * 0.49999f * (float)n); }

static inline void *room(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

static inline void near_floats(const char *what, const float *got, const float *want, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= tolerance * fmax(1, fabs((double)want[i]))))
            fail_msg("%s: element %zu of %zu is %.9g, wanted %.9g", what, i, n, (double)got[i], (double)want[i]);
}

/* Memory that ends where it ends: bytes on both sides must stay. */
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
        if (f->all[i] != 0xA5 || f->all[FENCE + f->size + (size_t)i] != 0xA5) fail_msg("written outside of what was given");
    free(f->all);
}

static inline void fill(float *x, size_t n, float scale, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) x[i] = scale * random_float(&seed);
}

#endif
