/* lucidrains' minGRU-pytorch, both ways: the whole minLM, and a single minGRU or minLSTM. */
#include "core/options.h"
#include "weights/bare.h"
#include "weights/formats.h"
#include "weights/gates.h"

#include <stdio.h>
#include <string.h>

#define GATES_GRU "to_hidden_and_gate.weight"
#define GATES_LSTM "to_hidden_and_f_i_gate.weight"

static const char *gates_of(int lstm) { return lstm ? GATES_LSTM : GATES_GRU; }

const char *mr_guess_lucidrains(const mr_foreign *f)
{
    if (mr_foreign_has(f, "token_emb.weight") && mr_foreign_has(f, "to_logits.weight"))
        return mr_foreign_has(f, "layers.0.2." GATES_LSTM) ? "a minLM of minLSTM by minGRU-pytorch (lucidrains)"
                                                           : "a minLM of minGRU by minGRU-pytorch (lucidrains)";
    if (mr_foreign_has(f, GATES_LSTM)) return "a minLSTM layer by minGRU-pytorch (lucidrains)";
    if (mr_foreign_has(f, GATES_GRU) && !mr_foreign_has(f, "to_hidden_and_gate.bias"))
        return "a minGRU layer by minGRU-pytorch (lucidrains)";
    return NULL;
}

/* ---- the whole model */

static void set_model(mr_transfer *t, int lstm)
{
    const int64_t *tokens = mr_sizes_of(t, "token_emb.weight", 2);
    const int64_t *gates = mr_sizes_of(t, mr_name_of("layers.0.2.%s", gates_of(lstm)).text, 2);
    const int64_t *up = mr_sizes_of(t, "layers.0.4.0.weight", 2);
    const int gamma = mr_foreign_has(t->from, "norm.gamma"), conv = mr_foreign_has(t->from, "layers.0.0.net.0.weight");
    const char *block = lstm ? "layers.%d.2.to_hidden_and_f_i_gate.weight" : "layers.%d.2.to_hidden_and_gate.weight";
    mr_set(t, "input", "tokens");
    mr_set(t, "inputs", "%lld", (long long)tokens[0]);
    mr_set(t, "head", "token");
    mr_set(t, "loss", "xent");
    mr_set(t, "outputs", "%lld", (long long)tokens[0]);
    mr_gates_set(t, lstm);
    mr_set(t, "layers", "%d", mr_foreign_blocks(t->from, block));
    mr_set(t, "dim", "%lld", (long long)tokens[1]);
    mr_set_width(t, gates[0] / (lstm ? 3 : 2), tokens[1]);
    mr_set(t, "conv", "%lld", conv ? (long long)mr_sizes_of(t, "layers.0.0.net.0.weight", 3)[2] : 0);
    mr_set(t, "conv-place", "residual");
    mr_set_mlp_width(t, up[0], tokens[1]);
    mr_set(t, "gelu", "erf");
    mr_set(t, "norm", "rms");
    mr_set(t, "norm-eps", gamma ? MR_EPS_TINY : MR_EPS_TORCH);
    mr_set(t, "mixer-bias", "no");
}

/* Without to_out, the state is the output: mixer.down is an identity. */
static int has_projection(mr_transfer *t)
{
    const int64_t dim = mr_whole_of(t, "dim");
    if (t->from) return mr_foreign_has(t->from, "layers.0.2.to_out.weight");
    for (int i = 0; i < mr_whole_of(t, "layers"); i++)
        if (mr_size_of(t, "blocks.0.mixer.down.weight", 1) != dim ||
            !mr_is_eye(t, mr_name_of("blocks.%d.mixer.down.weight", i).text, 0, 0, dim))
            return 1;
    return 0;
}

static void move_block(mr_transfer *t, int i, int lstm, int projection)
{
    const mr_name layer = mr_name_of("layers.%d", i), block = mr_name_of("blocks.%d", i);
    const char *l = layer.text, *b = block.text;
    if (mr_has_ours(t, "blocks.0.conv.weight")) mr_move_conv(t, mr_name_of("%.40s.0", l).text, i);
    mr_move_gain(t, mr_name_of("%.40s.1", l).text, mr_name_of("%s.norm1.weight", b).text);
    mr_move_gates(t, mr_name_of("%s.2.%s", l, gates_of(lstm)).text, i, lstm, "weight", 0);
    const mr_name down = mr_name_of("%s.mixer.down.weight", b);
    if (projection) mr_move(t, mr_name_of("%s.2.to_out.weight", l).text, down.text);
    else mr_fill_eye(t, down.text, 0, 0, mr_size_of(t, down.text, 0));
    mr_move_gain(t, mr_name_of("%.40s.3", l).text, mr_name_of("%s.norm2.weight", b).text);
    mr_move(t, mr_name_of("%s.4.0.weight", l).text, mr_name_of("%s.mlp.up.weight", b).text);
    mr_move(t, mr_name_of("%s.4.0.bias", l).text, mr_name_of("%s.mlp.up.bias", b).text);
    mr_move(t, mr_name_of("%s.4.2.weight", l).text, mr_name_of("%s.mlp.down.weight", b).text);
    mr_move(t, mr_name_of("%s.4.2.bias", l).text, mr_name_of("%s.mlp.down.bias", b).text);
}

