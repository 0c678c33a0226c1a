/* The backward of GRU and LSTM, see rnn.cuh. From the last token to the first: each block publishes the gates'
 * gradients of its own units, then multiplies all units' gradients with its columns of W_hh. */
#include "ops/cuda/rnn.cuh"

/* BIAS_SUMS: floats at the start of scratch for sums over rows */
enum { UNITS = BACK * LANES, BIAS_SUMS = 1056 * 32 };

/* A row and a unit in the tile. */
struct place {
    int b, unit;
    bool valid, real, fresh;
    size_t token, at; /* at: in [B, H] */
};

static __device__ __forceinline__ place place_of(const rnn_work &w, int b, int unit, int t)
{
    place e;
    e.b = b, e.unit = unit, e.token = (size_t)b * w.T + t, e.at = (size_t)b * w.H + unit;
    e.valid = b < w.B && unit < w.H;
    e.real = e.valid && (!w.length || t < w.length[b]);
    e.fresh = e.real && ((t == 0 && w.starts_fresh) || (w.reset && w.reset[e.token]));
    return e;
}

template <class ACT> static __device__ __forceinline__ ACT *gate_at(const rnn_work &w, const place &e, int gate)
{
    return (ACT *)w.pre + (e.token * w.gates + gate) * w.H + e.unit;
}

/* h (or c) before the token. */
template <class ACT>
static __device__ __forceinline__ float before_of(const rnn_work &w, const place &e, int t, int of_c)
{
    if (e.fresh) return w.fresh[of_c * w.width + e.unit];
    if (t == 0) return w.h_in[(size_t)e.b * w.state + of_c * w.H + e.unit];
    return load((const ACT *)(of_c ? w.extra : w.h) + (e.token - 1) * w.H + e.unit);
}

/* Stores the gradients of r (0), z (1) or s_n (2) for the product with W_hh, and for the gradient of W_hh. */
template <class ACT, int KIND>
static __device__ __forceinline__ void keep(const rnn_work &w, const place &e, int gate, float v, float *round)
{
    ACT *ds = (ACT *)w.ds;
    if (KIND == MR_GRU_BEFORE && gate == 2) {
        w.second_round[(size_t)e.b * w.second_width + e.unit] = v;
        store(ds + (size_t)w.B * w.T * 2 * w.H + e.token * w.H + e.unit, v);
        return;
    }
    round[(size_t)e.b * w.width + gate * w.H + e.unit] = v;
    if (KIND != MR_LSTM) store(ds + (e.token * (KIND == MR_GRU_AFTER ? 3 : 2) + gate) * w.H + e.unit, v);
}

template <class ACT> static __device__ void lstm_gates(const rnn_work &w, const place &e, int t, float *round)
{
    const float i = load(gate_at<ACT>(w, e, 0)), f = load(gate_at<ACT>(w, e, 1)), g = load(gate_at<ACT>(w, e, 2)),
                o = load(gate_at<ACT>(w, e, 3));
    const float c = tanhf(load((const ACT *)w.extra + e.token * w.H + e.unit));
    const float dh = load((const ACT *)w.dh + e.token * w.H + e.unit) + w.carry[e.at],
                dc = w.c[e.at] + dh * o * (1 - c * c);
    const float d[4] = {dc * g * i * (1 - i), dc * before_of<ACT>(w, e, t, 1) * f * (1 - f), dc * i * (1 - g * g),
                        dh * c * o * (1 - o)};
    w.carry[e.at] = 0;
    w.c[e.at] = dc * f;
    for (int k = 0; k < 4; k++) {
        store(gate_at<ACT>(w, e, k), d[k]);
        keep<ACT, MR_LSTM>(w, e, k, d[k], round);
    }
}

template <class ACT, int KIND> static __device__ void gru_gates(const rnn_work &w, const place &e, int t, float *round)
{
    const float r = load(gate_at<ACT>(w, e, 0)), z = load(gate_at<ACT>(w, e, 1)), n = load(gate_at<ACT>(w, e, 2));
    const float dh = load((const ACT *)w.dh + e.token * w.H + e.unit) + w.carry[e.at];
    const float dn = dh * (1 - z) * (1 - n * n), dz = dh * (before_of<ACT>(w, e, t, 0) - n) * z * (1 - z);
    w.carry[e.at] = dh * z;
    store(gate_at<ACT>(w, e, 1), dz);
    store(gate_at<ACT>(w, e, 2), dn);
    keep<ACT, KIND>(w, e, 1, dz, round);
    keep<ACT, KIND>(w, e, 2, KIND == MR_GRU_AFTER ? dn * r : dn, round);
    if (KIND != MR_GRU_AFTER) return;
    const float dr = dn * load((const ACT *)w.extra + e.token * w.H + e.unit) * r * (1 - r);
    store(gate_at<ACT>(w, e, 0), dr);
    keep<ACT, KIND>(w, e, 0, dr, round);
}

