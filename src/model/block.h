/* One block of the stack: (x += conv(x)) → x += drop(down(mixer(conv(norm(x))))) → x += drop(mlp(norm(x))). */
#ifndef MR_MODEL_BLOCK_H
#define MR_MODEL_BLOCK_H

#include "model/mixer.h"

typedef struct mr_block {
    int index;
    /* rows of the parameter table, −1 where the configuration has none; a bias that has no name here is the row after
     * its weight; up: the gate's, where there is one */
    int conv, point, norm1, down, down_bias, norm2, up, up_bias, mlp, mlp_bias;
    void *mixer; /* the mixer's layer */
    /* Activations of N = B·T tokens. Without training, all blocks share them, and x, x1, x2, out are one buffer. */
    mr_act *x;                /* [N, D] the block's input */
    mr_act *conv_y;           /* [N, D] after the depthwise convolution */
    mr_act *x1;               /* [N, D] after the residual convolution; x if there is none */
    mr_act *u;                /* [N, D] normed */
    mr_act *h;                /* [N, H] the mixer's output */
    mr_act *x2;               /* [N, D] after the mixer; out if there is no MLP */
    mr_act *v;                /* [N, D] normed */
    mr_act *pre, *act;        /* [N, F or, gated, 2·F] and [N, F]: before and after the activation; pre may be NULL */
    mr_act *out;              /* [N, D] the next block's input */
    mr_real *stat1, *stat2;   /* [N, 2] */
    size_t tail_at, mixer_at; /* where this block's state begins: reals per stream before it */
} mr_block;

/* Gradients during the backward, shared by all blocks. */
typedef struct mr_scratch {
    mr_act *d;      /* [N, D] of the residual stream, updated block by block */
    mr_act *branch; /* [N, D] */
    mr_act *inner;  /* [N, D] */
    mr_act *dh;     /* [N, H] */
    mr_act *wide;   /* [N, F] */
} mr_scratch;

/* One block's part of a state. Each pointer may be NULL. */
typedef struct mr_block_state {
    const mr_real *tail_in, *mixer_in;
    mr_real *tail_out, *mixer_out;
} mr_block_state;

/* Adds the block's parameters to the table. Its memory comes from the table's allocator. 0 or MR_ENOMEM. */
int mr_block_init(mr_block *block, int index, const mr_config *config, mr_params *params);
void mr_block_free(mr_block *block, const mr_allocator *allocator);
size_t mr_block_state_reals(const mr_config *config);
/* The same in the three parts of mr_state_rows_args: the convolution's tail, the mixer's state and the rest of that. A
 * state of B streams has each part of all streams together. */
enum { MR_STATE_PARTS = 3 };
void mr_block_state_parts(const mr_config *config, size_t parts[MR_STATE_PARTS]);

/* Takes the block's buffers from the arena; block->x must be set. keep: keep what the backward needs; otherwise the
 * residual stream stays in block->x. own_output 0: the output comes later, by mr_block_put_output. */
void mr_block_plan(mr_block *block, const mr_config *config, mr_dev *dev, mr_arena *arena, int B, int T, int keep,
                   int own_output);
void mr_block_put_output(mr_block *block, const mr_config *config, mr_act *output);

/* How far a forward goes: to the state after the batch, to all that the backward reads, or to the block's output. */
typedef enum mr_block_end { MR_BLOCK_STATE, MR_BLOCK_KEPT, MR_BLOCK_OUTPUT } mr_block_end;
void mr_block_forward_to(mr_block *block, const mr_pass *pass, const mr_block_state *state, mr_block_end end);
void mr_block_forward(mr_block *block, const mr_pass *pass, const mr_block_state *state);

/* Gradients of a state: of the state after the batch (…_out, NULL: zero) and of that before it (…_in, NULL: not
 * needed). */
typedef struct mr_block_state_grad {
    const mr_real *tail_out, *mixer_out;
    mr_real *tail_in, *mixer_in;
} mr_block_state_grad;
void mr_block_backward(mr_block *block, const mr_pass *pass, const mr_scratch *scratch, const mr_block_state *state,
                       const mr_block_state_grad *grad);

#endif