static void move_model(mr_transfer *t, int lstm)
{
    const int projection = has_projection(t);
    if (!projection && mr_size_of(t, "blocks.0.mixer.down.weight", 1) != mr_whole_of(t, "dim"))
        mr_transfer_fail(t, "has no tensor layers.0.2.to_out.weight, but its state is not as wide as its layers");
    mr_move(t, "token_emb.weight", "embed.weight");
    for (int i = 0; !t->status && i < mr_whole_of(t, "layers"); i++) move_block(t, i, lstm, projection);
    mr_move_gain(t, "norm", "norm.weight");
    mr_move(t, "to_logits.weight", "head.weight");
}

/* ---- one layer */

static void set_layer(mr_transfer *t, int lstm, mr_bare *b)
{
    const int64_t *gates = mr_sizes_of(t, gates_of(lstm), 2);
    *b = (mr_bare){.inputs = gates[1], .width = gates[0] / (lstm ? 3 : 2), .layers = 1};
    b->outputs = mr_foreign_has(t->from, "to_out.weight") ? mr_sizes_of(t, "to_out.weight", 2)[0] : b->width;
    mr_bare_set(t, b);
    mr_gates_set(t, lstm);
    mr_set(t, "mixer-bias", "no");
}

static void move_layer(mr_transfer *t, int lstm, const mr_bare *b, int projection)
{
    const mr_part down = mr_bare_writes(b, 0, "blocks.0.mixer.down.weight");
    mr_bare_fixed(t, b);
    mr_move_gates(t, gates_of(lstm), 0, lstm, "weight", b->inputs);
    if (projection) mr_move_parts(t, "to_out.weight", &down, 1, 0);
    else mr_bare_copies(t, b, 0);
}

/* ---- both ways */

void mr_import_lucidrains(mr_transfer *t)
{
    const int whole = mr_foreign_has(t->from, "token_emb.weight");
    const int lstm = mr_foreign_has(t->from, GATES_LSTM) || mr_foreign_has(t->from, "layers.0.2." GATES_LSTM);
    mr_bare b;
    t->layout = whole ? "minLM" : lstm ? "minLSTM layer" : "minGRU layer";
    if (whole) set_model(t, lstm);
    else set_layer(t, lstm, &b);
    mr_transfer_create(t);
    if (whole) move_model(t, lstm);
    else move_layer(t, lstm, &b, mr_foreign_has(t->from, "to_out.weight"));
}

/* The epsilon is no setting of a minLM: its code has one. */
static void need_epsilon(mr_transfer *t)
{
    const mr_name has = mr_setting_of(t, "norm-eps");
    double value = 0, wanted = 0;
    if (mr_real_read(has.text, &value) && mr_real_read(MR_EPS_TORCH, &wanted) && (float)value == (float)wanted) return;
    mr_need(t, "norm-eps", MR_EPS_TORCH);
}

static void need_model(mr_transfer *t)
{
    static const char *const needs[][2] = {{"input", "tokens"}, {"head", "token"},   {"loss", "xent"},
                                           {"norm", "rms"},     {"gelu", "erf"},     {"mlp-gate", "none"},
                                           {"mlp-bias", "yes"}, {"head-bias", "no"}, {"tie-embeddings", "no"}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) mr_need(t, needs[i][0], needs[i][1]);
    need_epsilon(t);
    if (!mr_is_set(t, "conv", "0")) mr_need(t, "conv-place", "residual");
    mr_need(t, "outputs", mr_setting_of(t, "inputs").text);
    if (!t->status && !mr_has_ours(t, "blocks.0.mlp.up.weight")) mr_transfer_fail(t, "mlp = 0: a minLM has an MLP");
}

void mr_export_lucidrains(mr_transfer *t)
{
    static const char *const needs[][2] = {{"candidate", "positive"}, {"transition", "positive"}, {"h0", "zero"},
                                           {"mixer-bias", "no"},      {"weights", "f32"},         {"scaler", "none"}};
    const int lstm = mr_is_set(t, "mixer", "minlstm");
    mr_bare b;
    t->layout = lstm ? "minLSTM of minGRU-pytorch" : "minGRU of minGRU-pytorch";
    if (!lstm) mr_need(t, "mixer", "mingru");
    else mr_need(t, "normalize-gates", "yes");
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++) mr_need(t, needs[i][0], needs[i][1]);
    if (t->status) return;
    if (mr_is_bare(t, &b) && b.layers == 1) return move_layer(t, lstm, &b, !mr_is_copied(t, &b, 0));
    t->layout = "minLM";
    need_model(t);
    if (!t->status) move_model(t, lstm);
}
