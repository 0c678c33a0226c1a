/* What the tests of ops and models share: devices, arrays on any of them as doubles, the kinds of cells, small models
 * and random batches. Random values are rounded to float, so every device starts from the same numbers. */
#ifndef MR_TESTS_SUPPORT_H
#define MR_TESTS_SUPPORT_H

#include "assert_that.h"
#include "core/mem.h"
#include "core/rng.h"
#include "model/network.h"
#include "skip_because.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Sanitizers slow a program tenfold: with them, each test chooses fewer cases. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REDUCED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define REDUCED 1
#endif
#endif
#ifndef REDUCED
#define REDUCED 0
#endif

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

/* ---- devices */

static inline mr_dev *open_device(const char *kind, int threads, const char *isa)
{
    mr_error err = {0};
    mr_dev *dev;
    if (mr_dev_open(kind, &(mr_dev_options){.threads = threads, .isa = isa}, &dev, &err))
        fail_msg("device %s %s: %s", kind, isa ? isa : "", err.text);
    assert_int_equal(dev->act_size, dev->real_size);
    return dev;
}

/* A GPU for a test, which is skipped where there is none; one that is there and cannot be opened is a failure. */
static inline mr_dev *open_test_gpu(const mr_dev_options *options)
{
    mr_error err = {0};
    mr_dev *dev;
    if (!mr_dev_open("cuda", options, &dev, &err)) return dev;
    if (!access("/dev/nvidia0", F_OK) && !strstr(err.text, "has no CUDA")) fail_msg("the GPU: %s", err.text);
    skip_because("on a GPU: %s", err.text);
    return NULL;
}

/* bf16 has 8 significant bits: rounding moves a number by at most this share of it. */
#define BF16 0x1p-8
static inline int is_bf16(const mr_dev *dev) { return dev->act_size == 2; }

static double worst_share; /* largest error as a share of its tolerance, since it was last set to 0 */

/* Runs a check on a GPU in exact fp32, or with activations in bf16. Skips the test where there is no GPU. */
static inline void on_the_gpu(void (*check)(mr_dev *), int bf16)
{
    mr_error err = {0};
    mr_dev *dev = open_test_gpu(&(mr_dev_options){.exact = 1, .bf16 = bf16});
    const char *dtype = bf16 ? "bf16" : "fp32";
    worst_share = 0;
    check(dev);
    assert_int_equal(dev->sync(dev, &err), 0);
    mr_dev_close(dev);
    print_message("on a GPU, %s: the largest error is %.3f of its tolerance\n", dtype, worst_share);
}

/* Runs a check on ref, on ref64 where it is wanted, and on the CPU with every instruction set of this machine and 1 and
 * 2 threads. MINRNN_TEST_GPU_ONLY skips the test. */
static inline void on_the_host(void (*check)(mr_dev *), int ref64)
{
    if (getenv("MINRNN_TEST_GPU_ONLY")) skip_because("MINRNN_TEST_GPU_ONLY is set");
    for (int wide = 0; wide <= ref64; wide++) {
        mr_dev *dev = open_device(wide ? "ref64" : "ref", 1, NULL);
        check(dev);
        mr_dev_close(dev);
    }
    const char *const *isas = mr_cpu_isas();
    assert_non_null(isas[0]);
    for (int i = 0; isas[i]; i++)
        for (int threads = 1; threads <= 2; threads++) {
            mr_dev *dev = open_device("cpu", threads, isas[i]);
            check(dev);
            mr_dev_close(dev);
        }
}

/* Tests of one check on several devices, so that what cannot run here counts as skipped by itself: NAME on the host and
 * NAME_on_a_gpu; with BF16 also NAME_on_a_gpu_in_bf16; with REF64 the host's devices include ref64. DEVICE_TESTS and
 * DEVICE_TESTS_BF16 list them for main(). */
#define DEVICE_TEST(name, call)                                                                                        \
    static void name(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        call;                                                                                                          \
    }