/* Padding: publishes zeros and keeps the carry. */
template <class ACT, int KIND> static __device__ void no_gates(const rnn_work &w, const place &e, float *round)
{
    for (int g = 0; g < w.gates; g++) {
        store(gate_at<ACT>(w, e, g), 0.0f);
        keep<ACT, KIND>(w, e, g, 0.0f, round);
    }
}

template <class ACT, int KIND>
static __device__ __forceinline__ void gates_of(const rnn_work &w, int row0, int group, int t, float *round)
{
    const place e = place_of(w, row0 + threadIdx.x / UNITS, group * UNITS + threadIdx.x % UNITS, t);
    if (!e.valid) return;
    if (!e.real) no_gates<ACT, KIND>(w, e, round);
    else if constexpr (KIND == MR_LSTM) lstm_gates<ACT>(w, e, t, round);
    else gru_gates<ACT, KIND>(w, e, t, round);
}

/* gru before: computes the gradient of r from that of r·h'. */
template <class ACT>
static __device__ void reset_gate(const rnn_work &w, const float4 *packed, int row0, int group, int t, float *round,
                                  float4 *shared)
{
    float s[BACK];
    tile_sums<BACK>(w.second, packed, w.second_round + (size_t)row0 * w.second_width, w.second_width,
                    min((int)TILE, w.B - row0), 0, w.fresh, shared, s);
    if (threadIdx.x >= TILE * LANES) return;
    for (int k = 0; k < BACK; k++) {
        const place e = place_of(w, row0 + threadIdx.x / LANES, group * UNITS + k * LANES + threadIdx.x % LANES, t);
        if (!e.real) continue;
        const float r = load(gate_at<ACT>(w, e, 0)), dr = s[k] * before_of<ACT>(w, e, t, 0) * r * (1 - r);
        w.carry[e.at] += s[k] * r;
        store(gate_at<ACT>(w, e, 0), dr);
        keep<ACT, MR_GRU_BEFORE>(w, e, 0, dr, round);
    }
}

/* The gradient of the state before the token. At the start of a sequence it goes to h_init, and nothing crosses. */
template <int KIND>
static __device__ void state_gradient(const rnn_work &w, const float4 *packed, int row0, int group, int t,
                                      const float *round, float4 *shared)
{
    float s[BACK];
    tile_sums<BACK>(w.first, packed, round + (size_t)row0 * w.width, w.width, min((int)TILE, w.B - row0), 0, w.fresh,
                    shared, s);
    if (threadIdx.x >= TILE * LANES) return;
    for (int k = 0; k < BACK; k++) {
        const place e = place_of(w, row0 + threadIdx.x / LANES, group * UNITS + k * LANES + threadIdx.x % LANES, t);
        if (!e.real) continue;
        const float all = w.carry[e.at] + s[k];
        w.carry[e.at] = e.fresh ? 0.0f : all;
        if (!e.fresh) continue;
        if (w.to_start) w.to_start[(size_t)e.b * w.state + e.unit] += all;
        if (KIND != MR_LSTM) continue;
        if (w.to_start) w.to_start[(size_t)e.b * w.state + w.H + e.unit] += w.c[e.at];
        w.c[e.at] = 0;
    }
}

template <class ACT, int KIND> static __global__ void __launch_bounds__(THREADS) backward(rnn_work w)
{
    extern __shared__ float4 shared[];
    const int slice = WARPS * w.first.k4 * BACK * LANES, second_slice = WARPS * w.second.k4 * BACK * LANES;
    float4 *room = shared + WARPS * TILE * STAGE_ROW + WARPS * TILE * BACK * LANES / 4;
    const float4 *first = own_matrix(w, w.first, BACK, room), *second = NULL;
    if (KIND == MR_GRU_BEFORE) second = own_matrix(w, w.second, BACK, room + w.groups * slice);
    const int row0 = blockIdx.y * w.tiles * TILE, row_end = min(w.B, row0 + w.tiles * TILE);
    const int group0 = blockIdx.x * w.groups, groups = min(w.groups, w.first.groups - group0);
    unsigned turn = 0, *arrived = w.arrived + blockIdx.y;
    for (int t = w.T - 1; t >= 0; t--) {
        float *round = w.round + (size_t)(t & 1) * w.B * w.width;
        __syncthreads();
        for (int row = row0; row < row_end; row += TILE)
            for (int g = 0; g < groups; g++) gates_of<ACT, KIND>(w, row, group0 + g, t, round);
        wait_for_rows(arrived, &turn);
        if constexpr (KIND == MR_GRU_BEFORE) {
            for (int row = row0; row < row_end; row += TILE)
                for (int g = 0; g < groups; g++)
                    reset_gate<ACT>(w, second + (size_t)g * second_slice, row, group0 + g, t, round, shared);
            wait_for_rows(arrived, &turn);
        }
        for (int row = row0; row < row_end; row += TILE)
            for (int g = 0; g < groups; g++)
                state_gradient<KIND>(w, first + (size_t)g * slice, row, group0 + g, t, round, shared);
    }
}

