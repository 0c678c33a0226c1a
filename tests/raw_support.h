/* Raw calls of any dtype on memory of any device; the tests pass and get arrays of doubles. */
#ifndef MR_TESTS_RAW_SUPPORT_H
#define MR_TESTS_RAW_SUPPORT_H

#include "api_support.h"

#define UNIT 0x1p-8 /* bf16 rounds by at most this share of a number */

/* A scan with a and b given, or a cell; D 0: without W. */
typedef struct shape {
    const char *name;
    int given, B, T, D, H;
    mr_cell_kind kind;
    mr_candidate candidate;
    mr_scan scan;
    int normalize, masked, carried; /* carried: from h_in, else from h_init */
} shape;

enum {
    X,
    W,
    BIAS,
    PRE,
    A,
    B_,
    H_IN,
    H_INIT,
    DH,
    DH_OUT,
    INPUTS,
    H = INPUTS,
    H_OUT,
    DX,
    DW,
    DBIAS,
    DPRE,
    DA,
    DB,
    DH_IN,
    DH_INIT,
    ARRAYS
};

static const struct {
    const char *name;
    int act;
} array[ARRAYS] = {
    [X] = {"x", 1},   [W] = {"W", 0},           [BIAS] = {"bias", 0},   [PRE] = {"pre", 1},
    [A] = {"a", 1},   [B_] = {"b", 1},          [H_IN] = {"h_in", 0},   [H_INIT] = {"h_init", 0},
    [DH] = {"dh", 1}, [DH_OUT] = {"dh_out", 0}, [H] = {"h", 1},         [H_OUT] = {"h_out", 0},
    [DX] = {"dx", 1}, [DW] = {"dW", 0},         [DBIAS] = {"dbias", 0}, [DPRE] = {"dpre", 1},
    [DA] = {"da", 1}, [DB] = {"db", 1},         [DH_IN] = {"dh_in", 0}, [DH_INIT] = {"dh_init", 0},
};

static inline size_t count_of(const shape *s, int which)
{
    const size_t tokens = (size_t)s->B * (size_t)s->T, states = (size_t)s->B * (size_t)s->H,
                 wide = (size_t)s->H * (s->kind == MR_MINGRU ? 2 : 3);
    switch (which) {
    case X:
    case DX: return tokens * (size_t)s->D;
    case W:
    case DW: return wide * (size_t)s->D;
    case BIAS:
    case DBIAS: return s->D ? wide : 0;
    case PRE:
    case DPRE: return s->D || s->given ? 0 : tokens * wide;
    case A:
    case B_:
    case DA:
    case DB: return s->given ? tokens * (size_t)s->H : 0;
    case H_IN: return s->carried ? states : 0;
    case H_INIT:
    case DH_INIT: return s->carried || s->given ? 0 : (size_t)s->H;
    case H:
    case DH: return tokens * (size_t)s->H;
    default: return states;
    }
}

/* A second implementation of bf16 rounding: to nearest, ties to even. */
static inline uint16_t to_bf16(double x)
{
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(f)) return 0x7fc0;
    const uint32_t rest = bits & 0xffff, up = rest > 0x8000 || (rest == 0x8000 && bits >> 16 & 1);
    return (uint16_t)((bits >> 16) + up);
}

