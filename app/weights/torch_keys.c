/* Reading and writing the settings of models under PyTorch's names. */
#include "weights/torch_keys.h"

#include "core/mem.h"

#include <stdio.h>
#include <string.h>

#define MIXER "blocks.0.mixer."

static int has(const mr_transfer *t, const char *name) { return mr_foreign_has(t->from, name); }

static void set_size(mr_transfer *t, const char *key, int64_t size) { mr_set(t, key, "%lld", (long long)size); }

/* ---- from the shapes */

void mr_torch_mixer(mr_transfer *t, const char *weight_hh)
{
    const int64_t *shape = mr_sizes_of(t, weight_hh, 2);
    if (!t->status && shape[0] != 3 * shape[1] && shape[0] != 4 * shape[1])
        mr_transfer_fail(t, "tensor %s is %lld × %lld: neither of a GRU nor of an LSTM", weight_hh, (long long)shape[0],
                         (long long)shape[1]);
    const int gru = shape[0] == 3 * shape[1];
    mr_set(t, "mixer", gru ? "gru" : "lstm");
    if (gru) mr_set(t, "gru-reset", "after");
}

static void set_mamba(mr_transfer *t, int64_t dim)
{
    const int64_t *states = mr_sizes_of(t, MIXER "A_log", 2), *taps = mr_sizes_of(t, MIXER "conv1d.weight", 3);
    const int64_t rank = mr_sizes_of(t, MIXER "dt_proj.weight", 2)[1];
    mr_set(t, "mixer", "mamba");
    mr_set_width(t, states[0], dim);
    set_size(t, "states", states[1]);
    if (taps[2] != 4) set_size(t, "mixer-conv", taps[2]);
    if (rank != (dim + 15) / 16) set_size(t, "dt-rank", rank);
}

static void set_mixer(mr_transfer *t, int64_t dim)
{
    if (has(t, MIXER "A_log")) return set_mamba(t, dim);
    if (has(t, MIXER "in_proj_weight")) {
        mr_set(t, "mixer", "attention");
    } else if (has(t, MIXER "weight_hh_l0")) {
        mr_torch_mixer(t, MIXER "weight_hh_l0");
        mr_set_width(t, mr_sizes_of(t, MIXER "weight_hh_l0", 2)[1], dim);
    } else {
        mr_set(t, "mixer", has(t, MIXER "linear_f.weight") ? "minlstm" : "mingru");
        mr_set_width(t, mr_sizes_of(t, MIXER "linear_h.weight", 2)[0], dim);
    }
    if (has(t, MIXER "h0")) mr_set(t, "h0", "learned");
}

static void set_ends(mr_transfer *t, int64_t *dim)
{
    const int reals = has(t, "embed.bias");
    const int64_t *in = mr_sizes_of(t, "embed.weight", 2);
    *dim = in[!reals];
    mr_set(t, "input", reals ? "reals" : "tokens");
    set_size(t, "inputs", in[reals]);
    mr_set(t, "head", "token");
    mr_set(t, "loss", reals ? "mse" : "xent");
    set_size(t, "outputs", has(t, "head.weight") ? mr_sizes_of(t, "head.weight", 2)[0] : in[0]);
    if (!has(t, "head.weight")) mr_set(t, "tie-embeddings", "yes");
    if (has(t, "head.bias")) mr_set(t, "head-bias", "yes");
}

static void set_block(mr_transfer *t, int64_t dim)
{
    const int conv = has(t, "blocks.0.conv.weight"), mlp = has(t, "blocks.0.mlp.up.weight");
    mr_set(t, "norm", has(t, "norm.bias") ? "layer" : "rms");
    set_size(t, "conv", conv ? mr_sizes_of(t, "blocks.0.conv.weight", 3)[2] : 0);
    mr_set(t, "conv-place", has(t, "blocks.0.conv.point.weight") ? "residual" : "inside");
    if (mlp) mr_set_mlp_width(t, mr_sizes_of(t, "blocks.0.mlp.up.weight", 2)[0], dim);
    else mr_set(t, "mlp", "0");
    if (mlp && !has(t, "blocks.0.mlp.up.bias")) mr_set(t, "mlp-bias", "no");
    if (!has(t, MIXER "down.bias") && !has(t, MIXER "out_proj.bias")) mr_set(t, "mixer-bias", "no");
}

/* ---- from metadata or config.json */

