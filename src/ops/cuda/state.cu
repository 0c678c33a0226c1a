/* Moves states of streams between a pool and a batch, in one launch. */
#include "ops/cuda/cuda.cuh"

enum { THREADS = 256, MOST_ROWS = 65535, MOST_CHUNKS = 64 };

/* Sizes in elements of V: float, or float4 where addresses and sizes allow it. */
struct row_shape {
    int B, layers, tail, mixer, rest, scatter;
};

/* blockIdx.y: one block of one row, so that both reads and writes are coalesced. Slots are read when the kernel runs: a
 * replayed recording moves the rows that `slot` names then. */
template <class V> static __global__ void move_rows(row_shape s, const int32_t *slot, V *pool, V *many)
{
    const int width = s.tail + s.mixer + s.rest, first = blockIdx.x * blockDim.x + threadIdx.x;
    for (int y = blockIdx.y; y < s.B * s.layers; y += gridDim.y) {
        const int row = y / s.layers, layer = y % s.layers;
        V *one = pool + ((size_t)slot[row] * s.layers + layer) * width;
        V *tails = many + (size_t)layer * width * s.B;
        V *mixers = tails + (size_t)s.tail * s.B, *rests = mixers + (size_t)s.mixer * s.B;
        tails += (size_t)row * s.tail, mixers += (size_t)row * s.mixer, rests += (size_t)row * s.rest;
        for (int i = first; i < width; i += gridDim.x * blockDim.x) {
            V *there = i < s.tail             ? tails + i
                       : i - s.tail < s.mixer ? mixers + (i - s.tail)
                                              : rests + (i - s.tail - s.mixer);
            if (s.scatter) one[i] = *there;
            else *there = one[i];
        }
    }
}

template <class V> static void launch(mr_cuda *c, const mr_state_rows_args *a)
{
    const int size = (int)(sizeof(V) / sizeof(float));
    const row_shape s = {a->B, a->layers, a->tail / size, a->mixer / size, a->rest / size, a->scatter};
    const size_t width = (size_t)(s.tail + s.mixer + s.rest), rows = (size_t)a->B * (size_t)a->layers;
    const size_t threads = width < THREADS ? div_up(width, 32) * 32 : THREADS, chunks = div_up(width, threads);
    const dim3 grid((unsigned)(chunks < MOST_CHUNKS ? chunks : MOST_CHUNKS),
                    (unsigned)(rows < MOST_ROWS ? rows : MOST_ROWS));
    move_rows<V><<<grid, (unsigned)threads, 0, c->stream>>>(s, a->slot, (V *)a->pool, (V *)a->many);
    LAUNCHED(c, "state_rows");
}

static void state_rows(mr_dev *dev, const mr_state_rows_args *a)
{
    const uintptr_t addresses = (uintptr_t)a->pool | (uintptr_t)a->many;
    if (a->tail + a->mixer + a->rest == 0) return;
    if ((a->tail | a->mixer | a->rest) % 4 == 0 && addresses % sizeof(float4) == 0) launch<float4>(cuda_of(dev), a);
    else launch<float>(cuda_of(dev), a);
}

void mr_cuda_state_ops(mr_ops *ops) { ops->state_rows = state_rows; }
