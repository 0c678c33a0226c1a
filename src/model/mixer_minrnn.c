/* minGRU and minLSTM as mixers: the same layer around the minrnn ops. */
#include "model/gate_init.h"
#include "model/mixer.h"
#include "model/sequence.h"

#include <math.h>
#include <stdio.h>

extern const mr_mixer mr_mixer_mingru, mr_mixer_minlstm;

typedef struct layer {
    int weight, bias, h0; /* rows of the first gate's weight and bias, which the other gates' follow, and of h0 or −1 */
    void *saved;          /* for the backend alone, see mr_dev.minrnn_saved */
} layer;

/* What a projection is for. UPDATE is minGRU's one gate, which takes in as much as it forgets. */
typedef enum gate_role { UPDATE, FORGET, INPUT, CANDIDATE } gate_role;

typedef struct gate {
    const char *name;
    gate_role role;
} gate;

static const gate mingru_gates[] = {{"linear_z", UPDATE}, {"linear_h", CANDIDATE}, {0}};
static const gate minlstm_gates[] = {{"linear_f", FORGET}, {"linear_i", INPUT}, {"linear_h", CANDIDATE}, {0}};

/* Both mixers share all functions, so the configuration tells which one it is. */
static mr_cell cell_of(const mr_config *c)
{
    mr_cell_kind kind = mr_mixer_at(c->mixer) == &mr_mixer_minlstm ? MR_MINLSTM : MR_MINGRU;
    return (mr_cell){.kind = kind,
                     .candidate = c->candidate,
                     .scan = c->scan,
                     .normalize = kind == MR_MINLSTM && c->normalize_gates,
                     .transition = c->transition};
}

static size_t state_reals(const mr_config *c) { return (size_t)mr_config_width(c); }

/* The same start with transition = signed: both cells' first gate q keeps a = clamp(reach·tanh(q), −1, 1), and what it
 * keeps is also what a normalised input gate leaves out. */
static mr_init signed_bias_init(const mr_config *c, const mr_gate_init *start, int block, gate_role role, double *value)
{
    const double keep = 1 / (1 + exp(-mr_gate_init_bias(start, block)));
    if (role == INPUT && mr_gate_init_timed(start) && !c->normalize_gates) return *value = -1, MR_INIT_LOG_TAU;
    if (role == INPUT) return MR_INIT_UNIFORM;
    if (mr_gate_init_timed(start)) return *value = 1, MR_INIT_SIGNED_TAU;
    return *value = mr_signed_gate(keep), MR_INIT_CONSTANT;
}

/* How a gate's bias starts. The part kept is a = σ(−z) in minGRU and a = σ(f) in minLSTM, hence the signs. */
static mr_init bias_init(const mr_config *c, const mr_gate_init *start, int block, gate_role role, double *value)
{
    const double sign = role == FORGET ? 1 : -1;
    if (start->kind == MR_GATE_INIT_DEFAULT || role == CANDIDATE) return MR_INIT_UNIFORM;
    if (c->transition == MR_TRANSITION_SIGNED) return signed_bias_init(c, start, block, role, value);
    if (mr_gate_init_timed(start)) {
        *value = sign;
        return MR_INIT_LOG_TAU;
    }
    if (role == INPUT) return MR_INIT_UNIFORM;
    *value = sign * mr_gate_init_bias(start, block);
    return MR_INIT_CONSTANT;
}

/* How much larger than usual the candidates' weights start. A minGRU that forgets nothing takes in nothing either:
 * h += σ(−X)·h̃ with σ(−X) ≈ e^−X. Candidates that are e^X times larger make its states sums, with steps of the usual
 * size. */
static double candidate_gain(const mr_config *c, const mr_gate_init *start, int block)
{
    const double bias = mr_gate_init_bias(start, block);
    return start->kind == MR_GATE_INIT_SUMS && bias > 0 && cell_of(c).kind == MR_MINGRU ? exp(bias) : 1;
}

/* Adds one of a gate's tensors, right after that of the gate before it. */
static int add_gate(mr_params *params, const char *prefix, const gate *which, const char *what, int follows,
                    mr_init init, double value, int ndim, const int64_t *shape)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%s", which->name, what);
    int row = mr_params_add(params, prefix, name, follows, init, value, ndim, shape);
    mr_params_flag(params, row, MR_PARAM_GATE);
    return row;
}

static void add_params(void *own, const mr_config *c, int block, const char *prefix, mr_params *params)
{
    layer *l = own;
    const gate *gates = cell_of(c).kind == MR_MINGRU ? mingru_gates : minlstm_gates;
    const int64_t shape[] = {mr_config_width(c), c->dim};
    const double bound = 1 / sqrt((double)c->dim);
    mr_gate_init start;
    mr_gate_init_read(c->gate_init, &start, NULL);
    for (int g = 0; gates[g].name; g++) {
        const double gain = gates[g].role == CANDIDATE ? candidate_gain(c, &start, block) : 1;
        int row = add_gate(params, prefix, &gates[g], "weight", g > 0, MR_INIT_UNIFORM, gain * bound, 2, shape);
        if (g == 0) l->weight = row;
    }
    l->bias = -1;
    for (int g = 0; c->mixer_bias && gates[g].name; g++) {
        double value = bound;
        mr_init init = bias_init(c, &start, block, gates[g].role, &value);
        int row = add_gate(params, prefix, &gates[g], "bias", g > 0, init, value, 1, shape);
        if (g == 0) l->bias = row;
    }
    l->h0 = c->h0_learned ? mr_params_add(params, prefix, "h0", 0, MR_INIT_NORMAL, 1, 1, shape) : -1;
}

