/* Mamba's S6 layer as a mixer: input projection, short convolution, SiLU, projections of step size, B and C, selective
 * scan with skip and gate. The output projection is the block's `down`. Projections that are one tensor in the file are
 * computed in two parts, so that every array that a later op reads is contiguous. */
#include "model/mixer.h"
#include "model/sequence.h"

extern const mr_mixer mr_mixer_mamba;

enum { CHANNELS_A_RANK = 16 };

typedef struct layer {
    int in_proj, conv, x_proj, dt_proj, A_log, D; /* rows of the table; a bias is the row after its weight */
    mr_act *x, *z;                                /* [N, E] the halves of the input projection */
    mr_act *conv_y, *u;                           /* [N, E] before and after the SiLU */
    mr_act *dt, *bc;                              /* [N, R], [N, 2·states] */
    mr_act *delta;                                /* [N, E] */
    mr_real *states;                              /* of mr_sscan_fwd_args */
    mr_act *du, *ddt;                             /* [N, E], [N, R] gradients */
} layer;

/* The sizes that the functions below need. */
typedef struct sizes {
    int D, E, R, S, taps, tokens; /* stream, channels, rank of the step sizes, states */
} sizes;

static sizes sizes_of(const mr_config *c, int B, int T)
{
    const int D = (int)c->dim, rank = c->dt_rank ? (int)c->dt_rank : (D + CHANNELS_A_RANK - 1) / CHANNELS_A_RANK;
    return (sizes){D, mr_config_width(c), rank, (int)c->states, (int)c->mixer_conv, B * T};
}

static size_t tail_reals(const mr_config *c) { return (size_t)mr_config_width(c) * ((size_t)c->mixer_conv - 1); }

static size_t state_reals(const mr_config *c) { return tail_reals(c) + (size_t)mr_config_width(c) * (size_t)c->states; }

static size_t state_rest(const mr_config *c) { return (size_t)mr_config_width(c) * (size_t)c->states; }

/* A state is the convolution's tails [B, taps − 1, E], then the scan's [B, states, E]. */
static mr_real *scan_part(const mr_pass *p, const mr_real *state)
{
    return state ? mr_real_at(p->dev, (mr_real *)state, (size_t)p->B * tail_reals(p->config)) : NULL;
}

static int add_rate(mr_params *params, const char *prefix, const char *name, mr_init init, int ndim,
                    const int64_t *shape)
{
    int row = mr_params_add(params, prefix, name, 0, init, 1, ndim, shape);
    mr_params_flag(params, row, MR_PARAM_RATE);
    return row;
}

static void add_params(void *own, const mr_config *c, int block, const char *prefix, mr_params *params)
{
    (void)block;
    layer *l = own;
    const sizes s = sizes_of(c, 1, 1);
    const int64_t E = s.E;
    l->in_proj = mr_add_linear(params, prefix, "in_proj", 2 * E, s.D, 0);
    l->conv = mr_add_conv(params, prefix, "conv1d", E, s.taps);
    l->x_proj = mr_add_linear(params, prefix, "x_proj", s.R + 2 * s.S, E, 0);
    l->dt_proj = mr_add_linear(params, prefix, "dt_proj", E, s.R, 0);
    mr_params_add(params, prefix, "dt_proj.bias", 0, MR_INIT_STEP_SIZE, 0, 1, &E);
    l->A_log = add_rate(params, prefix, "A_log", MR_INIT_LOG_COUNT, 2, (int64_t[]){E, s.S});
    l->D = add_rate(params, prefix, "D", MR_INIT_CONSTANT, 1, &E);
}

static void plan(void *own, const mr_config *c, mr_dev *dev, mr_arena *arena, int B, int T)
{
    layer *l = own;
    const sizes s = sizes_of(c, B, T);
    const size_t tokens = (size_t)B * (size_t)T * dev->act_size, wide = tokens * (size_t)s.E;
    mr_act **const wide_ones[] = {&l->x, &l->z, &l->conv_y, &l->u, &l->delta, &l->du};
    for (size_t i = 0; i < sizeof wide_ones / sizeof *wide_ones; i++) *wide_ones[i] = mr_arena_take(arena, wide);
    l->dt = mr_arena_take(arena, tokens * (size_t)s.R);
    l->ddt = mr_arena_take(arena, tokens * (size_t)s.R);
    l->bc = mr_arena_take(arena, tokens * 2 * (size_t)s.S);
    l->states = mr_arena_take(arena, (size_t)B * mr_sscan_chunks(T) * (size_t)s.S * (size_t)s.E * dev->real_size);
}

