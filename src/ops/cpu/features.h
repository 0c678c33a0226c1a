/* What the processor can do, asked once. */
#ifndef MR_OPS_CPU_FEATURES_H
#define MR_OPS_CPU_FEATURES_H

enum {
    MR_HAS_AVX2 = 1,   /* and FMA */
    MR_HAS_AVX512 = 2, /* F, DQ, BW and VL */
    MR_HAS_AVX512_VNNI = 4,
    MR_HAS_AVX_VNNI = 8
};

/* A sum of the above; 0 on other processors than x86-64. */
int mr_cpu_features(void);

#endif
