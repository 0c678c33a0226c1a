/* Gates and recurrence of minGRU and minLSTM for one element: the mathematics that forward and backward share. */
#ifndef MR_OPS_CUDA_SCAN_CUH
#define MR_OPS_CUDA_SCAN_CUH

#include "ops/cuda/cuda.cuh"

/* The kinds of cells, as template arguments: each combination is a kernel of its own. */
enum { GRU, LSTM, LSTM_NORM, SIGNED_GRU, SIGNED_LSTM, SIGNED_LSTM_NORM };

template <int KIND> struct gate_count {
    static const int value = KIND == GRU || KIND == SIGNED_GRU ? 2 : 3;
};

/* e^x and 1/x in one instruction each; denormal results become 0. */
__device__ __forceinline__ float fast_exp(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634f));
    return y;
}

__device__ __forceinline__ float fast_inverse(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 1/(1 + e^(−x)); 0 where e^(−x) overflows. NaN stays NaN. */
__device__ __forceinline__ float fast_sigmoid(float x) { return fast_inverse(1.0f + fast_exp(-x)); }

template <int CAND> __device__ __forceinline__ float candidate(float v)
{
    if (CAND == MR_LINEAR) return v;
    if (CAND == MR_TANH) return tanhf(v);
    return v >= 0 ? v + 0.5f : fast_sigmoid(v);
}

/* The slope from v and c = candidate(v), so that nothing is computed twice. */
template <int CAND> __device__ __forceinline__ float candidate_slope(float v, float c)
{
    if (CAND == MR_LINEAR) return 1;
    if (CAND == MR_TANH) return 1 - c * c;
    return v >= 0 ? 1 : c * (1 - c);
}

/* σ(x) and σ(−x), both accurate to rounding; below −80 they no longer change in fp32. */
__device__ __forceinline__ void sigmoids(float x, float &up, float &down)
{
    x = x < -80.0f ? -80.0f : x;
    float e = fast_exp(-x);
    up = fast_inverse(1.0f + e);
    down = e * up;
}

/* f/(f + i) and i/(f + i) of f = σ(p), i = σ(k): (1 + e^(−k)) and (1 + e^(−p)) over their sum, all three divided by the
 * largest power, so that nothing overflows and 0/0 cannot occur. */
__device__ __forceinline__ void shares(float p, float k, float &a, float &i)
{
    const float top = fmaxf(0.0f, fmaxf(-k, -p)), one = fast_exp(-top), up = one + fast_exp(-k - top),
                down = one + fast_exp(-p - top);
    const float r = fast_inverse(up + down);
    a = up * r;
    i = down * r;
}

/* clamp(reach·tanh(q), −1, 1). NaN stays NaN, and −0 becomes 0: see FORGETS in scan_kernels.cuh. */
__device__ __forceinline__ float signed_decay(float q)
{
    const float a = (float)MR_SIGNED_REACH * tanhf(q);
    return a > 1 ? 1 : a < -1 ? -1 : __fadd_rn(a, 0.0f);
}

/* Its slope from its value, so that tanh is computed once. */
__device__ __forceinline__ float signed_slope(float a)
{
    return fabsf(a) < 1 ? (float)MR_SIGNED_REACH - a * a * (float)(1 / MR_SIGNED_REACH) : 0;
}

/* h = a·h' + i·c from the pre-activations q[0 … gates−1]. */
template <int KIND, int CAND> __device__ __forceinline__ void gates_of(const float *q, float &a, float &i, float &c)
{
    if (KIND == GRU) sigmoids(q[0], i, a);
    if (KIND == LSTM) a = fast_sigmoid(q[0]), i = fast_sigmoid(q[1]);
    if (KIND == LSTM_NORM) shares(q[0], q[1], a, i);
    if (KIND >= SIGNED_GRU) a = signed_decay(q[0]);
    if (KIND == SIGNED_GRU) i = 1 - fabsf(a);
    if (KIND == SIGNED_LSTM) i = fast_sigmoid(q[1]);
    if (KIND == SIGNED_LSTM_NORM) i = (1 - fabsf(a)) * fast_sigmoid(q[1]);
    c = candidate<CAND>(q[gate_count<KIND>::value - 1]);
}

/* Replaces the pre-activations by their gradients, given those of a, i and c. */
template <int KIND, int CAND>
__device__ __forceinline__ void gates_bwd(float *q, float a, float i, float c, float da, float di, float dc)
{
    const int v = gate_count<KIND>::value - 1;
    q[v] = dc * candidate_slope<CAND>(q[v], c);
    if (KIND == GRU) q[0] = (di - da) * a * i;
    if (KIND == LSTM) q[0] = da * a * (1 - a), q[1] = di * i * (1 - i);
    if (KIND == LSTM_NORM) {
        float dd = (da - di) * a * i;
        q[0] = dd * fast_sigmoid(-q[0]);
        q[1] = -dd * fast_sigmoid(-q[1]);
    }
    const float sign = a < 0 ? -1 : 1, slope = signed_slope(a);
    if (KIND == SIGNED_GRU) q[0] = (da - sign * di) * slope;
    if (KIND == SIGNED_LSTM) q[0] = da * slope, q[1] = di * i * (1 - i);
    if (KIND == SIGNED_LSTM_NORM) {
        float open, shut;
        sigmoids(q[1], open, shut);
        q[0] = (da - sign * open * di) * slope;
        q[1] = di * (1 - fabsf(a)) * open * shut;
    }
}

/* Arguments of a scan kernel. Time is split into `chunks` of `span` tokens when there are too few sequences and
 * channels to fill the chip; effect_A and effect_B then hold each chunk's effect on the state, h → A·h + B. */
struct scan_args {
    int B, T, H;
    int chunks, span;
    void *pre;
    void *h;
    const float *h_in, *h_init;
    float *h_out;
    const uint8_t *reset;
    const int32_t *length;
    float *effect_A, *effect_B; /* [B, chunks, H] */
    /* backward */
    const void *dh;
    const float *dh_out;
    float *dh_in, *to_start; /* to_start: [B, chunks, H] gradient that reached the start state, or NULL */
    float *bias_sums;        /* [B, chunks, G·H] sums over tokens of the pre-activations' gradients, or NULL */
};

#endif
