/* The forward of GRU and LSTM, see rnn.cuh. */
#include "ops/cuda/rnn.cuh"

/* The element that thread p < 128 finishes: a row and a unit in the tile. */
struct element {
    int b, unit;
    bool valid, real, fresh;
    size_t token;
};

static __device__ __forceinline__ element element_of(const rnn_work &w, int row0, int group, int t, unsigned fresh)
{
    element e;
    const int row = threadIdx.x / LANES;
    e.b = row0 + row, e.unit = group * LANES + (threadIdx.x & 7);
    e.valid = threadIdx.x < TILE * LANES && e.b < w.B && e.unit < w.H;
    e.real = e.valid && (!w.length || t < w.length[e.b]);
    e.fresh = fresh >> (row & 31) & 1;
    e.token = (size_t)e.b * w.T + t;
    return e;
}

template <class ACT> static __device__ __forceinline__ ACT *gate_at(const rnn_work &w, const element &e, int gate)
{
    return (ACT *)w.pre + (e.token * w.gates + gate) * w.H + e.unit;
}

/* Loads the parts of the gates' arguments that do not depend on the sums: input projections and biases. */
template <class ACT, int N>
static __device__ __forceinline__ void known(const rnn_work &w, const element &e, int first, float a[N], float bias[N])
{
    for (int g = 0; g < N; g++) {
        a[g] = e.real ? load(gate_at<ACT>(w, e, first + g)) : 0.0f;
        bias[g] = e.real ? w.bias[(first + g) * w.H + e.unit] : 0.0f;
    }
}

template <class ACT>
static __device__ __forceinline__ void leave(const rnn_work &w, const element &e, float h, float *next)
{
    next[(size_t)e.b * w.width + e.unit] = h;
    store((ACT *)w.h + e.token * w.H + e.unit, e.real ? h : 0.0f);
}

/* lstm and gru after: gates and state of a tile in one step. */
template <class ACT, int KIND>
static __device__ void whole_token(const rnn_work &w, const float4 *packed, int row0, int group, int t,
                                   const float *now, float *next, float4 *shared)
{
    constexpr int G = KIND == MR_LSTM ? 4 : 3;
    const unsigned fresh = fresh_rows(w, row0, t);
    const element e = element_of(w, row0, group, t, fresh);
    float a[G], bias[G], s[G], h = 0, cell = 0;
    known<ACT, G>(w, e, 0, a, bias);
    if (e.valid) h = __ldcg(now + (size_t)e.b * w.width + e.unit);
    if (e.real && e.fresh) h = w.fresh[e.unit];
    if (KIND == MR_LSTM && e.valid) cell = e.fresh ? w.fresh[w.width + e.unit] : w.c[(size_t)e.b * w.H + e.unit];
    tile_sums<G>(w.first, packed, now + (size_t)row0 * w.width, w.width, min((int)TILE, w.B - row0), fresh, w.fresh,
                 shared, s);
    if (!e.valid) return;
    ACT *extra = (ACT *)w.extra + e.token * w.H + e.unit;
    if (!e.real) {
        store(extra, 0.0f);
        leave<ACT>(w, e, h, next);
        return;
    }
    for (int g = 0; g < G; g++) s[g] += bias[g];
    if (KIND == MR_LSTM) {
        const float i = sigmoid(a[0] + s[0]), f = sigmoid(a[1] + s[1]), g = tanhf(a[2] + s[2]),
                    o = sigmoid(a[G - 1] + s[G - 1]);
        cell = f * cell + i * g;
        w.c[(size_t)e.b * w.H + e.unit] = cell;
        store(extra, cell);
        store(gate_at<ACT>(w, e, 0), i), store(gate_at<ACT>(w, e, 1), f), store(gate_at<ACT>(w, e, 2), g),
            store(gate_at<ACT>(w, e, G - 1), o);
        leave<ACT>(w, e, o * tanhf(cell), next);
    } else {
        const float r = sigmoid(a[0] + s[0]), z = sigmoid(a[1] + s[1]), n = tanhf(a[2] + r * s[2]);
        store(extra, s[2]);
        store(gate_at<ACT>(w, e, 0), r), store(gate_at<ACT>(w, e, 1), z), store(gate_at<ACT>(w, e, 2), n);
        leave<ACT>(w, e, n + z * (h - n), next);
    }
}

