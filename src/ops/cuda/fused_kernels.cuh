/* Forward and backward kernels of a whole recurrent layer, on the tiles of fused.cuh. MASKED as in scan_kernels.cuh. */
#ifndef MR_OPS_CUDA_FUSED_KERNELS_CUH
#define MR_OPS_CUDA_FUSED_KERNELS_CUH

#include "ops/cuda/fused.cuh"

/* Shared memory: operands of W, then two tiles each of x and, in the backward, of dh and of the previous states. */
template <class ACT, int G, int NT, int INPUTS> struct fused_room {
    static const int weights = G * FUSED_WARPS * operand<ACT>::steps * 32,
                     tile = 8 * NT * operand<ACT>::chunks; /* of 16 bytes */
    static const size_t bytes = (weights + 2 * INPUTS * tile) * sizeof(uint4);
};

template <int CAND> static __device__ __forceinline__ void sequence_start(const scan_args &g, int ch, float *start)
{
#pragma unroll
    for (int v = 0; v < 2; v++) start[v] = g.h_init ? candidate<CAND>(g.h_init[ch + v]) : 0;
}

template <int G> static __device__ __forceinline__ void my_bias(const float *from, int H, int ch, float (*bias)[2])
{
#pragma unroll
    for (int j = 0; j < G; j++)
#pragma unroll
        for (int v = 0; v < 2; v++) bias[j][v] = from ? from[(size_t)j * H + ch + v] : 0;
}

/* ---- forward ---- */

/* Replaces pre-activations by a (in q[0]) and b (in q[1]) of the recurrence; A and B: the
 * effect of the thread's tokens. */
template <int KIND, int CAND, int MASKED, int NT>
static __device__ __forceinline__ void tile_gates(const scan_args &g, int b, int from, int real, const float *start,
                                                  float (*q)[NT][4], float *A, float *B)
{
    const int G = gate_count<KIND>::value;
    A[0] = A[1] = 1, B[0] = B[1] = 0;
#pragma unroll
    for (int k = 0; k < 2 * NT; k++) {
        const bool here = !MASKED || from + k < real, cut = MASKED && here && resets(g, b, from + k);
#pragma unroll
        for (int v = 0; v < 2; v++) {
            float p[G], a, i, c;
#pragma unroll
            for (int j = 0; j < G; j++) p[j] = q[j][k / 2][2 * v + k % 2];
            gates_of<KIND, CAND>(p, a, i, c);
            float in = i * c;
            if (cut) in += a * start[v], a = FORGETS;
            if (!here) a = 1, in = 0;
            B[v] = apply<MASKED>(a, in, B[v]);
            A[v] = join<MASKED>(a, A[v]);
            q[0][k / 2][2 * v + k % 2] = a;
            q[1][k / 2][2 * v + k % 2] = in;
        }
    }
}

