/* What lucidrains' minGRU-pytorch and the authors' code have in common: the candidate and the gates of minGRU and
 * minLSTM are the rows of one matrix, and the gain of older norms is stored as gamma, which stands for gamma + 1. */
#ifndef MR_APP_WEIGHTS_GATES_H
#define MR_APP_WEIGHTS_GATES_H

#include "weights/transfer.h"

/* The epsilon of nn.RMSNorm in fp32, and one for F.normalize, which has none that matters. */
#define MR_EPS_TORCH "1.1920929e-07"
#define MR_EPS_TINY "1e-24"

/* The settings of such a recurrence. */
void mr_gates_set(mr_transfer *t, int lstm);
/* Both ways: theirs is the rows h, z or h, f, i of a block. what: "weight", "bias". columns 0: all that ours reads,
 * otherwise the first ones. */
void mr_move_gates(mr_transfer *t, const char *theirs, int block, int lstm, const char *what, int64_t columns);
/* Both ways: PREFIX.weight, or when importing PREFIX.gamma. */
void mr_move_gain(mr_transfer *t, const char *prefix, const char *ours);
/* Both ways: the causal convolution before a block, with its pointwise part: PREFIX.net.0 and PREFIX.net.1. */
void mr_move_conv(mr_transfer *t, const char *prefix, int block);

#endif
