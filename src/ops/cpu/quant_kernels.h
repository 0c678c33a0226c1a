/* The tables of 8-bit kernels, by the instructions they need. */
#ifndef MR_OPS_CPU_QUANT_KERNELS_H
#define MR_OPS_CPU_QUANT_KERNELS_H

#include "ops/cpu/quant.h"

extern const mr_quant_kernels mr_quant_plain;
#if defined(__x86_64__)
extern const mr_quant_kernels mr_quant_avx2, mr_quant_avx512; /* products of 16 bits */
extern const mr_quant_kernels mr_quant_avx2_vnni, mr_quant_avx512_vnni;
#endif

#endif
