/* The forward kernel of Mamba's selective scan; EFFECT 1: computes only the effect of a span on the state. */
#ifndef MR_OPS_CUDA_SSCAN_FWD_CUH
#define MR_OPS_CUDA_SSCAN_FWD_CUH

#include "ops/cuda/sscan.cuh"

template <int NP> struct forward_shared {
    float step[SSCAN_ARRAY], drive[SSCAN_ARRAY], sum[SSCAN_ARRAY]; /* drive: Δ·u; sum: Σ C·h */
    float tile[MR_SSCAN_CHUNK * 2 * NP];
};

/* Loads the state before the span. h_out may be h_in, so with several spans only the first pass
 * reads h_in, and keeps a copy. */
template <int EFFECT>
static __device__ __forceinline__ void start_forward(const sscan_args &g, const sscan_place &p, const sscan_walker &w,
                                                     const float *rate, float *h)
{
    const int row = p.b * (g.spans + 1);
    if (EFFECT && p.span == 0) {
        read_states(g.h_in, p.b, g, w, h);
        write_states(g.effect_h, row, g, w, h);
    }
    if (EFFECT) read_states(NULL, 0, g, w, h);
    else if (g.spans == 1) read_states(g.h_in, p.b, g, w, h);
    else read_states(g.effect_h, row, g, w, h);
#pragma unroll 4
    for (int k = 0; k < (EFFECT ? 0 : p.span); k++) pass_span(g, p, w, k, k + 1, rate, h);
}

/* A chunk's inputs; the next chunk's are loaded while this one is walked. */
template <class ACT, int NP, int EFFECT> struct forward_inputs {
    staged<ACT, NP> u, delta, z;
    staged_bc<ACT, NP> bc;

    __device__ __forceinline__ void fetch(const sscan_args &g, const sscan_place &p, const sscan_stager &s, int first)
    {
        const sscan_share c = sscan_share_of(g, p, s, first);
        u.fetch(g.u, g, c);
        delta.fetch(g.delta, g, c);
        if (!EFFECT) z.fetch(g.z, g, c);
        bc.fetch(g, p, first);
    }
};

/* What a stager keeps until its tokens are stored, and ΣΔ so far. */
template <int NP> struct forward_kept {
    float skipped[sscan_shape<NP>::TOKENS], gate[sscan_shape<NP>::TOKENS], total;
};

template <class ACT, int NP, int EFFECT>
static __device__ __forceinline__ void stage_forward(const sscan_stager &s, const sscan_share &c,
                                                     const forward_inputs<ACT, NP, EFFECT> &in, float bias, float skip,
                                                     forward_kept<NP> &kept, forward_shared<NP> &to)
{
    const int TOKENS = sscan_shape<NP>::TOKENS;
    float step[TOKENS], drive[TOKENS];
#pragma unroll
    for (int i = 0; i < TOKENS; i++) {
        const float u = in.u[i];
        step[i] = i < c.there ? step_size(in.delta[i] + bias) : 0.0f;
        drive[i] = step[i] * u;
        if (EFFECT) {
            kept.total += step[i];
        } else {
            const float z = in.z[i];
            kept.skipped[i] = skip * u;
            kept.gate[i] = z * sigmoid_fast(z);
        }
    }
    put_tokens<TOKENS>(to.step + s.slot, step);
    put_tokens<TOKENS>(to.drive + s.slot, drive);
    in.bc.template put<1>(to.tile);
}

/* SSCAN_GROUP tokens of the chunk. CUTS: some of the chunk's tokens start a sequence. */
template <int NP, int EFFECT, int CUTS>
static __device__ __forceinline__ void walk_group(const sscan_walker &w, const float *rate, unsigned cuts, int from,
                                                  forward_shared<NP> &shared, float *h)
{
    float step[SSCAN_GROUP], drive[SSCAN_GROUP], sum[SSCAN_GROUP];
    read_group(shared.step, w, from, step);
    read_group(shared.drive, w, from, drive);
#pragma unroll
    for (int k = 0; k < SSCAN_GROUP; k++) {
        float B[SSCAN_STATES], C[SSCAN_STATES];
        read_bc<NP, 1>(shared.tile, w, from + k, 0, B);
        if (!EFFECT) read_bc<NP, 1>(shared.tile, w, from + k, 1, C);
        sum[k] = 0;
#pragma unroll
        for (int j = 0; j < SSCAN_STATES; j++) {
            const float before = CUTS && (cuts >> (from + k) & 1) ? 0.0f : h[j];
            h[j] = exp2_fast(step[k] * rate[j]) * before + drive[k] * B[j];
            if (!EFFECT) sum[k] += C[j] * h[j];
        }
    }
    if (EFFECT) return;
    const float folded = fold_group<sscan_shape<NP>::LANES>(sum);
    if (w.part < SSCAN_GROUP) shared.sum[w.row + from + w.part] = folded;
}