/* gru before, first half: r and z. The second half needs r·h' of all units. */
template <class ACT>
static __device__ void first_half(const rnn_work &w, const float4 *packed, int row0, int group, int t, const float *now,
                                  float4 *shared)
{
    const unsigned fresh = fresh_rows(w, row0, t);
    const element e = element_of(w, row0, group, t, fresh);
    float a[2], bias[2], s[2], h = 0;
    known<ACT, 2>(w, e, 0, a, bias);
    if (e.real) h = e.fresh ? w.fresh[e.unit] : __ldcg(now + (size_t)e.b * w.width + e.unit);
    tile_sums<2>(w.first, packed, now + (size_t)row0 * w.width, w.width, min((int)TILE, w.B - row0), fresh, w.fresh,
                 shared, s);
    if (!e.valid) return;
    const float r = sigmoid(a[0] + (s[0] + bias[0])), rh = e.real ? r * h : 0.0f;
    w.second_round[(size_t)e.b * w.second_width + e.unit] = rh;
    store((ACT *)w.extra + e.token * w.H + e.unit, rh);
    if (e.real) store(gate_at<ACT>(w, e, 0), r), store(gate_at<ACT>(w, e, 1), sigmoid(a[1] + (s[1] + bias[1])));
}

template <class ACT>
static __device__ void second_half(const rnn_work &w, const float4 *packed, int row0, int group, int t,
                                   const float *now, float *next, float4 *shared)
{
    const element e = element_of(w, row0, group, t, fresh_rows(w, row0, t));
    float a[1], bias[1], s[1], h = 0, z = 0;
    known<ACT, 1>(w, e, 2, a, bias);
    if (e.valid) h = __ldcg(now + (size_t)e.b * w.width + e.unit);
    if (e.real && e.fresh) h = w.fresh[e.unit];
    if (e.real) z = load(gate_at<ACT>(w, e, 1));
    tile_sums<1>(w.second, packed, w.second_round + (size_t)row0 * w.second_width, w.second_width,
                 min((int)TILE, w.B - row0), 0, w.fresh, shared, s);
    if (!e.valid) return;
    const float n = tanhf(a[0] + (s[0] + bias[0]));
    if (e.real) store(gate_at<ACT>(w, e, 2), n);
    leave<ACT>(w, e, e.real ? n + z * (h - n) : h, next);
}

template <class ACT, int KIND> static __global__ void __launch_bounds__(THREADS) forward(rnn_work w)
{
    extern __shared__ float4 shared[];
    constexpr int COLUMNS = KIND == MR_LSTM ? 4 : KIND == MR_GRU_AFTER ? 3 : 2;
    const int slice = WARPS * w.first.k4 * COLUMNS * LANES, second_slice = WARPS * w.second.k4 * LANES;
    float4 *room = shared + WARPS * TILE * STAGE_ROW + WARPS * TILE * COLUMNS * LANES / 4;
    const float4 *first = own_matrix(w, w.first, COLUMNS, room), *second = NULL;
    if (KIND == MR_GRU_BEFORE) second = own_matrix(w, w.second, 1, room + w.groups * slice);
    const int row0 = blockIdx.y * w.tiles * TILE, row_end = min(w.B, row0 + w.tiles * TILE);
    const int group0 = blockIdx.x * w.groups, groups = min(w.groups, w.first.groups - group0);
    unsigned turn = 0, *arrived = w.arrived + blockIdx.y;
    __syncthreads();
    for (int t = 0; t < w.T; t++) {
        const float *now = w.round + (size_t)(t & 1) * w.B * w.width;
        float *next = w.round + (size_t)(~t & 1) * w.B * w.width;
        for (int row = row0; row < row_end; row += TILE)
            for (int g = 0; g < groups; g++)
                if constexpr (KIND == MR_GRU_BEFORE)
                    first_half<ACT>(w, first + (size_t)g * slice, row, group0 + g, t, now, shared);
                else whole_token<ACT, KIND>(w, first + (size_t)g * slice, row, group0 + g, t, now, next, shared);
        wait_for_rows(arrived, &turn);
        if constexpr (KIND == MR_GRU_BEFORE) {
            for (int row = row0; row < row_end; row += TILE)
                for (int g = 0; g < groups; g++)
                    second_half<ACT>(w, second + (size_t)g * second_slice, row, group0 + g, t, now, next, shared);
            wait_for_rows(arrived, &turn);
        }
    }
}

/* Loads the state before token 0, and, in row B, the state that a sequence starts from. */
static __global__ void enter(rnn_work w, int S, const float *h_in, const float *h_init, float *fresh)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
    if (k >= S) return;
    const int of_c = k >= w.H, at = of_c ? k - w.H : k;
    const float start = h_init ? h_init[k] : 0.0f;
    if (b == w.B) fresh[of_c * w.width + at] = start;
    else (of_c ? w.c + (size_t)b * w.H : w.round + (size_t)b * w.width)[at] = h_in ? h_in[(size_t)b * S + k] : start;
}

