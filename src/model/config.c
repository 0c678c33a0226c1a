/* The table of a model's keys, and the checks of their combinations. */
#include "model/config.h"

#include "model/gate_init.h"
#include "model/mixer.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static const char *const inputs[] = {"tokens", "reals", NULL};
static const char *const head_kinds[] = {"token", "last", "mean", "pair-last", "pair-mean", NULL};
static const char *const losses[] = {"xent", "mse", NULL};
static const char *const outputs[] = {"linear", "tanh", NULL};
static const char *const candidates[] = {"positive", "linear", "tanh", NULL};
static const char *const scans[] = {"linear", "log", NULL};
static const char *const transitions[] = {"positive", "signed", NULL};
static const char *const starts[] = {"zero", "learned", NULL};
static const char *const norms[] = {"rms", "layer", "none", NULL};
static const char *const places[] = {"inside", "residual", NULL};
static const char *const gru_resets[] = {"before", "after", NULL};
static const char *const position_kinds[] = {"rotary", "learned", "none", NULL};
static const char *const scaler_kinds[] = {"none", "input", "target", "both", NULL};
static const char *const gelus[] = {"tanh", "erf", NULL};
static const char *const mlp_gates[] = {"none", "geglu", "swiglu", NULL};
static const char *const weight_types[] = {"f32", "int8", NULL};

_Static_assert(sizeof(mr_input) == sizeof(int) && sizeof(mr_head) == sizeof(int) && sizeof(mr_loss) == sizeof(int) &&
                   sizeof(mr_candidate) == sizeof(int) && sizeof(mr_scan) == sizeof(int) &&
                   sizeof(mr_transition) == sizeof(int) && sizeof(mr_norm) == sizeof(int) &&
                   sizeof(mr_conv_place) == sizeof(int) && sizeof(mr_weight_type) == sizeof(int) &&
                   sizeof(mr_gru_reset) == sizeof(int) && sizeof(mr_scaler_kind) == sizeof(int) &&
                   sizeof(mr_positions) == sizeof(int) && sizeof(mr_output) == sizeof(int) &&
                   sizeof(mr_gelu) == sizeof(int) && sizeof(mr_mlp_gate) == sizeof(int),
               "a choice is read into an int");

#define FIELD(name) offsetof(mr_config, name)