#define ON_DEVICES(name, check)                                                                                        \
    DEVICE_TEST(name, on_the_host(check, 0))                                                                           \
    DEVICE_TEST(name##_on_a_gpu, on_the_gpu(check, 0))
#define ON_DEVICES_REF64(name, check)                                                                                  \
    DEVICE_TEST(name, on_the_host(check, 1))                                                                           \
    DEVICE_TEST(name##_on_a_gpu, on_the_gpu(check, 0))
#define ON_DEVICES_BF16(name, check)                                                                                   \
    ON_DEVICES(name, check)                                                                                            \
    DEVICE_TEST(name##_on_a_gpu_in_bf16, on_the_gpu(check, 1))
#define DEVICE_TESTS(name) cmocka_unit_test(name), cmocka_unit_test(name##_on_a_gpu)
#define DEVICE_TESTS_BF16(name) DEVICE_TESTS(name), cmocka_unit_test(name##_on_a_gpu_in_bf16)

/* ---- arrays: what a test allocates is released together at its end */

typedef struct bag {
    mr_dev *dev;
    void *host[256], *device[64];
    int hosts, devices;
} bag;

static inline double *bag_host(bag *own, size_t n)
{
    assert_that(own->hosts, <, COUNT(own->host));
    double *p = mr_alloc(n, sizeof *p);
    assert_non_null(p);
    return own->host[own->hosts++] = p;
}

static inline void *bag_device(bag *own, size_t bytes)
{
    assert_that(own->devices, <, COUNT(own->device));
    void *p = own->dev->alloc(own->dev, bytes);
    assert_non_null(p);
    return own->device[own->devices++] = p;
}

static inline void bag_empty(bag *own)
{
    for (int i = 0; i < own->hosts; i++) mr_free(own->host[i]);
    for (int i = 0; i < own->devices; i++) own->dev->release(own->dev, own->device[i]);
    own->hosts = own->devices = 0;
}

typedef enum kind { ACTS, REALS } kind; /* type of device memory: mr_act or mr_real */

/* Doubles to and from device memory: exactly on ref64, rounded elsewhere. */
static inline void put_as(mr_dev *dev, kind what, void *to, const double *from, size_t n)
{
    if (dev->real_size == sizeof(double)) {
        dev->upload(dev, to, from, n * sizeof *from);
        return;
    }
    float *narrow = mr_alloc(n, sizeof *narrow);
    assert_non_null(narrow);
    for (size_t i = 0; i < n; i++) narrow[i] = (float)from[i];
    if (what == ACTS) dev->put_act(dev, to, narrow, n);
    else dev->put(dev, to, narrow, n);
    mr_free(narrow);
}

static inline void get_as(mr_dev *dev, kind what, double *to, const void *from, size_t n)
{
    if (dev->real_size == sizeof(double)) {
        dev->download(dev, to, from, n * sizeof *to);
        return;
    }
    float *narrow = mr_alloc(n, sizeof *narrow);
    assert_non_null(narrow);
    if (what == ACTS) dev->get_act(dev, narrow, from, n);
    else dev->get(dev, narrow, from, n);
    for (size_t i = 0; i < n; i++) to[i] = narrow[i];
    mr_free(narrow);
}

/* Device memory for n values, copied from the host (NULL in, NULL out), or filled with NaN
 * that an op must overwrite. */
static inline void *bag_put_as(bag *own, kind what, const double *from, size_t n)
{
    if (!from) return NULL;
    void *p = bag_device(own, n * own->dev->real_size);
    put_as(own->dev, what, p, from, n);
    return p;
}

static inline void *bag_poisoned_as(bag *own, kind what, size_t n)
{
    double *nan = mr_alloc(n, sizeof *nan);
    assert_non_null(nan);
    for (size_t i = 0; i < n; i++) nan[i] = NAN;
    void *p = bag_put_as(own, what, nan, n);
    mr_free(nan);
    return p;
}

static inline double *bag_get_as(bag *own, kind what, const void *from, size_t n)
{
    double *to = bag_host(own, n);
    get_as(own->dev, what, to, from, n);
    return to;
}

/* Shorthands for mr_real, which most tests look at. */
static inline void put_doubles(mr_dev *dev, void *to, const double *from, size_t n) { put_as(dev, REALS, to, from, n); }
static inline void get_doubles(mr_dev *dev, double *to, const void *from, size_t n) { get_as(dev, REALS, to, from, n); }
static inline void *bag_put(bag *own, const double *from, size_t n) { return bag_put_as(own, REALS, from, n); }
static inline void *bag_poisoned(bag *own, size_t n) { return bag_poisoned_as(own, REALS, n); }
static inline double *bag_get(bag *own, const void *from, size_t n) { return bag_get_as(own, REALS, from, n); }

static inline double *bag_random(bag *own, mr_rng *rng, size_t n, double scale)
{
    double *p = bag_host(own, n);
    for (size_t i = 0; i < n; i++) p[i] = (float)(scale * mr_rng_normal(rng));
    return p;
}

/* ---- comparing; written so that NaN never passes */

static inline int within(double off, double tolerance)
{
    if (off > 0 && off / tolerance > worst_share) worst_share = off / tolerance;
    return off <= tolerance;
}

static inline int near(double got, double want, double tolerance)
{
    return within(fabs(got - want), tolerance * fmax(1, fabs(want)));
}

static inline void check_near(const char *what, const double *got, const double *want, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++)
        if (!near(got[i], want[i], tolerance))
            fail_msg("%s: element %zu of %zu is %.9g, wanted %.9g within %.1e (off by %.2e)", what, i, n, got[i],
                     want[i], tolerance, got[i] - want[i]);
}

static inline double norm_of(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* ‖got − want‖ ≤ tolerance·‖want‖ + floor */
static inline void check_norm(const char *what, const double *got, const double *want, size_t n, double tolerance,
                              double floor)
{
    double off = 0;
    for (size_t i = 0; i < n; i++) off += (got[i] - want[i]) * (got[i] - want[i]);
    if (!within(sqrt(off), tolerance * norm_of(want, n) + floor))
        fail_msg("%s: off by %.3g in norm, wanted %.1e of %.6g", what, sqrt(off), tolerance, norm_of(want, n));
}

/* ---- the kinds of cells */

typedef struct cell_form {
    const char *name;
    mr_cell cell;
} cell_form;

#define FORM(name, ...)                                                                                                \
    {                                                                                                                  \
        name, { __VA_ARGS__ }                                                                                          \
    }
static const cell_form forms[] = {
    FORM("mingru positive", .kind = MR_MINGRU, .candidate = MR_POSITIVE),
    FORM("mingru positive log", .kind = MR_MINGRU, .candidate = MR_POSITIVE, .scan = MR_SCAN_LOG),
    FORM("mingru linear", .kind = MR_MINGRU, .candidate = MR_LINEAR),
    FORM("mingru tanh", .kind = MR_MINGRU, .candidate = MR_TANH),
    FORM("minlstm positive", .kind = MR_MINLSTM, .candidate = MR_POSITIVE),
    FORM("minlstm positive log", .kind = MR_MINLSTM, .candidate = MR_POSITIVE, .scan = MR_SCAN_LOG),
    FORM("minlstm linear", .kind = MR_MINLSTM, .candidate = MR_LINEAR),
    FORM("minlstm tanh", .kind = MR_MINLSTM, .candidate = MR_TANH),
    FORM("minlstm normalised positive", .kind = MR_MINLSTM, .candidate = MR_POSITIVE, .normalize = 1),
    FORM("minlstm normalised positive log", .kind = MR_MINLSTM, .candidate = MR_POSITIVE, .normalize = 1,
         .scan = MR_SCAN_LOG),
    FORM("minlstm normalised linear", .kind = MR_MINLSTM, .candidate = MR_LINEAR, .normalize = 1),
    FORM("minlstm normalised tanh", .kind = MR_MINLSTM, .candidate = MR_TANH, .normalize = 1),
    FORM("mingru signed positive", .kind = MR_MINGRU, .candidate = MR_POSITIVE, .transition = MR_TRANSITION_SIGNED),
    FORM("mingru signed linear", .kind = MR_MINGRU, .candidate = MR_LINEAR, .transition = MR_TRANSITION_SIGNED),
    FORM("mingru signed tanh", .kind = MR_MINGRU, .candidate = MR_TANH, .transition = MR_TRANSITION_SIGNED),
    FORM("minlstm signed linear", .kind = MR_MINLSTM, .candidate = MR_LINEAR, .transition = MR_TRANSITION_SIGNED),
    FORM("minlstm signed tanh", .kind = MR_MINLSTM, .candidate = MR_TANH, .transition = MR_TRANSITION_SIGNED),
    FORM("minlstm signed normalised positive", .kind = MR_MINLSTM, .candidate = MR_POSITIVE, .normalize = 1,
         .transition = MR_TRANSITION_SIGNED),
    FORM("minlstm signed normalised linear", .kind = MR_MINLSTM, .candidate = MR_LINEAR, .normalize = 1,
         .transition = MR_TRANSITION_SIGNED),
};
#undef FORM

/* ---- models */

static inline mr_config config_with(const char *mixer, const mr_interface *interface)
{
    mr_config c;
    mr_options_default(mr_config_options, &c);
    mr_config_set_interface(&c, interface);
    for (c.mixer = 0; mr_mixer_names[c.mixer] && strcmp(mr_mixer_names[c.mixer], mixer); c.mixer++) continue;
    if (!mr_mixer_names[c.mixer]) fail_msg("there is no mixer %s", mixer);
    return c;
}

static inline mr_config config_of(const mr_cell *cell, const mr_interface *interface)
{
    mr_config c = config_with(cell->kind == MR_MINGRU ? "mingru" : "minlstm", interface);
    c.candidate = cell->candidate;
    c.scan = cell->scan;
    c.normalize_gates = cell->normalize;
    c.transition = cell->transition;
    return c;
}

/* The kinds of models: the kinds of cells, then the mixers whose models are not tested elsewhere: a new mixer is
 * one of them. */
static const char *const tested_elsewhere[] = {
    "mingru",    "minlstm", /* the kinds of cells */
    "gru",       "lstm",    /* test_rnn.c, test_rnn_models.c */
    "attention",            /* test_attention.c */
};
enum {
#define MIXER(name) +1
    MODEL_FORMS = COUNT(forms) - COUNT(tested_elsewhere)
#include "model/mixers.def"
#undef MIXER
};

static inline int is_cell(int i) { return i < COUNT(forms); }

static inline int is_tested_elsewhere(const char *mixer)
{
    for (int i = 0; i < COUNT(tested_elsewhere); i++)
        if (!strcmp(tested_elsewhere[i], mixer)) return 1;
    return 0;
}

static inline const char *model_name(int i)
{
    if (is_cell(i)) return forms[i].name;
    const char *const *mixer = mr_mixer_names;
    for (int left = i - COUNT(forms); *mixer && (is_tested_elsewhere(*mixer) || left--);) mixer++;
    if (!*mixer) fail_msg("tested_elsewhere names a mixer twice, or one that does not exist");
    return *mixer;
}

static inline mr_config model_config(int i, const mr_interface *interface)
{
    if (is_cell(i)) return config_of(&forms[i].cell, interface);
    mr_config c = config_with(model_name(i), interface);
    if (!strcmp(model_name(i), "mamba")) c.states = 5;
    return c;
}

/* A planned model with its step set. Weights are the initial ones plus noise, so that no
 * norm or bias stays at 1 or 0. */
static inline mr_model *make_model(const mr_config *config, mr_dev *dev, int B, int T, int train)
{
    mr_error err = {0};
    mr_model *model;
    if (mr_model_new(config, dev, MR_DECAY_MATRICES, &model, &err) || mr_model_plan(model, B, T, train, &err))
        fail_msg("%s", err.text);
    const mr_params *params = mr_model_params(model);
    mr_rng rng = mr_rng_at(1, MR_STREAM_SAMPLE, 0, 0);
    float *weights = mr_alloc(params->total, sizeof *weights);
    assert_non_null(weights);
    mr_params_init(params, 7, 100, 1, weights);
    for (int i = 0; i < params->count; i++)
        for (size_t j = 0; j < params->list[i].count; j++)
            weights[params->list[i].offset + j] += (float)(0.1 * mr_rng_normal(&rng));
    mr_model_put(model, MR_WEIGHTS, weights);
    mr_free(weights);
    mr_model_set_step(model, &(mr_step){.seed = 5,
                                        .step = 3,
                                        .micro = 1,
                                        .lr = 1e-2,
                                        .beta1 = 0.9,
                                        .beta2 = 0.99,
                                        .eps = 1e-8,
                                        .weight_decay = 0.1,
                                        .clip = 1,
                                        .bias1 = 0.1,
                                        .bias2 = 0.01,
                                        .decoupled = 1});
    return model;
}

static inline mr_state *make_state(mr_model *model, int B)
{
    mr_state *state;
    assert_int_equal(mr_state_new(model, B, &state, NULL), 0);
    return state;
}

/* A batch of random inputs and targets; some targets do not count, nor do those beyond a row's length. */
static inline mr_batch make_batch(const mr_interface *interface, int B, int T, int resets, int ragged, uint32_t seed)
{
    mr_batch batch;
    mr_rng rng = mr_rng_at(seed, MR_STREAM_SAMPLE, 1, 0);
    assert_int_equal(mr_batch_new(&batch, interface, B, T), 0);
    batch.B = B;
    batch.T = T;
    batch.reset = mr_batch_resets(&batch);
    batch.length = mr_batch_lengths(&batch);
    size_t N = (size_t)B * (size_t)T, rows = mr_batch_rows(&batch, interface->head),
           outputs = (size_t)interface->outputs;
    for (size_t i = 0; i < N; i++) batch.reset[i] = mr_rng_below(&rng, 5) == 0;
    for (int b = 0; b < B; b++) batch.length[b] = b == 0 ? T : 1 + (int)mr_rng_below(&rng, (uint32_t)T);
    for (size_t i = 0; batch.ids && i < N; i++) batch.ids[i] = (int32_t)mr_rng_below(&rng, (uint32_t)interface->inputs);
    for (size_t i = 0; batch.values && i < N * (size_t)interface->inputs; i++)
        batch.values[i] = (float)mr_rng_normal(&rng);
    for (size_t r = 0; r < rows; r++) {
        size_t t = interface->head == MR_HEAD_TOKEN ? r % (size_t)T : 0,
               b = interface->head == MR_HEAD_TOKEN ? r / (size_t)T : r;
        int counts = r == 0 || (mr_rng_below(&rng, 6) > 0 && !(ragged && (int)t >= batch.length[b]));
        if (batch.target) batch.target[r] = counts ? (int32_t)mr_rng_below(&rng, (uint32_t)interface->outputs) : -1;
        else batch.mask[r] = (uint8_t)counts;
        for (size_t c = 0; batch.target_values && c < outputs; c++)
            batch.target_values[r * outputs + c] = (float)mr_rng_normal(&rng);
        batch.counted += counts;
    }
    if (!resets) batch.reset = NULL;
    if (!ragged) batch.length = NULL;
    return batch;
}

/* Tokens at … at + n − 1 of every row of a batch, as a batch of its own. */
static inline mr_batch cut_batch(const mr_batch *from, const mr_interface *interface, int at, int n)
{
    mr_batch to = make_batch(interface, from->B, n, from->reset != NULL, 0, 1);
    to.counted = 0;
    for (int b = 0; b < from->B; b++) {
        size_t source = (size_t)b * (size_t)from->T + (size_t)at, place = (size_t)b * (size_t)n;
        memcpy(to.ids + place, from->ids + source, (size_t)n * sizeof *to.ids);
        if (from->reset) memcpy(to.reset + place, from->reset + source, (size_t)n);
        memcpy(to.target + place, from->target + source, (size_t)n * sizeof *to.target);
        for (int t = 0; t < n; t++) to.counted += to.target[place + (size_t)t] >= 0;
    }
    return to;
}

#endif
