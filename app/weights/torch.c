/* Our own tensors under PyTorch's names, both ways: gru and lstm as in nn.GRU and nn.LSTM, attention as in
 * nn.MultiheadAttention, all others as in our model files. An nn.GRU or nn.LSTM by itself is a layer (bare.h). */
#include "core/mem.h"
#include "weights/bare.h"
#include "weights/formats.h"
#include "weights/torch_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_rnn(const mr_transfer *t) { return mr_is_set(t, "mixer", "gru") || mr_is_set(t, "mixer", "lstm"); }

/* ---- names */

static int ends_in(const char *name, const char *end)
{
    const size_t size = strlen(name), tail = strlen(end);
    return size > tail && !strcmp(name + size - tail, end);
}

/* PyTorch's name of a tensor of ours. */
static mr_name theirs_of(const mr_transfer *t, const char *ours)
{
    static const char *const numbered[] = {".mixer.weight_ih", ".mixer.weight_hh", ".mixer.bias_ih", ".mixer.bias_hh"};
    const char *down = strstr(ours, ".mixer.down.");
    for (size_t i = 0; is_rnn(t) && i < sizeof numbered / sizeof *numbered; i++)
        if (ends_in(ours, numbered[i])) return mr_name_of("%s_l0", ours);
    if (down && mr_is_set(t, "mixer", "attention"))
        return mr_name_of("%.*s.mixer.out_proj.%s", (int)(down - ours), ours, down + strlen(".mixer.down."));
    return mr_name_of("%s", ours);
}

static void move_model(mr_transfer *t)
{
    mr_tensor ours;
    for (int i = 0; !t->status && i < mr_net_tensors(t->net); i++) {
        ours = (mr_tensor)MR_TENSOR;
        t->status = mr_net_tensor(t->net, i, &ours, t->err);
        if (!t->status) mr_move(t, theirs_of(t, ours.name).text, ours.name);
    }
}

/* ---- nn.GRU and nn.LSTM alone */

static void move_alone(mr_transfer *t, const mr_bare *b, int biases)
{
    mr_bare_fixed(t, b);
    for (int i = 0; !t->status && i < b->layers; i++) {
        const mr_name block = mr_name_of("blocks.%d.mixer", i);
        const mr_name reads = mr_name_of("%s.weight_ih", block.text);
        const mr_part part = mr_bare_reads(b, i, reads.text);
        mr_move_parts(t, mr_name_of("weight_ih_l%d", i).text, &part, 1, 0);
        mr_move(t, mr_name_of("weight_hh_l%d", i).text, mr_name_of("%s.weight_hh", block.text).text);
        for (int k = 0; k < 2; k++) {
            const char *word = k ? "bias_hh" : "bias_ih";
            const mr_name ours = mr_name_of("%s.%s", block.text, word);
            if (biases) mr_move(t, mr_name_of("%s_l%d", word, i).text, ours.text);
            else mr_fill(t, ours.text, 0);
        }
        mr_bare_copies(t, b, i);
        mr_fill(t, mr_name_of("%s.down.bias", block.text).text, 0);
    }
}

/* Exporting: biases that are all 0 are left out, as by bias=False. */
static int has_biases(mr_transfer *t, const mr_bare *b)
{
    for (int i = 0; i < b->layers; i++)
        if (!mr_is_filled(t, mr_name_of("blocks.%d.mixer.bias_ih", i).text, 0) ||
            !mr_is_filled(t, mr_name_of("blocks.%d.mixer.bias_hh", i).text, 0))
            return 1;
    return 0;
}

static void import_alone(mr_transfer *t)
{
    const int64_t *reads = mr_sizes_of(t, "weight_ih_l0", 2), *state = mr_sizes_of(t, "weight_hh_l0", 2);
    const mr_bare b = {reads[1], state[1], state[1], mr_foreign_blocks(t->from, "weight_ih_l%d")};
    t->layout = "nn.GRU or nn.LSTM";
    mr_torch_mixer(t, "weight_hh_l0");
    mr_bare_set(t, &b);
    mr_transfer_create(t);
    move_alone(t, &b, mr_foreign_has(t->from, "bias_ih_l0"));
}

/* ---- the scaler, in double */

