/* Gates and recurrence of minGRU and minLSTM for one element: the mathematics that forward and backward share. */
#ifndef MR_OPS_CUDA_SCAN_CUH
#define MR_OPS_CUDA_SCAN_CUH

#include "ops/cuda/cuda.cuh"

/* Which cell, as types, so that each combination is a kernel of its own. */
enum { GRU, LSTM, LSTM_NORM };

template <int KIND> struct gate_count {
    static const int value = KIND == GRU ? 2 : 3;
};

__device__ __forceinline__ float softplus(float x) { return fmaxf(x, 0.0f) + __logf(1.0f + __expf(-fabsf(x))); }

template <int CAND> __device__ __forceinline__ float candidate(float v)
{
    if (CAND == MR_LINEAR) return v;
    if (CAND == MR_TANH) return tanhf(v);
    return v >= 0 ? v + 0.5f : sigmoid(v);
}

template <int CAND> __device__ __forceinline__ float candidate_slope(float v)
{
    if (CAND == MR_LINEAR) return 1;
    if (CAND == MR_TANH) {
        float t = tanhf(v);
        return 1 - t * t;
    }
    return v >= 0 ? 1 : sigmoid(v) * sigmoid(-v);
}

/* σ(x) and σ(−x), both exact to rounding. */
__device__ __forceinline__ void sigmoids(float x, float &up, float &down)
{
    float e = __expf(-fabsf(x)), big = __fdividef(1.0f, 1.0f + e), small = e * big;
    up = x >= 0 ? big : small;
    down = x >= 0 ? small : big;
}

/* h = a·h' + i·c from the pre-activations q[0 … gates−1]. */
template <int KIND, int CAND> __device__ __forceinline__ void gates_of(const float *q, float &a, float &i, float &c)
{
    if (KIND == GRU) sigmoids(q[0], i, a);
    if (KIND == LSTM) a = sigmoid(q[0]), i = sigmoid(q[1]);
    if (KIND == LSTM_NORM) sigmoids(softplus(-q[1]) - softplus(-q[0]), a, i);
    c = candidate<CAND>(q[gate_count<KIND>::value - 1]);
}

/* Gradients of a, i, c turned into those of the pre-activations. */
template <int KIND, int CAND> __device__ __forceinline__ void gates_bwd(float *q, float a, float i, float da, float di, float dc)
{
    const int v = gate_count<KIND>::value - 1;
    q[v] = dc * candidate_slope<CAND>(q[v]);
    if (KIND == GRU) q[0] = (di - da) * a * i;
    if (KIND == LSTM) q[0] = da * a * (1 - a), q[1] = di * i * (1 - i);
    if (KIND == LSTM_NORM) {
        float dd = (da - di) * a * i;
        q[0] = dd * sigmoid(-q[0]);
        q[1] = -dd * sigmoid(-q[1]);
    }
}

/* What a scan kernel is given. Time is cut into `chunks` of `span` tokens when there are too few sequences and channels to
 * fill the chip; carry_A and carry_B then hold each chunk's effect on the state, h → A·h + B. */
struct scan_args {
    int B, T, H;
    int chunks, span;
    const void *pre;
    void *h;
    const float *h_in, *h_init;
    float *h_out;
    const uint8_t *reset;
    const int32_t *length;
    const float *carry; /* [B, chunks, H] state before (backward: gradient behind) each chunk, or NULL: one chunk */
    float *carry_A, *carry_B; /* [B, chunks, H], written by the first pass */
    int log_scan;
    /* backward */
    const void *dh;
    const float *dh_out;
    float *dh_in, *to_start; /* to_start: [B, chunks, H] gradient that reached the start state */
};

#endif