template <class ACT, int KIND, int CAND, int MASKED, int NT, int LEAST>
static __global__ void __launch_bounds__(32 * FUSED_WARPS, LEAST) fused_forward(fused_args f)
{
    const int G = gate_count<KIND>::value;
    typedef fused_room<ACT, G, NT, 1> room;
    extern __shared__ uint4 shared[];
    const scan_args &g = f.scan;
    const place at = my_place();
    const int b = blockIdx.y, real = g.length ? g.length[b] : g.T;
    const ACT *x = (const ACT *)f.x + (size_t)b * g.T * FUSED_D;
    ACT *h = (ACT *)g.h + (size_t)b * g.T * g.H;
    uint4 *tiles = shared + room::weights;
    float bias[G][2], start[2], state[2];
    const tile_feed<ACT, NT> feed(tiles, FUSED_D);
    feed.template fetch<MASKED, 0>(0, x, 0, real);
    asked();
    keep_weights<ACT, G>(shared, at, f.W, g.H);
    my_bias<G>(f.bias, g.H, at.ch, bias);
    sequence_start<CAND>(g, at.ch, start);
#pragma unroll
    for (int v = 0; v < 2; v++) state[v] = g.h_in ? g.h_in[(size_t)b * g.H + at.ch + v] : start[v];
    float q[G][NT][4], next[G][NT][4];
    await_tile();
    if (8 * NT < g.T) feed.template fetch<MASKED, 0>(1, x + 8 * NT * FUSED_D, 8 * NT, real);
    asked();
    project<ACT, G, NT>(shared, tiles, at, bias, q);
    int turn = 1;
    for (int first = 0; first < g.T; first += 8 * NT, turn ^= 1) {
        const int from = first + at.quarter * 2 * NT, later = first + 16 * NT;
        const unsigned mine = (unsigned)(from * g.H + at.ch);
        float A[2], B[2], y[2];
        await_tile();
        if (later < g.T) feed.template fetch<MASKED, 0>(turn ^ 1, x + (size_t)later * FUSED_D, later, real);
        asked();
        /* overlaps with the gates of this tile; wasted after the last one */
        project<ACT, G, NT>(shared, tiles + turn * room::tile, at, bias, next);
        tile_gates<KIND, CAND, MASKED, NT>(g, b, from, real, start, q, A, B);
        pass_quarters<MASKED>(at, 0, A, B, state, y);
#pragma unroll
        for (int k = 0; k < 2 * NT; k++) {
            float out[2];
#pragma unroll
            for (int v = 0; v < 2; v++) {
                y[v] = apply<MASKED>(q[0][k / 2][2 * v + k % 2], q[1][k / 2][2 * v + k % 2], y[v]);
                out[v] = !MASKED || from + k < real ? y[v] : 0;
            }
            if (!MASKED || from + k < g.T)
                *(typename lanes<ACT, 2>::raw *)(h + (mine + (unsigned)(k * g.H))) = lanes<ACT, 2>::pack(out);
        }
        memcpy(q, next, sizeof q);
    }
#pragma unroll
    for (int v = 0; v < 2; v++)
        if (g.h_out && at.quarter == 0) g.h_out[(size_t)b * g.H + at.ch + v] = state[v];
}

/* ---- backward: recomputes pre-activations, then as in scan_kernels.cuh ---- */

/* Tiles 0 and 1 hold x, 2 and 3 dh, 4 and 5 the states before the tokens. */
template <class ACT, int NT> struct backward_feed {
    tile_feed<ACT, NT> input, channels;

    __device__ __forceinline__ backward_feed(const uint4 *tiles, int H) : input(tiles, FUSED_D), channels(tiles, H) {}

    /* x, h and dh: of one sequence, of this block's channels. */
    template <int MASKED>
    __device__ __forceinline__ void fetch(int turn, const ACT *x, const ACT *h, const ACT *dh, int first,
                                          int real) const
    {
        const size_t at = (size_t)first * channels.stride;
        input.template fetch<MASKED, 0>(turn, x + (size_t)first * FUSED_D, first, real);
        channels.template fetch<MASKED, 0>(2 + turn, dh + at, first, real);
        channels.template fetch<MASKED, 1>(4 + turn, h + at - channels.stride, first, real);
    }
};

/* Access to dh and the previous states of the thread's tokens in shared memory. */
template <class ACT, int NT> struct tile_past {
    typedef typename lanes<ACT, 2>::raw word;
    const char *even, *odd;

    __device__ __forceinline__ tile_past(const uint4 *tiles, int turn, const place &at)
    {
        const int chunk = (16 * at.warp + 2 * at.row) * (int)sizeof(ACT) / 16,
                  within = 2 * at.row * (int)sizeof(ACT) % 16, token = at.quarter * 2 * NT;
        const char *tile = (const char *)(tiles + (2 + turn) * 8 * NT * operand<ACT>::chunks) + within;
        even = tile + chunk_at<ACT, NT>(token, chunk) * 16;
        odd = tile + chunk_at<ACT, NT>(token + 1, chunk) * 16;
    }

    __device__ __forceinline__ const char *of(int k) const
    {
        return (k % 2 ? odd : even) + k / 2 * 2 * operand<ACT>::chunks * 16;
    }
    __device__ __forceinline__ void dh(int k, float *v) const { lanes<ACT, 2>::expand(*(const word *)of(k), v); }
    __device__ __forceinline__ void before(int k, float *v) const
    {
        lanes<ACT, 2>::expand(*(const word *)(of(k) + 2 * tile_feed<ACT, NT>::bytes), v);
    }
};