const mr_option mr_config_options[] = {
    {"input", MR_OPT_CHOICE, FIELD(input), "tokens", 0, 0, inputs, "kind of input", MR_OPT_DERIVED},
    {"inputs", MR_OPT_INT, FIELD(inputs), "1", 1, 1 << 24, NULL, "size of the vocabulary, or values per token",
     MR_OPT_DERIVED},
    {"head", MR_OPT_CHOICE, FIELD(head), "token", 0, 0, head_kinds,
     "what there is an output for: each token, each sequence (its last token or its mean), each pair", MR_OPT_DERIVED},
    {"loss", MR_OPT_CHOICE, FIELD(loss), "xent", 0, 0, losses, "what training minimises", MR_OPT_DERIVED},
    {"outputs", MR_OPT_INT, FIELD(outputs), "1", 1, 1 << 24, NULL, "number of classes, or of predicted values",
     MR_OPT_DERIVED},
    {"mixer", MR_OPT_CHOICE, FIELD(mixer), "mingru", 0, 0, mr_mixer_names, "the recurrent layer", 0},
    {"candidate", MR_OPT_CHOICE, FIELD(candidate), "positive", 0, 0, candidates,
     "form of the candidate state (tanh: the paper's step 1)", 0},
    {"scan", MR_OPT_CHOICE, FIELD(scan), "linear", 0, 0, scans,
     "how the recurrence is computed (log: the paper's way, less exact)", 0},
    {"normalize-gates", MR_OPT_BOOL, FIELD(normalize_gates), "yes", 0, 0, NULL,
     "minLSTM: divide both gates by their sum", 0},
    {"h0", MR_OPT_CHOICE, FIELD(h0_learned), "zero", 0, 0, starts, "the state a sequence starts from", 0},
    {"gate-init", MR_OPT_TEXT, FIELD(gate_init), "default", 0, 0, NULL,
     "default, forget-bias=X[,Y…] (of each block), sums=X[,Y…] (the same, and minGRU starts with sums, not means), "
     "timescales[=T] (log-uniform in 1…T), timescales-uniform[=T]",
     0},
    {"layers", MR_OPT_INT, FIELD(layers), "3", 1, 1000, NULL, "blocks", 0},
    {"dim", MR_OPT_INT, FIELD(dim), "64", 1, 65536, NULL, "channels of the residual stream", 0},
    {"expansion", MR_OPT_INT, FIELD(expansion), "2", 1, 64, NULL,
     "state channels for each channel of the stream (not of attention)", 0},
    {"conv", MR_OPT_INT, FIELD(conv), "0", 0, MR_TAPS_MOST, NULL,
     "taps of the causal convolution before the mixer, 4 as a rule; 0: none", 0},
    {"conv-place", MR_OPT_CHOICE, FIELD(conv_place), "inside", 0, 0, places,
     "norm → conv → mixer, or x += conv(x) as in the authors' code", 0},
    {"mlp", MR_OPT_INT, FIELD(mlp), "0", 0, 64, NULL, "width factor of the MLP after the mixer; 0: none", 0},
    {"norm", MR_OPT_CHOICE, FIELD(norm), "rms", 0, 0, norms,
     "kind of normalisation; none: a scale for each channel alone", 0},
    {"dropout", MR_OPT_REAL, FIELD(dropout), "0", 0, 0.95, NULL, "share of each branch's output dropped in training",
     0},
    {"weights", MR_OPT_CHOICE, FIELD(weights), "f32", 0, 0, weight_types,
     "how matrices are stored; int8 is made by `minrnn quantize`", MR_OPT_DERIVED | MR_OPT_SPARSE},
    {"gru-reset", MR_OPT_CHOICE, FIELD(gru_reset), "before", 0, 0, gru_resets,
     "gru: r applies before the product with the state (the paper) or after it (PyTorch, cuDNN)", MR_OPT_SPARSE},
    {"heads", MR_OPT_INT, FIELD(heads), "0", 0, 4096, NULL,
     "attention: number of heads; 0: heads of 64 channels, or of the next smaller even number that divides dim",
     MR_OPT_SPARSE},
    {"positions", MR_OPT_CHOICE, FIELD(positions), "rotary", 0, 0, position_kinds,
     "attention: how tokens get their positions", MR_OPT_SPARSE},
    {"window", MR_OPT_INT, FIELD(window), "0", 0, 1 << 24, NULL,
     "attention: how many tokens each token sees, itself included; 0: the longest sequence", MR_OPT_SPARSE},
    {"states", MR_OPT_INT, FIELD(states), "16", 1, MR_SSCAN_STATES, NULL, "mamba: states of each channel",
     MR_OPT_SPARSE},
    {"transition", MR_OPT_CHOICE, FIELD(transition), "positive", 0, 0, transitions,
     "minGRU, minLSTM: what the state is multiplied by, in (0, 1) or, signed, in [-1, 1], which can track parity",
     MR_OPT_SPARSE},
    {"width", MR_OPT_INT, FIELD(width), "0", 0, 1 << 22, NULL,
     "state channels; 0: dim times expansion (not of attention)", MR_OPT_SPARSE},
    {"mlp-width", MR_OPT_INT, FIELD(mlp_width), "0", 0, 1 << 22, NULL, "width of the MLP; 0: dim times mlp",
     MR_OPT_SPARSE},
    {"mlp-gate", MR_OPT_CHOICE, FIELD(mlp_gate), "none", 0, 0, mlp_gates,
     "gated MLP: down(act(gate(v)) * up(v)), act = gelu or silu", MR_OPT_SPARSE},
    {"gelu", MR_OPT_CHOICE, FIELD(gelu), "tanh", 0, 0, gelus, "the form of gelu in MLPs and heads of pairs",
     MR_OPT_SPARSE},
    {"norm-eps", MR_OPT_REAL, FIELD(norm_eps), "0", 0, 1, NULL,
     "what norms add under the root; 0: 1e-6 (rms), 1e-5 (layer)", MR_OPT_SPARSE},
    {"mixer-bias", MR_OPT_BOOL, FIELD(mixer_bias), "yes", 0, 0, NULL,
     "biases of the mixer's projections, the last one included", MR_OPT_SPARSE},
    {"mlp-bias", MR_OPT_BOOL, FIELD(mlp_bias), "yes", 0, 0, NULL, "biases of the MLP", MR_OPT_SPARSE},
    {"tie-embeddings", MR_OPT_BOOL, FIELD(tied), "no", 0, 0, NULL, "the head's matrix is that of the embedding",
     MR_OPT_SPARSE},
    {"mixer-conv", MR_OPT_INT, FIELD(mixer_conv), "4", 1, MR_TAPS_MOST, NULL, "mamba: taps of its own convolution",
     MR_OPT_SPARSE},
    {"dt-rank", MR_OPT_INT, FIELD(dt_rank), "0", 0, 65536, NULL, "mamba: rank of the step sizes; 0: dim/16, rounded up",
     MR_OPT_SPARSE},
    {"head-bias", MR_OPT_BOOL, FIELD(head_bias), "no", 0, 0, NULL, "a bias for each output", MR_OPT_SPARSE},
    {"output", MR_OPT_CHOICE, FIELD(output), "linear", 0, 0, outputs,
     "predicted values (loss = mse): any numbers, or with tanh between -1 and 1", MR_OPT_SPARSE},
    {"scaler", MR_OPT_CHOICE, FIELD(scaler), "none", 0, 0, scaler_kinds,
     "which values are in the caller's units, with means and scales in the file", MR_OPT_DERIVED | MR_OPT_SPARSE},
    {0}};