/* Two groups at a time, as far as there are tokens (a stream has one token per call). */
template <int NP, int EFFECT, int CUTS>
static __device__ __forceinline__ void walk_forward(const sscan_walker &w, const float *rate, unsigned cuts, int tokens,
                                                    forward_shared<NP> &shared, float *h)
{
#pragma unroll 1
    for (int from = 0; from < MR_SSCAN_CHUNK && from < tokens; from += 2 * SSCAN_GROUP) {
        walk_group<NP, EFFECT, CUTS>(w, rate, cuts, from, shared, h);
        walk_group<NP, EFFECT, CUTS>(w, rate, cuts, from + SSCAN_GROUP, shared, h);
    }
}

template <class ACT, int NP>
static __device__ __forceinline__ void store_forward(const sscan_args &g, const sscan_stager &s, const sscan_share &c,
                                                     const forward_kept<NP> &kept, const forward_shared<NP> &shared)
{
    const int TOKENS = sscan_shape<NP>::TOKENS;
    ACT *at = (ACT *)g.y + c.at;
    float sum[TOKENS];
    get_tokens<TOKENS>(shared.sum + s.slot, sum);
#pragma unroll
    for (int i = 0; i < TOKENS; i++)
        if (i < c.room) store(at + (size_t)i * g.E, i < c.there ? (sum[i] + kept.skipped[i]) * kept.gate[i] : 0.0f);
}

/* BLOCKS: blocks per multiprocessor at 16 states per channel. */
template <class ACT, int NP, int EFFECT, int BLOCKS>
static __global__ void __launch_bounds__(sscan_shape<NP>::THREADS, BLOCKS * 16 / NP) sscan_forward(sscan_args g)
{
    __shared__ __align__(16) forward_shared<NP> shared;
    const sscan_place p = sscan_place_of(g);
    const sscan_stager s = sscan_stager_of<NP>(g, p);
    const sscan_walker w = sscan_walker_of<NP>(g, false);
    forward_inputs<ACT, NP, EFFECT> in;
    forward_kept<NP> kept;
    float h[SSCAN_STATES], rate[SSCAN_STATES];
    unsigned any_cut = 0;
    in.fetch(g, p, s, p.first);
    const float bias = s.on ? g.dt_bias[s.e] : 0.0f, skip = !EFFECT && s.on ? g.D[s.e] : 0.0f;
    kept.total = 0;
    read_rates(g, w, rate);
    start_forward<EFFECT>(g, p, w, rate, h);
    for (int first = p.first; first < p.last; first += MR_SSCAN_CHUNK) {
        const sscan_share c = sscan_share_of(g, p, s, first);
        stage_forward<ACT, NP, EFFECT>(s, c, in, bias, skip, kept, shared);
        const unsigned cuts = in.bc.resets();
        any_cut |= cuts;
        __syncthreads();
        in.fetch(g, p, s, first + MR_SSCAN_CHUNK);
        if (!EFFECT && g.states) write_states(g.states, chunk_row(g, p, first), g, w, h);
        if (cuts) walk_forward<NP, EFFECT, 1>(w, rate, cuts, p.end - first, shared, h);
        else walk_forward<NP, EFFECT, 0>(w, rate, cuts, p.end - first, shared, h);
        __syncthreads();
        if (!EFFECT) store_forward<ACT, NP>(g, s, c, kept, shared);
    }
    if (EFFECT) write_effect<NP>(g, p, s, w, p.span + 1, kept.total, any_cut != 0, h, shared.sum);
    else if (g.h_out && p.span == g.spans - 1) write_states(g.h_out, p.b, g, w, h);
}

#endif
