/* Host code that the forward and backward of GRU and LSTM share: packing W_hh, and choosing the number of blocks. */
#include "ops/cuda/rnn.cuh"

static __global__ void pack(const float *W, int H, int first, int K, int columns, int down, int k4, int groups,
                            float *packed)
{
    const size_t per_group = (size_t)k4 * columns * LANES * 4, i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i >= per_group * groups) return;
    const int group = (int)(i / per_group), lane = (int)(i / 4 % LANES), column = (int)(i / (4 * LANES) % columns);
    const int k = (int)(i % per_group / ((size_t)4 * LANES * columns)) * 4 + (int)(i % 4);
    const int unit = down ? (group * columns + column) * LANES + lane : group * LANES + lane;
    const size_t row = down ? (size_t)first * H + k : (size_t)(first + column) * H + unit;
    packed[i] = k < K && unit < H ? W[row * H + (down ? unit : k)] : 0;
}

void mr_cuda_rnn_pack(mr_cuda *c, const float *W, int H, int first, int K, int columns, int down, const rnn_matrix *m,
                      float4 *packed)
{
    const size_t n = (size_t)m->groups * WARPS * m->k4 * columns * LANES * 4;
    pack<<<(unsigned)div_up(n, 256), 256, 0, c->stream>>>(W, H, first, K, columns, down, WARPS * m->k4, m->groups,
                                                          (float *)packed);
    LAUNCHED(c, "rnn pack");
}

rnn_matrix mr_cuda_rnn_matrix(int H, int K, int units)
{
    rnn_matrix m = {};
    m.k4 = (int)div_up((size_t)K, 4 * WARPS);
    m.groups = (int)div_up((size_t)H, (size_t)units);
    return m;
}

size_t mr_cuda_rnn_matrix_bytes(const rnn_matrix *m, int columns)
{
    return (size_t)m->groups * WARPS * m->k4 * columns * LANES * sizeof(float4);
}

/* All blocks must be resident at once, because they wait for each other: first few groups per block, then as many
 * rows as there are blocks for. */
void mr_cuda_rnn_launch(mr_cuda *c, const void *kernel, rnn_work *w, int columns, int slice, const char *name)
{
    const int all_tiles = (int)div_up((size_t)w->B, TILE), all_groups = w->first.groups;
    int most = 0, across = 0, down = 0;
    size_t shared = 0;
    CHECK(c, cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, c->index));
    for (w->groups = 1;; w->groups *= 2) {
        int blocks = 0;
        shared = rnn_shared_bytes(columns, w->groups * slice);
        w->resident = shared <= (size_t)most;
        if (!w->resident) shared = rnn_shared_bytes(columns, 0);
        cudaError_t error = mr_cuda_allow_shared(kernel, shared);
        if (error == cudaSuccess)
            error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, THREADS, shared);
        if (error != cudaSuccess || blocks == 0) {
            mr_cuda_note(c, error == cudaSuccess ? cudaErrorLaunchOutOfResources : error, name);
            return;
        }
        across = (int)div_up((size_t)all_groups, (size_t)w->groups);
        if (across > blocks * c->sms) continue;
        down = blocks * c->sms / across < all_tiles ? blocks * c->sms / across : all_tiles;
        break;
    }
    w->tiles = (int)div_up((size_t)all_tiles, (size_t)down);
    down = (int)div_up((size_t)all_tiles, (size_t)w->tiles);
    CHECK(c, cudaMemsetAsync(w->arrived, 0, (size_t)down * sizeof *w->arrived, c->stream));
    void *args[] = {w};
    mr_cuda_note(c,
                 cudaLaunchCooperativeKernel(kernel, dim3((unsigned)across, (unsigned)down), dim3(THREADS), args,
                                             shared, c->stream),
                 name);
}

size_t mr_cuda_rnn_saved(mr_dev *dev, mr_rnn kind, int B, int T, int H)
{
    return div_up((size_t)B * (size_t)T * (size_t)H * (size_t)(mr_rnn_gates(kind) + 1) * dev->act_size, 256) * 256;
}

void *mr_cuda_rnn_take(char *base, size_t *used, size_t bytes)
{
    void *at = base ? base + *used : NULL;
    *used += div_up(bytes, 256) * 256;
    return at;
}

void mr_cuda_rnn_ops(mr_ops *ops)
{
    ops->rnn_fwd = mr_cuda_rnn_fwd;
    ops->rnn_bwd = mr_cuda_rnn_bwd;
}
