/* Random numbers: Philox4x32-10, a counter-based generator. A draw is a pure function of the seed and of the place
 * where it is used, so a resumed run, another thread count or another backend draws the same numbers. */
#ifndef MR_CORE_RNG_H
#define MR_CORE_RNG_H

#include <stdint.h>

/* Also compiled for GPUs, so that every backend shares this code. */
#ifdef __CUDACC__
#define MR_INLINE __host__ __device__ static inline
#else
#define MR_INLINE static inline
#endif

typedef struct mr_u32x4 {
    uint32_t v[4];
} mr_u32x4;

MR_INLINE mr_u32x4 mr_philox(uint64_t seed, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    mr_u32x4 out = {{c0, c1, c2, c3}};
    return out;
}

/* The second counter word: what the numbers are for. Dropout sites are 0, 1, 2, …; all other uses are above them. */
enum {
    MR_STREAM_INIT = 0x40000000,
    MR_STREAM_TRAIN = 0x50000000,
    MR_STREAM_EVAL = 0x60000000,
    MR_STREAM_SAMPLE = 0x70000000,
    MR_STREAM_ENV = 0x78000000, /* the first state of an episode of control */
    MR_STREAM_ACT = 0x79000000  /* the noise in its actions */
};

/* Dropout keeps element i of a site when this is below round((1 − p)·2³²). */
MR_INLINE uint32_t mr_dropout_bits(uint64_t seed, uint32_t step, uint32_t micro, uint32_t site, uint64_t i)
{
    return mr_philox(seed, (uint32_t)(i / 4), site, micro, step).v[i % 4];
}

/* Generation: uniform in [0, 1), for the token at `position` of stream `row`. Row 0 equals the first draw of
 * mr_rng_at(seed, MR_STREAM_SAMPLE, position). */
MR_INLINE double mr_sample_uniform(uint64_t seed, uint64_t position, uint32_t row)
{
    const mr_u32x4 x = mr_philox(seed, row, MR_STREAM_SAMPLE, (uint32_t)position, (uint32_t)(position >> 32));
    return (double)(((uint64_t)x.v[0] << 32 | x.v[1]) >> 11) / 9007199254740992.0;
}

/* A sequence of draws for host code, identified by its seed and place (stream, a, b). */
typedef struct mr_rng {
    uint64_t seed;
    uint32_t stream, a, b, next;
    int left;
    mr_u32x4 block;
} mr_rng;

mr_rng mr_rng_at(uint64_t seed, uint32_t stream, uint32_t a, uint32_t b);
uint32_t mr_rng_u32(mr_rng *rng);
uint32_t mr_rng_below(mr_rng *rng, uint32_t n); /* uniform in 0 … n−1, without bias; n ≥ 1 */
uint64_t mr_rng_below64(mr_rng *rng, uint64_t n);
double mr_rng_uniform(mr_rng *rng); /* in [0, 1) */
double mr_rng_normal(mr_rng *rng);  /* N(0, 1) */

#endif