static void plan(void *own, const mr_config *c, mr_dev *dev, mr_arena *arena, int B, int T)
{
    mr_cell cell = cell_of(c);
    int D = c->weights == MR_WEIGHTS_F32 && !c->cut ? (int)c->dim : 0; /* otherwise the op does not project */
    ((layer *)own)->saved = mr_arena_take(arena, dev->minrnn_saved(dev, &cell, B, T, D, mr_config_width(c)));
}

/* One layer's call, for the functions that a sequence cut between ranks calls in their turn. */
typedef struct call {
    layer *l;
    const mr_pass *p;
    const mr_act *x, *h, *dh;
    mr_act *to;              /* forward: h, backward: dx */
    const mr_real *state_in; /* backward */
} call;

/* In 8 bits, and where a sequence is cut, the op does gates and scan alone. */
static int projects_apart(const mr_pass *p) { return p->bytes || p->sequence; }

static void effect(const void *work, mr_real *A, mr_real *C)
{
    const call *k = work;
    const mr_pass *p = k->p;
    p->dev->ops.minrnn_effect(p->dev, &(mr_minrnn_effect_args){.cell = cell_of(p->config),
                                                               .B = p->B,
                                                               .T = p->T,
                                                               .H = mr_config_width(p->config),
                                                               .pre = k->l->saved,
                                                               .h_init = mr_weight(p, k->l->h0),
                                                               .reset = p->reset,
                                                               .length = p->length,
                                                               .dh = k->dh,
                                                               .A = A,
                                                               .C = C});
}

static void scan(const void *work, const mr_real *state_in, mr_real *state_out)
{
    const call *k = work;
    const mr_pass *p = k->p;
    p->dev->ops.minrnn_fwd(p->dev, &(mr_minrnn_fwd_args){.cell = cell_of(p->config),
                                                         .B = p->B,
                                                         .T = p->T,
                                                         .D = (int)p->config->dim,
                                                         .H = mr_config_width(p->config),
                                                         .x = k->x,
                                                         .W = projects_apart(p) ? NULL : mr_weight(p, k->l->weight),
                                                         .b = mr_weight(p, k->l->bias),
                                                         .h_in = state_in,
                                                         .h_init = mr_weight(p, k->l->h0),
                                                         .reset = p->reset,
                                                         .length = p->length,
                                                         .saved = k->l->saved,
                                                         .h = k->to,
                                                         .h_out = state_out});
}

static void forward(void *own, const mr_pass *p, const mr_act *x, mr_act *y, const mr_real *state_in,
                    mr_real *state_out)
{
    layer *l = own;
    const mr_cell cell = cell_of(p->config);
    const call k = {.l = l, .p = p, .x = x, .to = y};
    if (projects_apart(p))
        mr_linear(p, l->weight,
                  (mr_linear_fwd_args){.M = p->B * p->T,
                                       .N = mr_config_width(p->config) * mr_cell_gates(&cell),
                                       .K = (int)p->config->dim,
                                       .x = x,
                                       .b = mr_weight(p, l->bias),
                                       .y = l->saved});
    mr_sequence_cross(p, 0, &(mr_crossing){.run = scan, .effect = effect, .work = &k}, state_in, state_out);
}

static void scan_bwd(const void *work, const mr_real *dstate_out, mr_real *dstate_in)
{
    const call *k = work;
    const mr_pass *p = k->p;
    p->dev->ops.minrnn_bwd(p->dev, &(mr_minrnn_bwd_args){.cell = cell_of(p->config),
                                                         .B = p->B,
                                                         .T = p->T,
                                                         .D = (int)p->config->dim,
                                                         .H = mr_config_width(p->config),
                                                         .x = k->x,
                                                         .W = projects_apart(p) ? NULL : mr_weight(p, k->l->weight),
                                                         .b = mr_weight(p, k->l->bias),
                                                         .h_in = k->state_in,
                                                         .h_init = mr_weight(p, k->l->h0),
                                                         .reset = p->reset,
                                                         .length = p->length,
                                                         .saved = k->l->saved,
                                                         .h = k->h,
                                                         .dh = k->dh,
                                                         .dh_out = dstate_out,
                                                         .dx = k->to,
                                                         .dW = mr_grad(p, k->l->weight),
                                                         .db = mr_grad(p, k->l->bias),
                                                         .dh_in = dstate_in,
                                                         .dh_init = mr_grad(p, k->l->h0)});
}

static void backward(void *own, const mr_pass *p, const mr_act *x, const mr_act *y, const mr_act *dy, mr_act *dx,
                     const mr_real *state_in, const mr_real *dstate_out, mr_real *dstate_in)
{
    layer *l = own;
    const mr_cell cell = cell_of(p->config);
    const call k = {.l = l, .p = p, .x = x, .h = y, .dh = dy, .to = dx, .state_in = mr_sequence_start(p, state_in)};
    mr_sequence_cross(p, 1, &(mr_crossing){.run = scan_bwd, .effect = effect, .work = &k}, dstate_out, dstate_in);
    if (projects_apart(p)) /* saved has become the gradient of the projection */
        mr_linear_bwd(p, l->weight,
                      (mr_linear_bwd_w_args){.M = p->B * p->T,
                                             .N = mr_config_width(p->config) * mr_cell_gates(&cell),
                                             .K = (int)p->config->dim,
                                             .dy = l->saved,
                                             .x = x,
                                             .db = mr_grad(p, l->bias)},
                      NULL, dx);
}

const mr_mixer mr_mixer_mingru = {"mingru", sizeof(layer), mr_config_width, state_reals, add_params,
                                  plan,     forward,       backward,        NULL,        1};
const mr_mixer mr_mixer_minlstm = {"minlstm", sizeof(layer), mr_config_width, state_reals, add_params,
                                   plan,      forward,       backward,        NULL,        1};