static __global__ void leave_state(rnn_work w, int S, float *h_out)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x, b = blockIdx.y;
    if (k >= S) return;
    const float *h = w.round + ((size_t)(w.T & 1) * w.B + b) * w.width;
    h_out[(size_t)b * S + k] = k < w.H ? h[k] : w.c[(size_t)b * w.H + k - w.H];
}

static int columns_of(mr_rnn kind) { return kind == MR_LSTM ? 4 : kind == MR_GRU_AFTER ? 3 : 2; }

/* Lays out scratch; base NULL: only counts bytes. */
static size_t lay_out(rnn_work *w, mr_rnn kind, char *base)
{
    size_t used = 0, before = kind == MR_GRU_BEFORE;
    w->first = mr_cuda_rnn_matrix(w->H, w->H, LANES);
    w->second = before ? w->first : rnn_matrix();
    w->width = w->second_width = 4 * WARPS * w->first.k4;
    w->fresh = (float *)mr_cuda_rnn_take(base, &used, 2 * (size_t)w->width * sizeof(float));
    w->round = (float *)mr_cuda_rnn_take(base, &used, 2 * (size_t)w->B * w->width * sizeof(float));
    w->second_round = (float *)mr_cuda_rnn_take(base, &used, before * w->B * w->width * sizeof(float));
    w->c = (float *)mr_cuda_rnn_take(base, &used, (size_t)w->B * w->H * sizeof(float));
    w->arrived = (unsigned *)mr_cuda_rnn_take(base, &used, (size_t)w->B * sizeof(unsigned));
    w->first.packed = (float4 *)mr_cuda_rnn_take(base, &used, mr_cuda_rnn_matrix_bytes(&w->first, columns_of(kind)));
    w->second.packed = (float4 *)mr_cuda_rnn_take(base, &used, mr_cuda_rnn_matrix_bytes(&w->second, 1));
    return used;
}

template <class ACT> static const void *kernel_of(mr_rnn kind)
{
    if (kind == MR_LSTM) return (const void *)forward<ACT, MR_LSTM>;
    return kind == MR_GRU_AFTER ? (const void *)forward<ACT, MR_GRU_AFTER> : (const void *)forward<ACT, MR_GRU_BEFORE>;
}

void mr_cuda_rnn_fwd(mr_dev *dev, const mr_rnn_fwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    const int S = mr_rnn_state(a->kind, a->H), columns = columns_of(a->kind);
    const size_t tokens = (size_t)a->B * (size_t)a->T;
    rnn_work w = {};
    w.B = a->B, w.T = a->T, w.H = a->H, w.gates = mr_rnn_gates(a->kind), w.reset = a->reset, w.length = a->length;
    w.pre = a->saved, w.extra = (char *)a->saved + tokens * w.gates * a->H * dev->act_size,
    w.bias = (const float *)a->b_hh, w.h = a->h;
    if (a->W_ih)
        mr_cuda_product_fwd(c, (int)tokens, w.gates * a->H, a->D, a->x, (const float *)a->W_ih, (const float *)a->b_ih,
                            0, NULL, NULL, a->saved);
    const size_t bytes = lay_out(&w, a->kind, NULL);
    char *base = (char *)mr_cuda_scratch(c, bytes);
    if (!base) return;
    lay_out(&w, a->kind, base);
    /* padding beyond H must be zero */
    CHECK(c, cudaMemsetAsync(base, 0, (size_t)((char *)w.first.packed - base), c->stream));
    const dim3 states((unsigned)div_up((size_t)S, 128), (unsigned)a->B + 1),
        rows((unsigned)div_up((size_t)S, 128), (unsigned)a->B);
    enter<<<states, 128, 0, c->stream>>>(w, S, (const float *)a->h_in, (const float *)a->h_init, (float *)w.fresh);
    LAUNCHED(c, "rnn enter");
    mr_cuda_rnn_pack(c, (const float *)a->W_hh, a->H, 0, a->H, columns, 0, &w.first, (float4 *)w.first.packed);
    if (w.second.groups)
        mr_cuda_rnn_pack(c, (const float *)a->W_hh, a->H, 2, a->H, 1, 0, &w.second, (float4 *)w.second.packed);
    const int slice = WARPS * LANES * (w.first.k4 * columns + w.second.k4);
    mr_cuda_rnn_launch(c, c->bf16 ? kernel_of<bf16>(a->kind) : kernel_of<float>(a->kind), &w, columns, slice,
                       "rnn forward");
    if (!a->h_out) return;
    leave_state<<<rows, 128, 0, c->stream>>>(w, S, (float *)a->h_out);
    LAUNCHED(c, "rnn leave_state");
}
