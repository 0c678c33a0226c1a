/* GRU and LSTM as mixers: the same layer around the rnn ops. Tensors have PyTorch's names and shapes, so those of
 * nn.GRU and nn.LSTM can be used unchanged. */
#include "model/gate_init.h"
#include "model/mixer.h"

#include <math.h>

extern const mr_mixer mr_mixer_gru, mr_mixer_lstm;

typedef struct layer {
    int weight_ih, weight_hh, bias_ih, bias_hh, h0; /* rows of the table; h0 or −1 */
    void *saved;                                    /* for the backend alone, see mr_dev.rnn_saved */
} layer;

static mr_rnn kind_of(const mr_config *c)
{
    if (mr_mixer_at(c->mixer) == &mr_mixer_lstm) return MR_LSTM;
    return c->gru_reset == MR_RESET_AFTER ? MR_GRU_AFTER : MR_GRU_BEFORE;
}

static size_t state_reals(const mr_config *c) { return (size_t)mr_rnn_state(kind_of(c), mr_config_width(c)); }

static int add(mr_params *params, const char *prefix, const char *name, double bound, int ndim, int64_t rows,
               int64_t columns)
{
    int row = mr_params_add(params, prefix, name, 0, MR_INIT_UNIFORM, bound, ndim, (int64_t[]){rows, columns});
    mr_params_flag(params, row, MR_PARAM_GATE);
    return row;
}

/* How long the state is kept depends on z of the GRU and f of the LSTM, whose i takes the rest. Their initial bias goes
 * into bias_ih; the same part of bias_hh starts at 0. */
static void start_biases(const layer *l, const mr_config *c, int block, mr_params *params)
{
    const size_t H = (size_t)mr_config_width(c);
    const int lstm = kind_of(c) == MR_LSTM;
    mr_gate_init gates;
    mr_gate_init_read(c->gate_init, &gates, NULL);
    if (gates.kind == MR_GATE_INIT_DEFAULT || l->bias_hh < 0) return;
    const int timed = mr_gate_init_timed(&gates);
    mr_param_part keep = {.first = H,
                          .count = H,
                          .init = timed ? MR_INIT_LOG_TAU : MR_INIT_CONSTANT,
                          .value = timed ? 1 : mr_gate_init_bias(&gates, block)};
    mr_param_part take = {.first = 0, .count = lstm && timed ? H : 0, .init = MR_INIT_LOG_TAU, .value = -1};
    mr_param *ih = &params->list[l->bias_ih], *hh = &params->list[l->bias_hh];
    ih->parts[0] = keep;
    ih->parts[1] = take;
    hh->parts[0] = (mr_param_part){.first = keep.first, .count = keep.count, .init = MR_INIT_CONSTANT};
    hh->parts[1] = (mr_param_part){.first = take.first, .count = take.count, .init = MR_INIT_CONSTANT};
}

static void add_params(void *own, const mr_config *c, int block, const char *prefix, mr_params *params)
{
    layer *l = own;
    const int64_t H = mr_config_width(c), rows = H * mr_rnn_gates(kind_of(c));
    const double bound = 1 / sqrt((double)H);
    l->weight_ih = add(params, prefix, "weight_ih", bound, 2, rows, c->dim);
    l->weight_hh = add(params, prefix, "weight_hh", bound, 2, rows, H);
    mr_params_flag(params, l->weight_hh, MR_PARAM_F32); /* rounding errors would come back through the state */
    l->bias_ih = add(params, prefix, "bias_ih", bound, 1, rows, 1);
    l->bias_hh = add(params, prefix, "bias_hh", bound, 1, rows, 1);
    start_biases(l, c, block, params);
    const int64_t state = (int64_t)state_reals(c);
    l->h0 = c->h0_learned ? mr_params_add(params, prefix, "h0", 0, MR_INIT_CONSTANT, 0, 1, &state) : -1;
}

static void plan(void *own, const mr_config *c, mr_dev *dev, mr_arena *arena, int B, int T)
{
    ((layer *)own)->saved = mr_arena_take(arena, dev->rnn_saved(dev, kind_of(c), B, T, mr_config_width(c)));
}

static void forward(void *own, const mr_pass *p, const mr_act *x, mr_act *y, const mr_real *state_in,
                    mr_real *state_out)
{
    layer *l = own;
    const mr_rnn kind = kind_of(p->config);
    const int D = (int)p->config->dim, H = mr_config_width(p->config);
    if (p->bytes) /* 8-bit weights: project the input here */
        mr_linear(p, l->weight_ih,
                  (mr_linear_fwd_args){.M = p->B * p->T,
                                       .N = H * mr_rnn_gates(kind),
                                       .K = D,
                                       .x = x,
                                       .b = mr_weight(p, l->bias_ih),
                                       .y = l->saved});
    p->dev->ops.rnn_fwd(p->dev, &(mr_rnn_fwd_args){.kind = kind,
                                                   .B = p->B,
                                                   .T = p->T,
                                                   .D = D,
                                                   .H = H,
                                                   .x = x,
                                                   .W_ih = p->bytes ? NULL : mr_weight(p, l->weight_ih),
                                                   .b_ih = mr_weight(p, l->bias_ih),
                                                   .W_hh = mr_weight(p, l->weight_hh),
                                                   .b_hh = mr_weight(p, l->bias_hh),
                                                   .h_in = state_in,
                                                   .h_init = mr_weight(p, l->h0),
                                                   .reset = p->reset,
                                                   .length = p->length,
                                                   .saved = l->saved,
                                                   .h = y,
                                                   .h_out = state_out});
}

static void backward(void *own, const mr_pass *p, const mr_act *x, const mr_act *y, const mr_act *dy, mr_act *dx,
                     const mr_real *state_in, const mr_real *dstate_out, mr_real *dstate_in)
{
    layer *l = own;
    p->dev->ops.rnn_bwd(p->dev, &(mr_rnn_bwd_args){.kind = kind_of(p->config),
                                                   .B = p->B,
                                                   .T = p->T,
                                                   .D = (int)p->config->dim,
                                                   .H = mr_config_width(p->config),
                                                   .x = x,
                                                   .W_ih = mr_weight(p, l->weight_ih),
                                                   .W_hh = mr_weight(p, l->weight_hh),
                                                   .h_in = state_in,
                                                   .h_init = mr_weight(p, l->h0),
                                                   .reset = p->reset,
                                                   .length = p->length,
                                                   .saved = l->saved,
                                                   .h = y,
                                                   .dh = dy,
                                                   .dh_out = dstate_out,
                                                   .dx = dx,
                                                   .dW_ih = mr_grad(p, l->weight_ih),
                                                   .db_ih = mr_grad(p, l->bias_ih),
                                                   .dW_hh = mr_grad(p, l->weight_hh),
                                                   .db_hh = mr_grad(p, l->bias_hh),
                                                   .dh_in = dstate_in,
                                                   .dh_init = mr_grad(p, l->h0)});
}

const mr_mixer mr_mixer_gru = {"gru", sizeof(layer), mr_config_width, state_reals, add_params,
                               plan,  forward,       backward,        NULL,        0};
const mr_mixer mr_mixer_lstm = {"lstm", sizeof(layer), mr_config_width, state_reals, add_params,
                                plan,   forward,       backward,        NULL,        0};