/* One layer's scan, for the functions that a sequence cut between ranks calls in their turn. */
typedef struct call {
    const layer *l;
    const mr_pass *p;
    sizes s;
    mr_act *y;               /* forward */
    const mr_act *dy;        /* backward */
    const mr_real *state_in; /* backward; of the scan alone */
} call;

static void effect(const void *work, mr_real *A, mr_real *C)
{
    const call *k = work;
    const mr_pass *p = k->p;
    const layer *l = k->l;
    p->dev->ops.sscan_effect(p->dev, &(mr_sscan_effect_args){.B = p->B,
                                                             .T = p->T,
                                                             .E = k->s.E,
                                                             .N = k->s.S,
                                                             .u = l->u,
                                                             .delta = l->delta,
                                                             .z = l->z,
                                                             .bc = l->bc,
                                                             .A_log = mr_weight(p, l->A_log),
                                                             .dt_bias = mr_weight(p, l->dt_proj + 1),
                                                             .reset = p->reset,
                                                             .length = p->length,
                                                             .dy = k->dy,
                                                             .A = A,
                                                             .C = C});
}

static void scan(const void *work, const mr_real *state_in, mr_real *state_out)
{
    const call *k = work;
    const mr_pass *p = k->p;
    const layer *l = k->l;
    p->dev->ops.sscan_fwd(p->dev, &(mr_sscan_fwd_args){.B = p->B,
                                                       .T = p->T,
                                                       .E = k->s.E,
                                                       .N = k->s.S,
                                                       .u = l->u,
                                                       .delta = l->delta,
                                                       .z = l->z,
                                                       .bc = l->bc,
                                                       .A_log = mr_weight(p, l->A_log),
                                                       .D = mr_weight(p, l->D),
                                                       .dt_bias = mr_weight(p, l->dt_proj + 1),
                                                       .h_in = state_in,
                                                       .reset = p->reset,
                                                       .length = p->length,
                                                       .y = k->y,
                                                       .h_out = state_out,
                                                       .states = p->train ? l->states : NULL});
}

static void forward(void *own, const mr_pass *p, const mr_act *x, mr_act *y, const mr_real *state_in,
                    mr_real *state_out)
{
    layer *l = own;
    const mr_ops *ops = &p->dev->ops;
    const sizes s = sizes_of(p->config, p->B, p->T);
    mr_linear_part(p, l->in_proj, 0, (mr_linear_fwd_args){.M = s.tokens, .N = s.E, .K = s.D, .x = x, .y = l->x});
    mr_linear_part(p, l->in_proj, s.E, (mr_linear_fwd_args){.M = s.tokens, .N = s.E, .K = s.D, .x = x, .y = l->z});
    mr_sequence_conv_fwd(p, MR_CONV_OF_MIXER,
                         (mr_conv_fwd_args){.B = p->B,
                                            .T = p->T,
                                            .D = s.E,
                                            .taps = s.taps,
                                            .x = l->x,
                                            .w = mr_weight(p, l->conv),
                                            .b = mr_weight(p, l->conv + 1),
                                            .tail_in = state_in,
                                            .reset = p->reset,
                                            .length = p->length,
                                            .y = l->conv_y,
                                            .tail_out = state_out});
    ops->activate_fwd(p->dev, &(mr_activate_fwd_args){
                                  .M = (size_t)s.tokens, .F = (size_t)s.E, .kind = MR_SILU, .x = l->conv_y, .y = l->u});
    mr_linear_part(p, l->x_proj, 0, (mr_linear_fwd_args){.M = s.tokens, .N = s.R, .K = s.E, .x = l->u, .y = l->dt});
    mr_linear_part(p, l->x_proj, s.R,
                   (mr_linear_fwd_args){.M = s.tokens, .N = 2 * s.S, .K = s.E, .x = l->u, .y = l->bc});
    mr_linear(p, l->dt_proj, (mr_linear_fwd_args){.M = s.tokens, .N = s.E, .K = s.R, .x = l->dt, .y = l->delta});
    const call k = {.l = l, .p = p, .s = s, .y = y};
    mr_sequence_cross(p, 0, &(mr_crossing){.run = scan, .effect = effect, .work = &k}, scan_part(p, state_in),
                      scan_part(p, state_out));
}

/* ---- backward: a gradient overwrites its own array as soon as that is no longer needed */

