/* Causal attention over a sliding window as a mixer: one projection to queries, keys and values, then the attention
 * ops. The output projection is the block's `down`. */
#include "model/mixer.h"

#include <math.h>

extern const mr_mixer mr_mixer_attention;

typedef struct layer {
    int weight, bias, position; /* rows of in_proj, and of the learned positions or −1 */
    mr_act *placed;             /* [N, D] the input plus learned positions; else NULL */
    mr_act *qkv;                /* [N, 3·D]; the backward replaces it by its gradient */
    int32_t *ids;               /* [N] each token's row in the table of positions */
    mr_real *lse;               /* [B, heads, T] */
} layer;

static int width(const mr_config *c) { return (int)c->dim; }

/* The state: the cache [B, window, 2, D] of all streams, then a count [B] of the tokens that each has seen. */
static size_t cache_reals(const mr_config *c) { return (size_t)c->window * 2 * (size_t)c->dim; }
static size_t state_reals(const mr_config *c) { return cache_reals(c) + 1; }

static size_t state_rest(const mr_config *c)
{
    (void)c;
    return 1; /* the count */
}

static mr_real *counts_of(const mr_pass *p, const mr_real *state)
{
    return state ? mr_real_at(p->dev, (mr_real *)state, (size_t)p->B * cache_reals(p->config)) : NULL;
}

static void add_params(void *own, const mr_config *c, int block, const char *prefix, mr_params *params)
{
    (void)block;
    layer *l = own;
    double bound = 1 / sqrt((double)c->dim);
    l->weight =
        mr_params_add(params, prefix, "in_proj_weight", 0, MR_INIT_UNIFORM, bound, 2, (int64_t[]){3 * c->dim, c->dim});
    l->bias = -1;
    if (c->mixer_bias)
        l->bias = mr_params_add(params, prefix, "in_proj_bias", 0, MR_INIT_UNIFORM, bound, 1, (int64_t[]){3 * c->dim});
    l->position = -1;
    if (c->positions != MR_POSITIONS_LEARNED) return;
    l->position = mr_params_add(params, prefix, "position", 0, MR_INIT_NORMAL, 0.02, 2, (int64_t[]){c->window, c->dim});
    mr_params_flag(params, l->position, MR_PARAM_F32);
}

static void plan(void *own, const mr_config *c, mr_dev *dev, mr_arena *arena, int B, int T)
{
    layer *l = own;
    size_t N = (size_t)B * (size_t)T, row = N * (size_t)c->dim * dev->act_size;
    if (l->position >= 0) {
        l->placed = mr_arena_take(arena, row);
        l->ids = mr_arena_take(arena, N * sizeof *l->ids);
    }
    l->qkv = mr_arena_take(arena, 3 * row);
    l->lse = mr_arena_take(arena, N * (size_t)mr_config_heads(c) * dev->real_size);
}

static mr_attn shape_of(const mr_pass *p)
{
    int heads = mr_config_heads(p->config);
    return (mr_attn){.B = p->B,
                     .T = p->T,
                     .heads = heads,
                     .size = (int)p->config->dim / heads,
                     .window = (int)p->config->window,
                     .rotary = p->config->positions == MR_POSITIONS_ROTARY};
}

static void forward(void *own, const mr_pass *p, const mr_act *x, mr_act *y, const mr_real *state_in,
                    mr_real *state_out)
{
    layer *l = own;
    int D = (int)p->config->dim;
    if (l->placed)
        p->dev->ops.position_fwd(p->dev, &(mr_position_fwd_args){.B = p->B,
                                                                 .T = p->T,
                                                                 .D = D,
                                                                 .window = (int)p->config->window,
                                                                 .x = x,
                                                                 .table = mr_weight(p, l->position),
                                                                 .count_in = counts_of(p, state_in),
                                                                 .reset = p->reset,
                                                                 .ids = l->ids,
                                                                 .y = l->placed});
    mr_linear(p, l->weight,
              (mr_linear_fwd_args){.M = p->B * p->T,
                                   .N = 3 * D,
                                   .K = D,
                                   .x = l->placed ? l->placed : x,
                                   .b = mr_weight(p, l->bias),
                                   .y = l->qkv});
    p->dev->ops.attn_fwd(p->dev, &(mr_attn_fwd_args){.shape = shape_of(p),
                                                     .qkv = l->qkv,
                                                     .cache_in = state_in,
                                                     .count_in = counts_of(p, state_in),
                                                     .reset = p->reset,
                                                     .length = p->length,
                                                     .y = y,
                                                     .lse = l->lse,
                                                     .cache_out = state_out,
                                                     .count_out = counts_of(p, state_out)});
}

static void backward(void *own, const mr_pass *p, const mr_act *x, const mr_act *y, const mr_act *dy, mr_act *dx,
                     const mr_real *state_in, const mr_real *dstate_out, mr_real *dstate_in)
{
    layer *l = own;
    int N = p->B * p->T, D = (int)p->config->dim;
    p->dev->ops.attn_bwd(p->dev, &(mr_attn_bwd_args){.shape = shape_of(p),
                                                     .qkv = l->qkv,
                                                     .cache_in = state_in,
                                                     .count_in = counts_of(p, state_in),
                                                     .reset = p->reset,
                                                     .length = p->length,
                                                     .y = y,
                                                     .lse = l->lse,
                                                     .dy = dy,
                                                     .dcache_out = dstate_out,
                                                     .dcache_in = dstate_in,
                                                     .dcount_in = counts_of(p, dstate_in)});
    mr_linear_bwd(
        p, l->weight,
        (mr_linear_bwd_w_args){
            .M = N, .N = 3 * D, .K = D, .dy = l->qkv, .x = l->placed ? l->placed : x, .db = mr_grad(p, l->bias)},
        NULL, dx);
    if (l->placed)
        p->dev->ops.embed_bwd(p->dev, &(mr_embed_bwd_args){.N = N,
                                                           .D = D,
                                                           .vocab = (int)p->config->window,
                                                           .ids = l->ids,
                                                           .dy = dx,
                                                           .dtable = mr_grad(p, l->position)});
}

const mr_mixer mr_mixer_attention = {"attention", sizeof(layer), width,    state_reals, add_params,
                                     plan,        forward,       backward, state_rest,  0};