/* ---- around the kernel */

/* Loads the gradient of the final state, and, in row B, the state that a sequence starts from. */
static __global__ void enter(rnn_work w, const float *dh_out, const float *h_init, float *fresh)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y, S = w.state;
    if (k >= S) return;
    const int of_c = k >= w.H, at = of_c ? k - w.H : k;
    if (b == w.B) fresh[of_c * w.width + at] = h_init ? h_init[k] : 0.0f;
    else (of_c ? w.c : w.carry)[(size_t)b * w.H + at] = dh_out ? dh_out[(size_t)b * S + k] : 0.0f;
}

static __global__ void leave_state(rnn_work w, float *dh_in)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
    if (k < w.state)
        dh_in[(size_t)b * w.state + k] = k < w.H ? w.carry[(size_t)b * w.H + k] : w.c[(size_t)b * w.H + k - w.H];
}

/* Collects the states that W_hh was multiplied with. */
template <class ACT> static __global__ void shift(rnn_work w, ACT *states)
{
    const size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x, token = i / w.H;
    if (token >= (size_t)w.B * w.T) return;
    const int b = (int)(token / w.T), t = (int)(token % w.T);
    const place e = place_of(w, b, (int)(i % w.H), t);
    store(states + i, e.real ? before_of<ACT>(w, e, t, 0) : 0.0f);
}

template <class ACT> static void shift_states(mr_cuda *c, const rnn_work &w, void *states)
{
    shift<ACT><<<(unsigned)div_up((size_t)w.B * w.T * w.H, 256), 256, 0, c->stream>>>(w, (ACT *)states);
    LAUNCHED(c, "rnn shift");
}

template <class ACT> static const void *kernel_of(mr_rnn kind)
{
    if (kind == MR_LSTM) return (const void *)backward<ACT, MR_LSTM>;
    return kind == MR_GRU_AFTER ? (const void *)backward<ACT, MR_GRU_AFTER>
                                : (const void *)backward<ACT, MR_GRU_BEFORE>;
}

/* Lays out scratch; base NULL: only counts bytes. Sums over rows overwrite the beginning, which
 * only the recurrence needs. */
static size_t lay_out(rnn_work *w, mr_rnn kind, size_t act_size, char *base, void **states)
{
    const int before = kind == MR_GRU_BEFORE, K = (before ? 2 : w->gates) * w->H;
    const size_t rows = (size_t)w->B, tokens = rows * w->T * w->H * act_size;
    size_t used = 0;
    w->first = mr_cuda_rnn_matrix(w->H, K, UNITS);
    w->second = before ? mr_cuda_rnn_matrix(w->H, w->H, UNITS) : rnn_matrix();
    w->width = 4 * WARPS * w->first.k4, w->second_width = 4 * WARPS * w->second.k4;
    w->fresh = (float *)mr_cuda_rnn_take(base, &used, 2 * (size_t)w->width * sizeof(float));
    w->round = (float *)mr_cuda_rnn_take(base, &used, 2 * rows * w->width * sizeof(float));
    w->second_round = (float *)mr_cuda_rnn_take(base, &used, rows * w->second_width * sizeof(float));
    w->c = (float *)mr_cuda_rnn_take(base, &used, rows * w->H * sizeof(float));
    w->carry = (float *)mr_cuda_rnn_take(base, &used, rows * w->H * sizeof(float));
    w->to_start = (float *)mr_cuda_rnn_take(base, &used, rows * w->state * sizeof(float));
    w->arrived = (unsigned *)mr_cuda_rnn_take(base, &used, rows * sizeof(unsigned));
    w->first.packed = (float4 *)mr_cuda_rnn_take(base, &used, mr_cuda_rnn_matrix_bytes(&w->first, BACK));
    w->second.packed = (float4 *)mr_cuda_rnn_take(base, &used, mr_cuda_rnn_matrix_bytes(&w->second, BACK));
    const size_t sums = div_up((BIAS_SUMS + (size_t)w->gates * w->H) * sizeof(float), 256) * 256;
    if (used < sums) used = sums;
    w->ds = mr_cuda_rnn_take(base, &used, kind == MR_LSTM ? 0 : 3 * tokens);
    *states = mr_cuda_rnn_take(base, &used, tokens);
    return used;
}

