/* The ops minrnn_fwd, minrnn_bwd and minrnn_effect: projection by a product, gates and recurrence by the kernels of
 * scan_kernels.cuh. */
#include "ops/cuda/scan_launch.cuh"

template <int CAND>
static __global__ void add_start_grad(int rows, int H, const float *to_start, const float *h_init, int fresh,
                                      float *dh_init)
{
    int ch = blockIdx.x * blockDim.x + threadIdx.x;
    if (ch >= H) return;
    float sum = 0;
    for (int r = 0; r < rows; r++) sum += to_start[(size_t)r * H + ch];
    sum *= candidate_slope<CAND>(h_init[ch], candidate<CAND>(h_init[ch]));
    dh_init[ch] = fresh ? sum : dh_init[ch] + sum;
}

void mr_cuda_start_grad(mr_cuda *c, mr_candidate candidate, int rows, int H, const float *to_start, const float *h_init,
                        int fresh, float *dh_init)
{
    const unsigned blocks = (unsigned)div_up((size_t)H, 128);
    if (candidate == MR_POSITIVE)
        add_start_grad<MR_POSITIVE><<<blocks, 128, 0, c->stream>>>(rows, H, to_start, h_init, fresh, dh_init);
    else if (candidate == MR_LINEAR)
        add_start_grad<MR_LINEAR><<<blocks, 128, 0, c->stream>>>(rows, H, to_start, h_init, fresh, dh_init);
    else add_start_grad<MR_TANH><<<blocks, 128, 0, c->stream>>>(rows, H, to_start, h_init, fresh, dh_init);
    LAUNCHED(c, "add_start_grad");
}

/* ---- launches ---- */

/* Splits time into chunks until there are enough blocks for the chip; depends only on the shape. */
static void cut_time(scan_args *g)
{
    const size_t enough = 528, blocks = (size_t)g->B * div_up((size_t)g->H, 32 * PAIR);
    size_t chunks = 2 * blocks <= enough ? enough / blocks : 1;
    size_t span = div_up(div_up((size_t)g->T, chunks), TILE) * TILE;
    if (span < 2 * TILE) span = 2 * TILE;
    if (chunks == 1) span = div_up((size_t)g->T, TILE) * TILE;
    g->span = (int)span;
    g->chunks = (int)div_up((size_t)g->T, span);
}

template <class ACT> static void by_kind(mr_cuda *c, const mr_cell *cell, const scan_args &g, scan_way way)
{
    if (cell->transition == MR_TRANSITION_SIGNED) mr_cuda_scan_signed(c, cell, g, way);
    else if (cell->kind == MR_MINGRU) by_candidate<ACT, GRU>(c, cell, g, way);
    else if (cell->normalize) by_candidate<ACT, LSTM_NORM>(c, cell, g, way);
    else by_candidate<ACT, LSTM>(c, cell, g, way);
}

static size_t pre_bytes(mr_dev *dev, const mr_cell *cell, int B, int T, int H)
{
    return div_up((size_t)B * (size_t)T * (size_t)H * (size_t)mr_cell_gates(cell) * dev->act_size, 256) * 256;
}

size_t mr_cuda_minrnn_saved(mr_dev *dev, const mr_cell *cell, int B, int T, int D, int H)
{
    return mr_cuda_fusable(cuda_of(dev), cell, D, H) ? 0 : pre_bytes(dev, cell, B, T, H);
}

size_t mr_cuda_scan_work(mr_dev *dev, int B, int T, int H)
{
    const size_t most_gates = 3, given = mr_cuda_given_work(B, T, H);
    scan_args g = {};
    (void)dev;
    g.B = B, g.T = T, g.H = H;
    cut_time(&g);
    const size_t own = (3 + most_gates) * (size_t)B * (size_t)g.chunks * (size_t)H * sizeof(float);
    return own > given ? own : given;
}

size_t mr_cuda_recompute_scratch(mr_dev *dev, const mr_cell *cell, int B, int T, int H)
{
    scan_args g = {};
    g.B = B, g.T = T, g.H = H;
    cut_time(&g);
    const size_t n = (size_t)B * (size_t)g.chunks * (size_t)H;
    return pre_bytes(dev, cell, B, T, H) + (3 + (size_t)mr_cell_gates(cell)) * n * sizeof(float);
}

/* Takes memory for effects of chunks and sums of the backward, from the caller's `work` or from scratch; pre: bytes of
 * pre-activations that are not kept. */
static int take_scratch(mr_cuda *c, scan_args *g, void *work, int starts_wanted, int gates, size_t pre)
{
    const size_t n = (size_t)g->B * (size_t)g->chunks * (size_t)g->H;
    char *all = (char *)(work && !pre ? work : mr_cuda_scratch(c, pre + (3 + (size_t)gates) * n * sizeof(float)));
    if (!all) return 0;
    if (pre) g->pre = all;
    float *room = (float *)(all + pre);
    g->effect_A = room;
    g->effect_B = room + n;
    g->to_start = starts_wanted ? room + 2 * n : NULL;
    g->bias_sums = gates ? room + 3 * n : NULL;
    return 1;
}