static inline double from_bf16(uint16_t x)
{
    const uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline size_t element_size(mr_dtype dtype, int which)
{
    return dtype == MR_F64 ? sizeof(double) : dtype == MR_BF16 && array[which].act ? sizeof(uint16_t) : sizeof(float);
}

static inline void encode(mr_dtype dtype, int which, void *to, const double *from, size_t n)
{
    const size_t size = element_size(dtype, which);
    for (size_t i = 0; i < n; i++)
        if (size == 8) ((double *)to)[i] = from[i];
        else if (size == 4) ((float *)to)[i] = (float)from[i];
        else ((uint16_t *)to)[i] = to_bf16(from[i]);
}

static inline void decode(mr_dtype dtype, int which, double *to, const void *from, size_t n)
{
    const size_t size = element_size(dtype, which);
    for (size_t i = 0; i < n; i++)
        to[i] = size == 8   ? ((const double *)from)[i]
                : size == 4 ? ((const float *)from)[i]
                            : from_bf16(((const uint16_t *)from)[i]);
}

/* ---- values ---- */

typedef struct values {
    double *of[ARRAYS];
} values;

static inline values new_values(const shape *s)
{
    values v;
    for (int i = 0; i < ARRAYS; i++) v.of[i] = calloc(count_of(s, i) + 1, sizeof(double));
    return v;
}

static inline void free_values(values *v)
{
    for (int i = 0; i < ARRAYS; i++) free(v->of[i]);
}

/* Numbers that bf16 can represent, so that every dtype gets the same. */
static inline values draw_values(const shape *s, uint32_t seed)
{
    values v = new_values(s);
    for (int i = 0; i < INPUTS; i++) {
        const double scale = i == W ? 2 / sqrt(s->D + 1) : i == A ? 0.95 : 1;
        for (size_t k = 0; k < count_of(s, i); k++) v.of[i][k] = from_bf16(to_bf16(scale * random_float(&seed)));
    }
    return v;
}

/* ---- calls ---- */

typedef struct memory {
    void *(*take)(size_t bytes);
    void (*copy)(void *to, const void *from, size_t bytes);
    void (*release)(void *p);
} memory;

typedef struct raw_run {
    mr_context *ctx;
    const memory *in;
    shape s;
    mr_dtype dtype;
    void *at[ARRAYS];
    uint8_t *reset;
    int32_t *length;
    mr_scan_args scan;
    mr_cell_args cell;
} raw_run;

static inline void point_scan(raw_run *r)
{
    const shape *s = &r->s;
    r->scan = (mr_scan_args)MR_SCAN_ARGS;
    mr_scan_args *a = &r->scan;
    a->dtype = r->dtype, a->B = s->B, a->T = s->T, a->H = s->H, a->reset = r->reset, a->length = r->length;
    a->a = r->at[A], a->b = r->at[B_], a->h_in = r->at[H_IN], a->h = r->at[H], a->h_out = r->at[H_OUT],
    a->dh = r->at[DH];
    a->dh_out = r->at[DH_OUT], a->da = r->at[DA], a->db = r->at[DB], a->dh_in = r->at[DH_IN];
}

static inline void point_cell(raw_run *r)
{
    const shape *s = &r->s;
    r->cell = (mr_cell_args)MR_CELL_ARGS;
    mr_cell_args *a = &r->cell;
    a->dtype = r->dtype, a->kind = s->kind, a->candidate = s->candidate, a->scan = s->scan, a->normalize = s->normalize;
    a->B = s->B, a->T = s->T, a->D = s->D, a->H = s->H, a->reset = r->reset, a->length = r->length;
    a->x = r->at[X], a->W = r->at[W], a->bias = r->at[BIAS], a->pre = r->at[PRE], a->h_in = r->at[H_IN],
    a->h_init = r->at[H_INIT];
    a->h = r->at[H], a->h_out = r->at[H_OUT], a->dh = r->at[DH], a->dh_out = r->at[DH_OUT], a->dx = r->at[DX],
    a->dW = r->at[DW];
    a->dbias = r->at[DBIAS], a->dpre = r->at[DPRE], a->dh_in = r->at[DH_IN], a->dh_init = r->at[DH_INIT];
}

/* Lengths 0 … T and resets here and there, where the shape is masked. */
static inline void put_masks(raw_run *r)
{
    const size_t B = (size_t)r->s.B, T = (size_t)r->s.T;
    uint8_t *reset = calloc(B, T);
    int32_t *length = calloc(B, sizeof *length);
    for (size_t i = 0; i < B * T; i++) reset[i] = i % 7 == 3 || i % 11 == 5;
    for (size_t b = 0; b < B; b++) length[b] = (int32_t)(T - b * 3 % (T + 1));
    r->reset = r->in->take(B * T), r->length = r->in->take(B * sizeof *length);
    r->in->copy(r->reset, reset, B * T), r->in->copy(r->length, length, B * sizeof *length);
    free(reset), free(length);
}

static inline raw_run new_run(mr_context *ctx, const memory *in, const shape *s, mr_dtype dtype, void *stream)
{
    raw_run r = {.ctx = ctx, .in = in, .s = *s, .dtype = dtype};
    for (int i = 0; i < ARRAYS; i++)
        if (count_of(s, i)) r.at[i] = in->take(count_of(s, i) * element_size(dtype, i));
    if (s->masked) put_masks(&r);
    point_scan(&r), point_cell(&r);
    r.scan.stream = r.cell.stream = stream;
    r.scan.workspace_size = s->given ? mr_scan_workspace(ctx, &r.scan) : 0;
    r.cell.workspace_size = s->given ? 0 : mr_cell_workspace(ctx, &r.cell);
    assert_that(r.scan.workspace_size + r.cell.workspace_size, >, 0);
    r.cell.saved_size = s->given ? 0 : mr_cell_saved(ctx, &r.cell);
    r.scan.workspace = r.cell.workspace = in->take(r.scan.workspace_size + r.cell.workspace_size);
    if (r.cell.saved_size) r.cell.saved = in->take(r.cell.saved_size);
    return r;
}

static inline void free_run(raw_run *r)
{
    for (int i = 0; i < ARRAYS; i++)
        if (r->at[i]) r->in->release(r->at[i]);
    if (r->reset) r->in->release(r->reset), r->in->release(r->length);
    if (r->cell.saved) r->in->release(r->cell.saved);
    r->in->release(r->scan.workspace);
}

/* Uploads arrays first … last−1; outputs among them are set to 0, from which accumulators start. */
static inline void put_arrays(raw_run *r, const values *v, int first, int last)
{
    for (int i = first; i < last; i++) {
        const size_t n = count_of(&r->s, i);
        void *bytes = calloc(n + 1, sizeof(double));
        if (i < INPUTS) encode(r->dtype, i, bytes, v->of[i], n);
        if (n) r->in->copy(r->at[i], bytes, n * element_size(r->dtype, i));
        free(bytes);
    }
}

static inline void get_outputs(const raw_run *r, values *v)
{
    for (int i = INPUTS; i < ARRAYS; i++) {
        const size_t n = count_of(&r->s, i);
        void *bytes = calloc(n + 1, sizeof(double));
        if (n) r->in->copy(bytes, r->at[i], n * element_size(r->dtype, i));
        decode(r->dtype, i, v->of[i], bytes, n);
        free(bytes);
    }
}

static inline void run_forward(raw_run *r)
{
    if (r->s.given) OK(mr_scan_forward(r->ctx, &r->scan, &err));
    else OK(mr_cell_forward(r->ctx, &r->cell, &err));
}

static inline void run_backward(raw_run *r)
{
    if (r->s.given) OK(mr_scan_backward(r->ctx, &r->scan, &err));
    else OK(mr_cell_backward(r->ctx, &r->cell, &err));
}

/* Forward and backward of a cell, each with the bytes that it asks for by itself; beyond them nothing is written. */
static inline void run_with_least(raw_run *r)
{
    enum { BEYOND = 256 };
    unsigned char after[BEYOND], wanted[BEYOND];
    mr_cell_args *a = &r->cell;
    void *const whole = a->workspace;
    const size_t most = a->workspace_size;
    memset(wanted, 0xA5, BEYOND);
    for (int backward = 0; backward < 2; backward++) {
        const size_t least = (backward ? mr_cell_backward_workspace : mr_cell_forward_workspace)(r->ctx, a);
        assert_that(least, >, 0);
        assert_that(least, <=, most);
        char *room = r->in->take(least + BEYOND);
        r->in->copy(room + least, wanted, BEYOND);
        a->workspace = room, a->workspace_size = least - 64;
        FAILS(MR_EINVAL, "workspace", (backward ? mr_cell_backward : mr_cell_forward)(r->ctx, a, &err));
        a->workspace_size = least;
        backward ? run_backward(r) : run_forward(r);
        if (!r->cell.stream) OK(mr_context_wait(r->ctx, &err));
        r->in->copy(after, room + least, BEYOND);
        assert_memory_equal(after, wanted, BEYOND);
        r->in->release(room);
    }
    a->workspace = whole, a->workspace_size = most;
}

static void *host_take(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    assert_non_null(p);
    memset(p, 0xff, bytes); /* NaN, whatever the type */
    return p;
}

static inline void host_copy(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }

static const memory host = {host_take, host_copy, free};

/* Runs forward and backward. */
static inline void run_on_host(mr_context *ctx, const shape *s, mr_dtype dtype, values *v)
{
    raw_run r = new_run(ctx, &host, s, dtype, NULL);
    put_arrays(&r, v, 0, ARRAYS);
    run_forward(&r);
    run_backward(&r);
    get_outputs(&r, v);
    free_run(&r);
}

/* By ref, in double. The backward of a bf16 call gets a rounded h, so the one in double gets the same rounded h. */
static inline void exact_values(mr_context *ref, const shape *s, const values *rounded, values *v)
{
    raw_run r = new_run(ref, &host, s, MR_F64, NULL);
    put_arrays(&r, v, 0, ARRAYS);
    run_forward(&r);
    get_outputs(&r, v);
    if (rounded) memcpy(r.at[H], rounded->of[H], count_of(s, H) * sizeof(double));
    run_backward(&r);
    values after = new_values(s);
    get_outputs(&r, &after);
    for (int i = H_OUT + 1; i < ARRAYS; i++) memcpy(v->of[i], after.of[i], count_of(s, i) * sizeof(double));
    free_values(&after);
    free_run(&r);
}

/* Tolerance: each, as a share of the number itself; all, as a share of the array's largest. */
static inline void near_values(const char *where, const shape *s, const values *got, const values *want, int which,
                               double each, double all)
{
    double most = 0;
    for (size_t i = 0; i < count_of(s, which); i++) most = fmax(most, fabs(want->of[which][i]));
    for (size_t i = 0; i < count_of(s, which); i++) {
        const double g = got->of[which][i], w = want->of[which][i];
        if (!(fabs(g - w) <= each * fabs(w) + all * most))
            fail_msg("%s, %s: %s[%zu] is %.9g, wanted %.9g (the largest is %g)", where, s->name, array[which].name, i,
                     g, w, most);
    }
}

static inline void same_values(const char *where, const shape *s, const values *got, const values *want)
{
    for (int which = INPUTS; which < ARRAYS; which++)
        for (size_t i = 0; i < count_of(s, which); i++)
            if (memcmp(&got->of[which][i], &want->of[which][i], sizeof(double)))
                fail_msg("%s, %s: %s[%zu] is %.17g, wanted the same as %.17g", where, s->name, array[which].name, i,
                         got->of[which][i], want->of[which][i]);
}

#endif
