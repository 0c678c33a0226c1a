/* The code of the paper's authors (BorealisAI/minRNNs): a whole model, and a single minGRU or minLSTM. */
#include "core/mem.h"
#include "weights/bare.h"
#include "weights/formats.h"
#include "weights/gates.h"

#include <string.h>

const char *mr_guess_borealis(const mr_foreign *f)
{
    if (mr_foreign_has(f, "layers.0.2.to_hidden_and_gate.bias")) return "a model by the authors' code (BorealisAI)";
    if (mr_foreign_has(f, "to_hidden_and_gate.bias")) return "a layer by the authors' code (BorealisAI)";
    return NULL;
}

/* The name of something of a layer: alone it has no prefix. block −1: alone. */
static mr_name of_layer(int block, const char *what)
{
    return block < 0 ? mr_name_of("%s", what) : mr_name_of("layers.%d.2.%s", block, what);
}

/* minLSTM has the name of minGRU's matrix: the rows tell. Returns the width of the state. */
static int64_t set_gates(mr_transfer *t, int block, int *lstm)
{
    const int64_t *gates = mr_sizes_of(t, of_layer(block, "to_hidden_and_gate.weight").text, 2);
    const int64_t width = mr_sizes_of(t, of_layer(block, "to_out.weight").text, 2)[1];
    const char *normalize = mr_sidecar_value(&t->from->config, "use_coeff_norm");
    if (!t->status && gates[0] != 2 * width && gates[0] != 3 * width)
        mr_transfer_fail(t, "tensor %s has %lld rows, not 2 or 3 times the %lld channels of to_out",
                         of_layer(block, "to_hidden_and_gate.weight").text, (long long)gates[0], (long long)width);
    *lstm = gates[0] == 3 * width;
    mr_gates_set(t, *lstm);
    if (normalize) mr_set(t, "normalize-gates", strcmp(normalize, "false") ? "yes" : "no");
    else if (*lstm) mr_assume(t, "normalize-gates", "no"); /* the default of their code */
    if (mr_foreign_has(t->from, of_layer(block, "init_hidden_state").text)) mr_set(t, "h0", "learned");
    return width;
}

/* The second Linear of the MLP; where it is depends on its dropout. */
static int second_linear(const mr_transfer *t)
{
    for (int i = 2; i < 5; i++)
        if (mr_foreign_has(t->from, mr_name_of("layers.0.4.%d.weight", i).text)) return i;
    return 2;
}

/* ---- settings */

static void set_mlp(mr_transfer *t, int64_t dim)
{
    if (!mr_foreign_has(t->from, "layers.0.4.0.weight")) {
        mr_set(t, "mlp", "0");
        return;
    }
    const int64_t rows = mr_sizes_of(t, "layers.0.4.0.weight", 2)[0];
    const int64_t width = mr_sizes_of(t, mr_name_of("layers.0.4.%d.weight", second_linear(t)).text, 2)[1];
    if (rows == 2 * width) mr_set(t, "mlp-gate", "geglu");
    mr_set_mlp_width(t, width, dim);
    mr_set(t, "gelu", "erf");
}

static void set_ends(mr_transfer *t)
{
    const int tokens = mr_foreign_has(t->from, "token_emb.weight");
    const int64_t *in = mr_sizes_of(t, tokens ? "token_emb.weight" : "layer_in.weight", 2);
    mr_set(t, "input", tokens ? "tokens" : "reals");
    mr_set(t, "inputs", "%lld", (long long)in[!tokens]);
    mr_set(t, "head", "token");
    mr_set(t, "loss", tokens ? "xent" : "mse");
    mr_set(t, "outputs", "%lld", (long long)mr_sizes_of(t, "to_out.weight", 2)[0]);
}

static void set_model(mr_transfer *t, int *lstm)
{
    const int conv = mr_foreign_has(t->from, "layers.0.0.net.0.weight");
    const int gamma = mr_foreign_has(t->from, "norm.gamma");
    const char *batch = "layers.0.1.norm.running_mean";
    if (mr_foreign_has(t->from, batch)) mr_transfer_fail(t, "tensor %s: BatchNorm cannot be expressed", batch);
    set_ends(t);
    const int64_t dim = mr_sizes_of(t, "to_out.weight", 2)[1], width = set_gates(t, 0, lstm);
    mr_set(t, "layers", "%d", mr_foreign_blocks(t->from, "layers.%d.2.to_hidden_and_gate.weight"));
    mr_set(t, "dim", "%lld", (long long)dim);
    mr_set_width(t, width, dim);
    mr_set(t, "conv", "%lld", conv ? (long long)mr_sizes_of(t, "layers.0.0.net.0.weight", 3)[2] : 0);
    mr_set(t, "conv-place", "residual");
    set_mlp(t, dim);
    mr_set(t, "norm", "rms");
    mr_set(t, "norm-eps", gamma ? MR_EPS_TINY : MR_EPS_TORCH);
}

/* ---- tensors */

/* The first half of the rows is what the second half gates, times mult_bias: that goes into the weights. `across` is
 * the columns of the tensor, 1 for a bias. */