static int has_mixer(const mr_config *c, const char *name) { return !strcmp(mr_mixer_names[c->mixer], name); }

/* minGRU or minLSTM. */
static int is_minimal(const mr_config *c) { return has_mixer(c, "mingru") || has_mixer(c, "minlstm"); }

static int check_transition(const mr_config *c, mr_error *err)
{
    if (c->transition == MR_TRANSITION_POSITIVE) return 0;
    if (!is_minimal(c))
        return mr_fail(err, MR_ECONFIG,
                       "transition = signed is for mixer = mingru and minlstm, not for %s; leave it out",
                       mr_mixer_names[c->mixer]);
    if (c->scan == MR_SCAN_LOG)
        return mr_fail(err, MR_ECONFIG, "scan = log needs transition = positive (negative gates have no logarithm)");
    return 0;
}

/* GRU or LSTM. */
static int is_recurrent(const mr_config *c) { return has_mixer(c, "gru") || has_mixer(c, "lstm"); }

static int check_recurrent(const mr_config *c, mr_error *err)
{
    if (c->gru_reset != MR_RESET_BEFORE && !has_mixer(c, "gru"))
        return mr_fail(err, MR_ECONFIG, "gru-reset = after is for mixer = gru, not for %s; leave it out",
                       mr_mixer_names[c->mixer]);
    if (is_recurrent(c) && (c->candidate != MR_POSITIVE || c->scan != MR_SCAN_LINEAR))
        return mr_fail(err, MR_ECONFIG,
                       "candidate and scan are for mixer = mingru and minlstm; leave them out with mixer = %s",
                       mr_mixer_names[c->mixer]);
    return 0;
}

static int is_attention(const mr_config *c) { return has_mixer(c, "attention"); }

int mr_config_heads(const mr_config *c)
{
    if (c->heads) return c->dim % c->heads ? 0 : (int)c->heads;
    int64_t size = c->dim < 64 ? c->dim : 64;
    while (c->dim % size || (size % 2 && c->dim % 2 == 0)) size--;
    return (int)(c->dim / size);
}