static double *take_doubles(mr_transfer *t, const char *name, size_t count)
{
    const mr_foreign_tensor *theirs = t->status ? NULL : mr_foreign_find(t->from, name);
    double *numbers = t->status ? NULL : mr_alloc(count + 1, sizeof *numbers);
    if (t->status) return NULL;
    if (!numbers) t->status = mr_no_memory(t->err, name);
    else if (!theirs || theirs->at->dtype != MR_ST_F64 || theirs->at->bytes != count * sizeof *numbers)
        mr_transfer_fail(t, "tensor %s must be %zu numbers of F64", name, count);
    else
        t->status = mr_st_read(t->from->shards[theirs->shard].st, mr_foreign_file(t->from, theirs), theirs->at, numbers,
                               t->err);
    if (theirs) t->used[theirs - t->from->tensors] = 1;
    return numbers;
}

static void import_scaler(mr_transfer *t, const char *kind)
{
    static const char *const names[] = {"scaler.input.mean", "scaler.input.scale", "scaler.target.mean",
                                        "scaler.target.scale"};
    double *parts[4] = {NULL};
    mr_error inner;
    for (int i = 0; !t->status && i < 4; i++)
        if (!strcmp(kind, "both") || !strcmp(kind, i < 2 ? "input" : "target"))
            parts[i] = take_doubles(t, names[i], (size_t)(i < 2 ? mr_net_inputs(t->net) : mr_net_outputs(t->net)));
    if (!t->status && mr_net_set_scaler(t->net, parts[0], parts[1], parts[2], parts[3], &inner))
        mr_transfer_fail(t, "%.800s", inner.text);
    for (int i = 0; i < 4; i++) mr_free(parts[i]);
}

/* ---- both ways */

const char *mr_guess_torch(const mr_foreign *f)
{
    if (mr_foreign_has(f, "weight_ih_l0") && mr_foreign_has(f, "weight_hh_l0"))
        return "an nn.GRU or nn.LSTM of PyTorch";
    if (mr_foreign_has(f, "embed.weight") && mr_foreign_has(f, "blocks.0.norm1.weight"))
        return "a model of ours under PyTorch's names";
    return NULL;
}

void mr_import_torch(mr_transfer *t)
{
    char scaler[16] = "none";
    if (mr_foreign_has(t->from, "weight_ih_l0")) return import_alone(t);
    t->layout = "model of ours";
    mr_torch_set_keys(t, scaler, sizeof scaler);
    mr_transfer_create(t);
    if (t->status) return;
    move_model(t);
    if (strcmp(scaler, "none")) import_scaler(t, scaler);
}

static void export_scaler(mr_transfer *t)
{
    static const char *const names[] = {"scaler.input.mean", "scaler.input.scale", "scaler.target.mean",
                                        "scaler.target.scale"};
    const size_t in = (size_t)mr_net_inputs(t->net), out = (size_t)mr_net_outputs(t->net);
    const size_t first[] = {0, in, 2 * in, 2 * in + out};
    double *numbers = mr_alloc(2 * in + 2 * out, sizeof *numbers);
    if (!numbers) {
        t->status = mr_no_memory(t->err, "the scaler");
        return;
    }
    const int which =
        mr_net_scaler(t->net, numbers, numbers + in, in, numbers + 2 * in, numbers + 2 * in + out, out, t->err);
    if (which < 0) t->status = which;
    for (int i = 0; !t->status && i < 4; i++) {
        const int64_t size = (int64_t)(i < 2 ? in : out);
        if (which & (i < 2 ? 1 : 2)) t->status = mr_st_add(t->to, names[i], MR_ST_F64, 1, &size, numbers + first[i]);
    }
    mr_transfer_lend(t, numbers);
}

void mr_export_torch(mr_transfer *t)
{
    mr_bare b;
    t->layout = "model under PyTorch's names";
    mr_need(t, "weights", "f32");
    if (mr_is_set(t, "mixer", "gru")) mr_need(t, "gru-reset", "after");
    if (t->status) return;
    if (is_rnn(t) && mr_is_bare(t, &b) && b.width == b.outputs && mr_is_copied(t, &b, 0))
        return move_alone(t, &b, has_biases(t, &b));
    move_model(t);
    if (!mr_is_set(t, "scaler", "none") && !t->status) export_scaler(t);
    if (!t->status) mr_torch_write_keys(t);
}