static void move_gated(mr_transfer *t, int i, const char *what, int64_t across)
{
    const mr_name up = mr_name_of("blocks.%d.mlp.up.%s", i, what), gate = mr_name_of("blocks.%d.mlp.gate.%s", i, what);
    const mr_name factor = mr_name_of("layers.%d.4.1.mult_bias", i), from = mr_name_of("layers.%d.4.0.%s", i, what);
    const int64_t width = mr_size_of(t, up.text, 0), shape[] = {2 * width, across};
    float *factors = NULL;
    if (mr_foreign_has(t->from, factor.text)) {
        mr_take(t, factor.text, 1, &width);
        factors = t->taken; /* the next take must not free it */
        t->taken = NULL;
    }
    float *rows = mr_take(t, from.text, strcmp(what, "bias") ? 2 : 1, shape);
    for (int64_t k = 0; rows && factors && k < width * across; k++) rows[k] *= factors[k / across];
    if (rows) mr_put(t, up.text, rows, (size_t)(width * across));
    if (rows && !t->status) mr_put(t, gate.text, rows + width * across, (size_t)(width * across));
    mr_free(factors);
}

static void move_mlp(mr_transfer *t, int i, int64_t dim)
{
    const int second = second_linear(t);
    if (mr_has_ours(t, "blocks.0.mlp.gate.weight")) {
        move_gated(t, i, "weight", dim);
        move_gated(t, i, "bias", 1);
    } else {
        mr_move(t, mr_name_of("layers.%d.4.0.weight", i).text, mr_name_of("blocks.%d.mlp.up.weight", i).text);
        mr_move(t, mr_name_of("layers.%d.4.0.bias", i).text, mr_name_of("blocks.%d.mlp.up.bias", i).text);
    }
    mr_move(t, mr_name_of("layers.%d.4.%d.weight", i, second).text, mr_name_of("blocks.%d.mlp.down.weight", i).text);
    mr_move(t, mr_name_of("layers.%d.4.%d.bias", i, second).text, mr_name_of("blocks.%d.mlp.down.bias", i).text);
}

static void move_block(mr_transfer *t, int i, int lstm)
{
    if (mr_has_ours(t, "blocks.0.conv.weight")) mr_move_conv(t, mr_name_of("layers.%d.0", i).text, i);
    mr_move_gain(t, mr_name_of("layers.%d.1", i).text, mr_name_of("blocks.%d.norm1.weight", i).text);
    mr_move_gates(t, of_layer(i, "to_hidden_and_gate.weight").text, i, lstm, "weight", 0);
    mr_move_gates(t, of_layer(i, "to_hidden_and_gate.bias").text, i, lstm, "bias", 0);
    mr_move(t, of_layer(i, "to_out.weight").text, mr_name_of("blocks.%d.mixer.down.weight", i).text);
    mr_move(t, of_layer(i, "to_out.bias").text, mr_name_of("blocks.%d.mixer.down.bias", i).text);
    if (mr_has_ours(t, "blocks.0.mixer.h0"))
        mr_move(t, of_layer(i, "init_hidden_state").text, mr_name_of("blocks.%d.mixer.h0", i).text);
    if (!mr_has_ours(t, "blocks.0.mlp.up.weight")) { /* its norm is there all the same */
        mr_ignore(t, mr_name_of("layers.%d.3.gamma", i).text);
        mr_ignore(t, mr_name_of("layers.%d.3.weight", i).text);
        return;
    }
    mr_move_gain(t, mr_name_of("layers.%d.3", i).text, mr_name_of("blocks.%d.norm2.weight", i).text);
    move_mlp(t, i, mr_whole_of(t, "dim"));
}

static void import_model(mr_transfer *t)
{
    int lstm = 0;
    set_model(t, &lstm);
    mr_transfer_create(t);
    if (t->status) return;
    if (mr_is_set(t, "input", "tokens")) {
        mr_move(t, "token_emb.weight", "embed.weight");
    } else {
        mr_move(t, "layer_in.weight", "embed.weight");
        mr_move(t, "layer_in.bias", "embed.bias");
    }
    for (int i = 0; !t->status && i < mr_whole_of(t, "layers"); i++) move_block(t, i, lstm);
    mr_move_gain(t, "norm", "norm.weight");
    mr_move(t, "to_out.weight", "head.weight");
}

static void import_layer(mr_transfer *t)
{
    int lstm = 0;
    mr_bare b = {.layers = 1};
    b.inputs = mr_sizes_of(t, "to_hidden_and_gate.weight", 2)[1];
    b.outputs = mr_sizes_of(t, "to_out.weight", 2)[0];
    b.width = set_gates(t, -1, &lstm);
    mr_bare_set(t, &b);
    mr_transfer_create(t);
    if (t->status) return;
    const mr_part weight = mr_bare_writes(&b, 0, "blocks.0.mixer.down.weight");
    const mr_part bias = mr_bare_writes(&b, 0, "blocks.0.mixer.down.bias");
    mr_bare_fixed(t, &b);
    mr_move_gates(t, "to_hidden_and_gate.weight", 0, lstm, "weight", b.inputs);
    mr_move_gates(t, "to_hidden_and_gate.bias", 0, lstm, "bias", 0);
    mr_move_parts(t, "to_out.weight", &weight, 1, 0);
    mr_move_parts(t, "to_out.bias", &bias, 1, 0);
    if (mr_has_ours(t, "blocks.0.mixer.h0")) mr_move(t, "init_hidden_state", "blocks.0.mixer.h0");
}

void mr_import_borealis(mr_transfer *t)
{
    const int alone = mr_foreign_has(t->from, "to_hidden_and_gate.weight");
    t->layout = alone ? "layer of the authors' code" : "model of the authors' code";
    if (alone) import_layer(t);
    else import_model(t);
}