/* Keys of a model; those of training and our own kinds of weights are none. */
static int is_key(const char *name)
{
    const mr_key *key = mr_key_find(name);
    return key && !(key->flags & MR_KEY_LEARN) && strcmp(name, "weights");
}

static void take_key(mr_transfer *t, const char *key, const char *value, char *scaler, size_t room)
{
    if (!is_key(key)) mr_transfer_fail(t, "config: unknown key %.60s", key);
    else if (!strcmp(key, "scaler")) snprintf(scaler, room, "%s", value);
    else mr_set(t, key, "%s", value);
}

static void take_config(mr_transfer *t, char *scaler, size_t room)
{
    const mr_sidecar *config = &t->from->config;
    for (int i = 0; i < config->count; i++) {
        const mr_sidecar_entry *e = &config->entries[i];
        if (!strcmp(e->key, "vocab") && e->is_text) {
            if (!t->vocab) t->vocab = e->value;
            continue;
        }
        if (!e->value) return mr_transfer_fail(t, "config.json: %.60s is a list or an object", e->key);
        const int yes = !e->is_text && !strcmp(e->value, "true"), no = !e->is_text && !strcmp(e->value, "false");
        take_key(t, e->key, yes ? "yes" : no ? "no" : e->value, scaler, room);
    }
}

static void take_meta(mr_transfer *t, char *scaler, size_t room)
{
    const char *key, *value, *vocab = mr_foreign_meta(t->from, "vocab");
    if (vocab && !t->vocab) t->vocab = vocab;
    for (int s = 0; s < t->from->shard_count; s++)
        for (int i = 0; i < mr_st_meta_count(t->from->shards[s].st); i++) {
            mr_st_meta_at(t->from->shards[s].st, i, &key, &value);
            if (!strncmp(key, "model.", 6)) take_key(t, key + 6, value, scaler, room);
        }
}

/* What the shapes do not tell, where there are no keys beside them. */
static void assume_keys(mr_transfer *t)
{
    const int attention = has(t, MIXER "in_proj_weight"), lstm = has(t, MIXER "linear_f.weight");
    if (attention) mr_assume(t, "heads", NULL), mr_assume(t, "positions", NULL);
    if (lstm) mr_assume(t, "normalize-gates", NULL);
    if (lstm || has(t, MIXER "linear_z.weight")) mr_assume(t, "candidate", NULL);
    if (has(t, "blocks.0.mlp.up.weight")) mr_assume(t, "gelu", NULL);
}

static int has_keys(const mr_transfer *t)
{
    const char *key, *value;
    if (t->from->config.count) return 1;
    for (int s = 0; s < t->from->shard_count; s++)
        for (int i = 0; i < mr_st_meta_count(t->from->shards[s].st); i++) {
            mr_st_meta_at(t->from->shards[s].st, i, &key, &value);
            if (!strncmp(key, "model.", 6)) return 1;
        }
    return 0;
}

void mr_torch_set_keys(mr_transfer *t, char *scaler, size_t room)
{
    int64_t dim = 0;
    set_ends(t, &dim);
    set_size(t, "dim", dim);
    set_size(t, "layers", mr_foreign_blocks(t->from, "blocks.%d.norm1.weight"));
    set_mixer(t, dim);
    set_block(t, dim);
    take_config(t, scaler, room);
    take_meta(t, scaler, room);
    if (!has_keys(t)) assume_keys(t);
}

/* ---- writing */

void mr_torch_write_keys(mr_transfer *t)
{
    const mr_vocab *vocab = mr_net_vocab(t->net);
    const mr_key *key;
    char value[1024];
    size_t needed = 0;
    for (int i = 0; !t->status && (key = mr_key_at(i)); i++) {
        if (!is_key(key->name)) continue;
        t->status = mr_net_setting(t->net, key->name, value, sizeof value, t->err);
        if (t->status || ((key->flags & MR_KEY_SPARSE) && !strcmp(value, key->fallback))) continue;
        t->status = mr_st_add_meta(t->to, mr_name_of("model.%s", key->name).text, value);
    }
    if (!vocab || t->status) return;
    mr_vocab_print(vocab, NULL, 0, &needed, NULL);
    char *text = mr_alloc(needed + 1, 1);
    if (!text) {
        t->status = mr_no_memory(t->err, "the vocabulary");
        return;
    }
    t->status = mr_vocab_print(vocab, text, needed + 1, &needed, t->err);
    if (!t->status) t->status = mr_st_add_meta(t->to, "vocab", text);
    mr_free(text);
}