/* The effect of the thread's tokens on the gradient that comes from later tokens; returns where
 * sequences start among them. */
template <class ACT, int KIND, int CAND, int MASKED, int NT>
static __device__ __forceinline__ unsigned tile_effect(const scan_args &g, int b, int from, int real,
                                                       const tile_past<ACT, NT> &in, const float (*q)[NT][4], float *A,
                                                       float *B)
{
    const int G = gate_count<KIND>::value;
    unsigned cut = 0;
    A[0] = A[1] = 1, B[0] = B[1] = 0;
#pragma unroll
    for (int k = 2 * NT - 1; k >= 0; k--) {
        const bool here = !MASKED || from + k < real;
        if (MASKED && here && resets(g, b, from + k)) cut |= 1u << k;
        const bool starting = MASKED && cut >> k & 1;
        float d[2];
        in.dh(k, d);
#pragma unroll
        for (int v = 0; v < 2; v++) {
            float p[G], a, i, c;
#pragma unroll
            for (int j = 0; j < G; j++) p[j] = q[j][k / 2][2 * v + k % 2];
            gates_of<KIND, CAND>(p, a, i, c);
            B[v] = starting ? 0 : here ? a * (B[v] + d[v]) : B[v];
            A[v] = starting ? FORGETS : here ? a * A[v] : A[v];
        }
    }
    return cut;
}

/* Replaces pre-activations by their gradients, and stores them where dpre is not NULL. y is the gradient that comes
 * from later tokens, and then goes to earlier ones. */
template <class ACT, int KIND, int CAND, int MASKED, int NT>
static __device__ __forceinline__ void tile_gradients(const scan_args &g, int ch, int from, int real, unsigned cut,
                                                      const tile_past<ACT, NT> &in, const float *start,
                                                      const float *first, float (*q)[NT][4], float *y, float *to_start,
                                                      float (*db)[2], ACT *dpre)
{
    const int G = gate_count<KIND>::value;
    const unsigned mine = (unsigned)(from * G * g.H + ch);
#pragma unroll
    for (int k = 2 * NT - 1; k >= 0; k--) {
        const int t = from + k;
        const bool here = !MASKED || t < real, starting = MASKED && cut >> k & 1;
        float d[2], before[2], out[G][2];
        in.dh(k, d);
        in.before(k, before);
#pragma unroll
        for (int v = 0; v < 2; v++) {
            float p[G], a, i, c;
            const float dg = d[v] + y[v], past = starting ? start[v] : t > 0 ? before[v] : first[v];
#pragma unroll
            for (int j = 0; j < G; j++) p[j] = q[j][k / 2][2 * v + k % 2];
            gates_of<KIND, CAND>(p, a, i, c);
            gates_bwd<KIND, CAND>(p, a, i, c, dg * past, dg * c, dg * i);
#pragma unroll
            for (int j = 0; j < G; j++) {
                out[j][v] = q[j][k / 2][2 * v + k % 2] = here ? p[j] : 0;
                db[j][v] += out[j][v];
            }
            if (here) y[v] = a * dg;
            if (starting) to_start[v] += y[v], y[v] = 0;
        }
        if (!dpre || (MASKED && t >= g.T)) continue;
#pragma unroll
        for (int j = 0; j < G; j++)
            *(typename lanes<ACT, 2>::raw *)(dpre + (mine + (unsigned)((k * G + j) * g.H))) =
                lanes<ACT, 2>::pack(out[j]);
    }
}

