/* Types that the arguments of all ops share: device memory, what changes from step to step, dropout. */
#ifndef MR_OPS_TYPES_H
#define MR_OPS_TYPES_H

#include "minrnn_experimental.h" /* mr_cell_kind, mr_candidate, mr_scan, mr_transition */

#include <stddef.h>
#include <stdint.h>

/* Device memory. Layers hold it as pointers to these incomplete types, so that nothing above src/ops/ can read or write
 * it by accident:
 *   mr_act   stored activations and their gradients (float on ref and cpu; may be bf16 on a GPU)
 *   mr_real  parameters, their gradients, states, statistics (float; double on ref64, for gradient checks) */
typedef struct mr_act mr_act;
typedef struct mr_real mr_real;
typedef struct mr_dev mr_dev;

/* What changes from step to step. It lies in device memory, so that a recorded step can be replayed. */
typedef struct mr_step {
    uint64_t seed;
    uint32_t step, micro;
    double lr, beta1, beta2, eps, weight_decay, clip; /* clip 0: none */
    double bias1, bias2;                              /* 1 − beta1^t, 1 − beta2^t */
    int32_t decoupled;                                /* 1: AdamW, 0: Adam with L2 */
    int32_t pad;
} mr_step;

enum { MR_STAT_LOSS, MR_STAT_CORRECT, MR_STAT_COUNT, MR_STATS }; /* sums over rows that count */

typedef struct mr_dropout {
    float p;             /* 0: off */
    uint32_t site;       /* identifies the place in the network, see core/rng.h */
    const mr_step *step; /* [1]; may be NULL when p is 0 */
} mr_dropout;

#endif