static void scan_bwd(const void *work, const mr_real *dstate_out, mr_real *dstate_in)
{
    const call *k = work;
    const mr_pass *p = k->p;
    const layer *l = k->l;
    p->dev->ops.sscan_bwd(p->dev, &(mr_sscan_bwd_args){.B = p->B,
                                                       .T = p->T,
                                                       .E = k->s.E,
                                                       .N = k->s.S,
                                                       .u = l->u,
                                                       .delta = l->delta,
                                                       .z = l->z,
                                                       .bc = l->bc,
                                                       .A_log = mr_weight(p, l->A_log),
                                                       .D = mr_weight(p, l->D),
                                                       .dt_bias = mr_weight(p, l->dt_proj + 1),
                                                       .h_in = k->state_in,
                                                       .reset = p->reset,
                                                       .length = p->length,
                                                       .states = l->states,
                                                       .dy = k->dy,
                                                       .dh_out = dstate_out,
                                                       .du = l->du,
                                                       .ddelta = l->delta,
                                                       .dz = l->z,
                                                       .dbc = l->bc,
                                                       .dA_log = mr_grad(p, l->A_log),
                                                       .dD = mr_grad(p, l->D),
                                                       .dh_in = dstate_in});
}

static void conv_bwd(const layer *l, const mr_pass *p, const sizes *s, const mr_real *state_in,
                     const mr_real *dstate_out, mr_real *dstate_in)
{
    mr_sequence_conv_bwd(p, MR_CONV_OF_MIXER,
                         (mr_conv_bwd_args){.B = p->B,
                                            .T = p->T,
                                            .D = s->E,
                                            .taps = s->taps,
                                            .x = l->x,
                                            .w = mr_weight(p, l->conv),
                                            .tail_in = state_in,
                                            .reset = p->reset,
                                            .length = p->length,
                                            .dy = l->conv_y,
                                            .dtail_out = dstate_out,
                                            .dx = l->du,
                                            .dw = mr_grad(p, l->conv),
                                            .db = mr_grad(p, l->conv + 1),
                                            .dtail_in = dstate_in});
}

static void backward(void *own, const mr_pass *p, const mr_act *x, const mr_act *y, const mr_act *dy, mr_act *dx,
                     const mr_real *state_in, const mr_real *dstate_out, mr_real *dstate_in)
{
    layer *l = own;
    const sizes s = sizes_of(p->config, p->B, p->T);
    (void)y;
    const call k = {.l = l, .p = p, .s = s, .dy = dy, .state_in = mr_sequence_start(p, scan_part(p, state_in))};
    mr_sequence_cross(p, 1, &(mr_crossing){.run = scan_bwd, .effect = effect, .work = &k}, scan_part(p, dstate_out),
                      scan_part(p, dstate_in));
    mr_linear_part_bwd(
        p, l->dt_proj, 0,
        (mr_linear_bwd_w_args){
            .M = s.tokens, .N = s.E, .K = s.R, .dy = l->delta, .x = l->dt, .db = mr_grad(p, l->dt_proj + 1)},
        0, l->ddt);
    mr_linear_part_bwd(p, l->x_proj, 0,
                       (mr_linear_bwd_w_args){.M = s.tokens, .N = s.R, .K = s.E, .dy = l->ddt, .x = l->u}, 1, l->du);
    mr_linear_part_bwd(p, l->x_proj, s.R,
                       (mr_linear_bwd_w_args){.M = s.tokens, .N = 2 * s.S, .K = s.E, .dy = l->bc, .x = l->u}, 1, l->du);
    p->dev->ops.activate_bwd(
        p->dev,
        &(mr_activate_bwd_args){
            .M = (size_t)s.tokens, .F = (size_t)s.E, .kind = MR_SILU, .x = l->conv_y, .dy = l->du, .dx = l->conv_y});
    conv_bwd(l, p, &s, state_in, dstate_out, dstate_in);
    mr_linear_part_bwd(p, l->in_proj, 0, (mr_linear_bwd_w_args){.M = s.tokens, .N = s.E, .K = s.D, .dy = l->du, .x = x},
                       0, dx);
    mr_linear_part_bwd(p, l->in_proj, s.E,
                       (mr_linear_bwd_w_args){.M = s.tokens, .N = s.E, .K = s.D, .dy = l->z, .x = x}, 1, dx);
}

const mr_mixer mr_mixer_mamba = {"mamba", sizeof(layer), mr_config_width, state_reals, add_params,
                                 plan,    forward,       backward,        state_rest,  1};