/* Writes the gradient that reaches the front of a sequence. */
template <int MASKED>
static __device__ __forceinline__ void write_left(const scan_args &g, int b, const place &at, const float *left,
                                                  float *to_start)
{
#pragma unroll
    for (int v = 0; v < 2; v++) {
        if (MASKED) {
            to_start[v] += __shfl_xor_sync(0xffffffffu, to_start[v], 1);
            to_start[v] += __shfl_xor_sync(0xffffffffu, to_start[v], 2);
        }
        const size_t i = (size_t)b * g.H + at.ch + v;
        if (at.quarter) continue;
        if (g.to_start) g.to_start[i] = to_start[v] + (g.h_in ? 0 : left[v]);
        if (g.dh_in) g.dh_in[i] = g.h_in ? left[v] : 0;
    }
}

template <class ACT, int KIND, int CAND, int MASKED, int NT, int LEAST>
static __global__ void __launch_bounds__(32 * FUSED_WARPS, LEAST) fused_backward(fused_args f)
{
    const int G = gate_count<KIND>::value;
    typedef fused_room<ACT, G, NT, 3> room;
    extern __shared__ uint4 shared[];
    const scan_args &g = f.scan;
    const place at = my_place();
    uint4 *tiles = shared + room::weights;
    const backward_feed<ACT, NT> feed(tiles, g.H);
    float bias[G][2], db[G][2] = {}, dw[G][8][4] = {};
    keep_weights<ACT, G>(shared, at, f.W, g.H);
    my_bias<G>(f.bias, g.H, at.ch, bias);
    int turn = 0;
    for (int b = blockIdx.y; b < g.B; b += f.groups) {
        const int real = g.length ? g.length[b] : g.T;
        const size_t row = (size_t)b * g.T * g.H + (size_t)blockIdx.x * FUSED_CHANNELS;
        const ACT *x = (const ACT *)f.x + (size_t)b * g.T * FUSED_D, *h = (const ACT *)g.h + row,
                  *dh = (const ACT *)g.dh + row;
        ACT *dpre = g.pre ? (ACT *)g.pre + (size_t)b * g.T * G * g.H : NULL;
        float start[2], first[2], state[2], to_start[2] = {0, 0};
        const int last = (g.T - 1) / (8 * NT) * (8 * NT);
        feed.template fetch<MASKED>(turn, x, h, dh, last, real);
        asked();
        sequence_start<CAND>(g, at.ch, start);
#pragma unroll
        for (int v = 0; v < 2; v++) {
            const size_t i = (size_t)b * g.H + at.ch + v;
            first[v] = g.h_in ? g.h_in[i] : start[v];
            state[v] = g.dh_out ? g.dh_out[i] : 0;
        }
        for (int tile = last; tile >= 0; tile -= 8 * NT, turn ^= 1) {
            const int from = tile + at.quarter * 2 * NT;
            float q[G][NT][4], A[2], B[2], y[2];
            const tile_past<ACT, NT> in(tiles, turn, at);
            await_tile();
            if (tile > 0) feed.template fetch<MASKED>(turn ^ 1, x, h, dh, tile - 8 * NT, real);
            asked();
            project<ACT, G, NT>(shared, tiles + turn * room::tile, at, bias, q);
            const unsigned cut = tile_effect<ACT, KIND, CAND, MASKED, NT>(g, b, from, real, in, q, A, B);
            pass_quarters<MASKED>(at, 1, A, B, state, y);
            tile_gradients<ACT, KIND, CAND, MASKED, NT>(g, at.ch, from, real, cut, in, start, first, q, y, to_start, db,
                                                        dpre);
            add_dw<G, NT>(tiles + turn * room::tile, at, q, dw, ACT());
        }
        write_left<MASKED>(g, b, at, state, to_start);
    }
    write_shares<ACT, G>(f, at, blockIdx.y, dw, db);
}

#endif