static void recurrent_gradients(mr_cuda *c, const mr_rnn_bwd_args *a, const rnn_work *w, const void *states)
{
    const int M = a->B * a->T, H = a->H;
    float *dW = (float *)a->dW_hh, *db = (float *)a->db_hh;
    if (a->kind == MR_LSTM) mr_cuda_product_dw(c, M, 4 * H, H, w->pre, 4 * H, states, 0, dW, db);
    if (a->kind == MR_GRU_AFTER) mr_cuda_product_dw(c, M, 3 * H, H, w->ds, 3 * H, states, 0, dW, db);
    if (a->kind != MR_GRU_BEFORE) return;
    const void *dn = (const char *)w->ds + (size_t)M * 2 * (size_t)H * c->dev.act_size;
    mr_cuda_product_dw(c, M, 2 * H, H, w->ds, 2 * H, states, 0, dW, db);
    mr_cuda_product_dw(c, M, H, H, dn, H, w->extra, 0, dW + 2 * (size_t)H * (size_t)H, db + 2 * H);
}

void mr_cuda_rnn_bwd(mr_dev *dev, const mr_rnn_bwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    const int M = a->B * a->T, N = a->H * mr_rnn_gates(a->kind);
    void *states;
    rnn_work w = {};
    w.B = a->B, w.T = a->T, w.H = a->H, w.gates = mr_rnn_gates(a->kind), w.state = mr_rnn_state(a->kind, a->H),
    w.reset = a->reset, w.length = a->length;
    w.pre = a->saved, w.extra = (char *)a->saved + (size_t)M * (size_t)N * dev->act_size, w.h = (void *)a->h,
    w.dh = a->dh;
    w.h_in = (const float *)a->h_in, w.starts_fresh = !a->h_in;
    const size_t bytes = lay_out(&w, a->kind, dev->act_size, NULL, &states);
    char *base = (char *)mr_cuda_scratch(c, bytes);
    if (!base) return;
    lay_out(&w, a->kind, dev->act_size, base, &states);
    /* padding beyond the widths must be zero */
    CHECK(c, cudaMemsetAsync(base, 0, (size_t)((char *)w.first.packed - base), c->stream));
    const dim3 rows((unsigned)div_up((size_t)w.state, 128), (unsigned)a->B), more(rows.x, rows.y + 1);
    enter<<<more, 128, 0, c->stream>>>(w, (const float *)a->dh_out, (const float *)a->h_init, (float *)w.fresh);
    LAUNCHED(c, "rnn enter");
    const int before = a->kind == MR_GRU_BEFORE;
    mr_cuda_rnn_pack(c, (const float *)a->W_hh, a->H, 0, (before ? 2 : w.gates) * a->H, BACK, 1, &w.first,
                     (float4 *)w.first.packed);
    if (before)
        mr_cuda_rnn_pack(c, (const float *)a->W_hh, a->H, 2, a->H, BACK, 1, &w.second, (float4 *)w.second.packed);
    const int slice = WARPS * LANES * BACK * (w.first.k4 + w.second.k4);
    mr_cuda_rnn_launch(c, c->bf16 ? kernel_of<bf16>(a->kind) : kernel_of<float>(a->kind), &w, BACK, slice,
                       "rnn backward");
    if (a->dh_in) leave_state<<<rows, 128, 0, c->stream>>>(w, (float *)a->dh_in);
    LAUNCHED(c, "rnn leave_state");
    if (a->h_init && a->dh_init)
        mr_cuda_reduce(c, w.to_start, (size_t)a->B, (size_t)w.state, (size_t)w.state, 0, (float *)a->dh_init);
    BY_ACT(c, shift_states, c, w, states);
    recurrent_gradients(c, a, &w, states);
    if (!a->W_ih) return;
    mr_cuda_product_dx(c, M, N, a->D, a->saved, N, (const float *)a->W_ih, NULL, a->accumulate, a->dx);
    mr_cuda_product_dw(c, M, N, a->D, a->saved, N, a->x, 0, (float *)a->dW_ih, (float *)a->db_ih);
}