void mr_config_settle(mr_config *c, int64_t longest)
{
    if (!is_attention(c)) return;
    if (!c->heads) c->heads = mr_config_heads(c);
    if (!c->window) c->window = longest;
}

static int check_attention(const mr_config *c, mr_error *err)
{
    const int heads = mr_config_heads(c);
    if (!heads)
        return mr_fail(err, MR_ECONFIG, "heads = %lld: must divide dim = %lld", (long long)c->heads, (long long)c->dim);
    if (c->positions == MR_POSITIONS_ROTARY && c->dim / heads % 2)
        return mr_fail(
            err, MR_ECONFIG,
            "positions = rotary rotates pairs of channels, but dim = %lld over heads = %d leaves %lld per head; "
            "choose an even number, or other positions",
            (long long)c->dim, heads, (long long)c->dim / heads);
    if (c->dim / heads > MR_ATTN_SIZE)
        return mr_fail(err, MR_ECONFIG, "heads = %d: %lld channels per head of dim = %lld; at most %d, so raise heads",
                       heads, (long long)c->dim / heads, (long long)c->dim, MR_ATTN_SIZE);
    if (!c->window) return mr_fail(err, MR_ECONFIG, "window = 0: must be the number of tokens that each token may see");
    if ((double)c->window * (double)c->dim > 1e9)
        return mr_fail(err, MR_ECONFIG, "window = %lld, dim = %lld: the state would be too large; lower one of them",
                       (long long)c->window, (long long)c->dim);
    return 0;
}

/* gate-init is accepted, because recipes set it whatever mixer is chosen. */
static int check_mamba(const mr_config *c, mr_error *err)
{
    const int mamba = has_mixer(c, "mamba");
    const char *key = NULL;
    if (!mamba && (c->states != 16 || c->mixer_conv != 4 || c->dt_rank))
        return mr_fail(err, MR_ECONFIG, "%s: only for mixer = mamba; leave it out",
                       c->states != 16      ? "states"
                       : c->mixer_conv != 4 ? "mixer-conv"
                                            : "dt-rank");
    if (c->scan != MR_SCAN_LINEAR) key = "scan = log";
    if (c->candidate != MR_POSITIVE) key = "candidate";
    if (c->h0_learned) key = "h0 = learned";
    if (mamba && key) return mr_fail(err, MR_ECONFIG, "%s does not go with mixer = mamba; leave it out", key);
    return 0;
}

static int check_output(const mr_config *c, mr_error *err)
{
    if (c->output == MR_OUTPUT_LINEAR) return 0;
    if (c->loss != MR_LOSS_MSE)
        return mr_fail(err, MR_ECONFIG,
                       "output = tanh is for predicted values (loss = mse), not for classes (loss = "
                       "xent); leave it out");
    if (c->scaler & MR_SCALER_TARGET)
        return mr_fail(err, MR_ECONFIG,
                       "scaler = %s: output = tanh predicts between -1 and 1, so targets cannot be "
                       "scaled; scale the inputs only",
                       scaler_kinds[c->scaler]);
    return 0;
}

static int check_scaler(const mr_config *c, mr_error *err)
{
    if ((c->scaler & MR_SCALER_INPUT) && c->input != MR_INPUT_REALS)
        return mr_fail(err, MR_ECONFIG, "scaler = %s: tokens cannot be scaled; it needs input = reals",
                       scaler_kinds[c->scaler]);
    if ((c->scaler & MR_SCALER_TARGET) && c->loss != MR_LOSS_MSE)
        return mr_fail(err, MR_ECONFIG, "scaler = %s: classes cannot be scaled; it needs loss = mse",
                       scaler_kinds[c->scaler]);
    return 0;
}