static void minrnn_fwd(mr_dev *dev, const mr_minrnn_fwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    const int recompute = a->W && mr_cuda_fusable(c, &a->cell, a->D, a->H);
    if (recompute && mr_cuda_fused_fwd(c, a)) return;
    scan_args g = {};
    g.B = a->B, g.T = a->T, g.H = a->H, g.pre = a->saved, g.h = a->h, g.h_in = (const float *)a->h_in,
    g.h_init = (const float *)a->h_init;
    g.h_out = (float *)a->h_out, g.reset = a->reset, g.length = a->length;
    cut_time(&g);
    if (!take_scratch(c, &g, a->work, 0, 0, recompute ? pre_bytes(dev, &a->cell, a->B, a->T, a->H) : 0)) return;
    if (a->W)
        mr_cuda_product_fwd(c, a->B * a->T, a->H * mr_cell_gates(&a->cell), a->D, a->x, (const float *)a->W,
                            (const float *)a->b, 0, NULL, NULL, g.pre);
    const size_t states = (size_t)a->B * (size_t)a->H;
    /* h_out may be h_in, which every chunk reads: write it elsewhere first */
    if (g.chunks > 1 && g.h_out) g.h_out = g.effect_B + states * (size_t)g.chunks;
    BY_ACT(c, by_kind, c, &a->cell, g, SCAN_UP);
    if (g.chunks > 1 && a->h_out)
        CHECK(c, cudaMemcpyAsync(a->h_out, g.h_out, states * sizeof(float), cudaMemcpyDeviceToDevice, c->stream));
}

static void minrnn_bwd(mr_dev *dev, const mr_minrnn_bwd_args *a)
{
    mr_cuda *c = cuda_of(dev);
    const int M = a->B * a->T, gates = mr_cell_gates(&a->cell), N = a->H * gates,
              recompute = a->W && mr_cuda_fusable(c, &a->cell, a->D, a->H);
    if (recompute && mr_cuda_fused_bwd(c, a)) return;
    scan_args g = {};
    g.B = a->B, g.T = a->T, g.H = a->H, g.pre = a->saved, g.h = (void *)a->h, g.h_in = (const float *)a->h_in,
    g.h_init = (const float *)a->h_init;
    g.reset = a->reset, g.length = a->length, g.dh = a->dh, g.dh_out = (const float *)a->dh_out,
    g.dh_in = (float *)a->dh_in;
    cut_time(&g);
    if (!take_scratch(c, &g, a->work, a->dh_init != NULL, a->W ? gates : 0,
                      recompute ? pre_bytes(dev, &a->cell, a->B, a->T, a->H) : 0))
        return;
    if (recompute)
        mr_cuda_product_fwd(c, M, N, a->D, a->x, (const float *)a->W, (const float *)a->b, 0, NULL, NULL, g.pre);
    BY_ACT(c, by_kind, c, &a->cell, g, SCAN_DOWN);
    if (a->dh_init)
        mr_cuda_start_grad(c, a->cell.candidate, g.B * g.chunks, g.H, g.to_start, g.h_init, a->fresh,
                           (float *)a->dh_init);
    if (!a->W) return;
    if (a->db)
        mr_cuda_reduce(c, g.bias_sums, (size_t)a->B * (size_t)g.chunks, (size_t)N, (size_t)N, a->fresh, (float *)a->db);
    if (a->dx) mr_cuda_product_dx(c, M, N, a->D, g.pre, N, (const float *)a->W, NULL, a->accumulate, a->dx);
    mr_cuda_product_dw(c, M, N, a->D, g.pre, N, a->x, a->fresh, (float *)a->dW, NULL);
}

/* The effect of all chunks together. */
static __global__ void join_chunks(scan_args g, bool down, float *A, float *C)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x, b = i / g.H, ch = i % g.H;
    if (b >= g.B) return;
    float whole = 1, state = 0;
    for (int k = 0; k < g.chunks; k++) {
        const size_t at = ((size_t)b * g.chunks + (down ? g.chunks - 1 - k : k)) * g.H + ch;
        state = apply<1>(g.effect_A[at], g.effect_B[at], state);
        whole = join<1>(g.effect_A[at], whole);
    }
    A[i] = forgets(whole) ? 0.0f : whole;
    C[i] = state;
}

static void minrnn_effect(mr_dev *dev, const mr_minrnn_effect_args *a)
{
    mr_cuda *c = cuda_of(dev);
    scan_args g = {};
    g.B = a->B, g.T = a->T, g.H = a->H, g.pre = (void *)a->pre, g.h_init = (const float *)a->h_init;
    g.reset = a->reset, g.length = a->length, g.dh = a->dh;
    cut_time(&g);
    if (!take_scratch(c, &g, NULL, 0, 0, 0)) return;
    BY_ACT(c, by_kind, c, &a->cell, g, a->dh ? EFFECT_DOWN : EFFECT_UP);
    join_chunks<<<(unsigned)div_up((size_t)a->B * (size_t)a->H, 128), 128, 0, c->stream>>>(
        g, a->dh != NULL, (float *)a->A, (float *)a->C);
    LAUNCHED(c, "join_chunks");
}

void mr_cuda_minrnn_ops(mr_ops *ops)
{
    ops->minrnn_effect = minrnn_effect;
    ops->minrnn_fwd = minrnn_fwd;
    ops->minrnn_bwd = minrnn_bwd;
}
