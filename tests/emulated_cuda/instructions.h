/* What the kernels say in PTX. translate.py turns asm("NAME.… …" : outs : ins) into ptx::NAME_…(outs, ins). */
#ifndef EMULATED_INSTRUCTIONS_H
#define EMULATED_INSTRUCTIONS_H

namespace ptx {

/* ---- numbers: exact where the chip approximates; results too small for a normal number are 0, as there */

static inline float flushed(float v) { return fabsf(v) < 1.17549435e-38f ? copysignf(0, v) : v; }
static inline void ex2_approx_ftz_f32(float &y, float x) { y = flushed(exp2f(flushed(x))); }
static inline void rcp_approx_ftz_f32(float &y, float x) { y = flushed(1.0f / flushed(x)); }

/* To 10 bits of mantissa, ties away from zero. */
static inline void cvt_rna_tf32_f32(unsigned &y, float x)
{
    y = __float_as_uint(x);
    if ((y & 0x7f800000u) != 0x7f800000u) y = (y + 0x1000u) & 0xffffe000u;
}

/* ---- copies into shared memory: done when they are waited for, and not before */

void copy_later(void *to, const void *from, size_t bytes, size_t there);
void close_group(void);
void wait_for_groups(int left);

static inline void *in_shared(unsigned address) { return (void *)(uintptr_t)address; }
static inline void cp_async_cg_shared_global(unsigned to, const void *from, int there)
{
    copy_later(in_shared(to), from, 16, (size_t)there);
}
static inline void cp_async_commit_group(void) { close_group(); }
static inline void cp_async_wait_group(int left) { wait_for_groups(left); }
static inline void cp_async_wait_group_0(void) { wait_for_groups(0); }
static inline void prefetch_global_L2(const void *) {}

/* ---- chained launches: a kernel here starts when the one before it is done */

static inline void griddepcontrol_launch_dependents(void) {}
static inline void griddepcontrol_wait(void) {}

/* ---- matrices: four of 8×8 numbers of 16 bits, whose rows the lanes point at, eight lanes a matrix */

template <bool TURNED>
static inline void load_matrices(unsigned &r0, unsigned &r1, unsigned &r2, unsigned &r3, unsigned address)
{
    const char *all = emulated::exchange(emulated::MATRICES, ~0u, &address, sizeof address);
    const int lane = emulated::lane_number(), row = lane / 4, column = lane % 4 * 2;
    unsigned *out[4] = {&r0, &r1, &r2, &r3};
    for (int m = 0; m < 4; m++) {
        unsigned short pair[2];
        for (int i = 0; i < 2; i++) {
            const int of = TURNED ? column + i : row, at = TURNED ? row : column + i;
            unsigned start;
            memcpy(&start, all + (8 * m + of) * emulated::OF_LANE, sizeof start);
            if (start % 16) emulated::stop("loads a matrix from an address that is not aligned");
            pair[i] = ((const unsigned short *)in_shared(start))[at];
        }
        *out[m] = pair[0] | (unsigned)pair[1] << 16;
    }
    __syncwarp(); /* nobody overwrites a row before all have read it: the chip reads in one go */
}

static inline void ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned &r0, unsigned &r1, unsigned &r2, unsigned &r3,
                                                            unsigned address)
{
    load_matrices<false>(r0, r1, r2, r3, address);
}

static inline void ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned &r0, unsigned &r1, unsigned &r2,
                                                                  unsigned &r3, unsigned address)
{
    load_matrices<true>(r0, r1, r2, r3, address);
}

/* ---- products of a warp: c [16, 8] += a [16, K] · b [K, 8]. A lane 4·g + q holds c of rows g and g + 8, columns 2q
 * and 2q + 1; words q and q + 4 of rows g and g + 8 of a, and of column g of b. A word is one tf32 or two bf16. */

static inline float tf32_product(unsigned a, unsigned b)
{
    return __uint_as_float(a & 0xffffe000u) * __uint_as_float(b & 0xffffe000u);
}

static inline float bf16_product(unsigned a, unsigned b)
{
    return __uint_as_float(a << 16) * __uint_as_float(b << 16) +
           __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
}

template <class F>
static inline void multiply(F product, float &c0, float &c1, float &c2, float &c3, unsigned a0, unsigned a1,
                            unsigned a2, unsigned a3, unsigned b0, unsigned b1)
{
    const unsigned mine[6] = {a0, a1, a2, a3, b0, b1};
    const char *all = emulated::exchange(emulated::MATRICES, ~0u, mine, sizeof mine);
    const int lane = emulated::lane_number(), g = lane / 4, q = lane % 4;
    float *c[4] = {&c0, &c1, &c2, &c3};
    for (int i = 0; i < 4; i++) {
        const int column = 2 * q + i % 2;
        float sum = 0;
        for (int k = 0; k < 8; k++) {
            unsigned a[6], b[6];
            memcpy(a, all + (4 * g + k % 4) * emulated::OF_LANE, sizeof a);
            memcpy(b, all + (4 * column + k % 4) * emulated::OF_LANE, sizeof b);
            sum += product(a[i / 2 + k / 4 * 2], b[4 + k / 4]);
        }
        *c[i] += sum;
    }
}

static inline void mma_sync_aligned_m16n8k8_row_col_f32_tf32_tf32_f32(float &c0, float &c1, float &c2, float &c3,
                                                                      unsigned a0, unsigned a1, unsigned a2,
                                                                      unsigned a3, unsigned b0, unsigned b1)
{
    multiply(tf32_product, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1);
}

static inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float &c0, float &c1, float &c2, float &c3,
                                                                       unsigned a0, unsigned a1, unsigned a2,
                                                                       unsigned a3, unsigned b0, unsigned b1)
{
    multiply(bf16_product, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1);
}

} // namespace ptx

#endif