/* Options of the block and the head that other projects' models have. */
static int check_forms(const mr_config *c, mr_error *err)
{
    if (c->mlp_gate != MR_MLP_PLAIN && !mr_config_mlp(c))
        return mr_fail(err, MR_ECONFIG, "mlp-gate = %s: there is no MLP; set mlp or mlp-width", mlp_gates[c->mlp_gate]);
    if (c->width && is_attention(c))
        return mr_fail(err, MR_ECONFIG, "width = %lld: attention has dim channels; leave it out", (long long)c->width);
    if (!c->mixer_bias && is_recurrent(c))
        return mr_fail(err, MR_ECONFIG, "mixer-bias = no does not go with mixer = %s; leave it out",
                       mr_mixer_names[c->mixer]);
    if (c->norm_eps > 0 && c->norm == MR_NORM_NONE)
        return mr_fail(err, MR_ECONFIG, "norm-eps = %g: norm = none has no epsilon; leave it out", c->norm_eps);
    if (!c->tied) return 0;
    if (c->input != MR_INPUT_TOKENS || c->inputs != c->outputs)
        return mr_fail(err, MR_ECONFIG,
                       "tie-embeddings = yes needs tokens as input and as many outputs as there are tokens");
    return 0;
}

static int check_size(const mr_config *c, mr_error *err)
{
    double dim = (double)c->dim, width = c->width ? (double)c->width : dim * (double)c->expansion;
    double hidden = c->mlp_width ? (double)c->mlp_width : dim * (double)c->mlp;
    double block = dim * (3 * width + 3 * hidden + dim + 16) + dim * width + (20 + 3 * (double)c->states) * width;
    block += width * 2 * (double)c->dt_rank;
    if (is_recurrent(c)) block += 4 * width * width + dim * width;
    double total = dim * ((double)c->inputs + (double)c->outputs) + (double)c->layers * block;
    if (mr_head_pairs(c->head)) total += 4 * dim * dim;
    if (width * 4 > INT_MAX / 2 || hidden > INT_MAX / 2 || total > 1e11)
        return mr_fail(err, MR_ECONFIG,
                       "layers = %lld, dim = %lld, expansion = %lld, mlp = %lld: about %.3g parameters, %.3g GB for "
                       "the weights alone; lower one of them",
                       (long long)c->layers, (long long)c->dim, (long long)c->expansion, (long long)c->mlp, total,
                       total * sizeof(float) / 1e9);
    return 0;
}

int mr_config_check(const mr_config *c, mr_error *err)
{
    mr_gate_init gates;
    if (c->conv < 0 || c->conv > MR_TAPS_MOST)
        return mr_fail(err, MR_ECONFIG, "conv = %lld: must be 0 … %d", (long long)c->conv, MR_TAPS_MOST);
    if (c->scan == MR_SCAN_LOG && c->candidate != MR_POSITIVE)
        return mr_fail(err, MR_ECONFIG, "scan = log needs candidate = positive (negative states have no logarithm)");
    if (c->head == MR_HEAD_TOKEN && c->loss == MR_LOSS_XENT && c->outputs < 2)
        return mr_fail(err, MR_ECONFIG, "outputs = %lld: a classifier needs two classes or more",
                       (long long)c->outputs);
    if (mr_gate_init_read(c->gate_init, &gates, err)) return MR_ECONFIG;
    if (check_transition(c, err) || check_recurrent(c, err) || check_mamba(c, err) || check_scaler(c, err) ||
        check_output(c, err) || check_forms(c, err))
        return MR_ECONFIG;
    if (is_attention(c) && check_attention(c, err)) return MR_ECONFIG;
    return check_size(c, err);
}

void mr_config_set_interface(mr_config *c, const mr_interface *interface)
{
    c->input = interface->input;
    c->inputs = interface->inputs;
    c->head = interface->head;
    c->loss = interface->loss;
    c->outputs = interface->outputs;
}

mr_interface mr_config_interface(const mr_config *c)
{
    return (mr_interface){
        .input = c->input, .inputs = (int)c->inputs, .head = c->head, .loss = c->loss, .outputs = (int)c->outputs};
}
