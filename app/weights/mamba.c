/* Mamba as Hugging Face's transformers store it (MambaForCausalLM, model_type "mamba"). What the tensors do not tell
 * comes from config.json; without one, the defaults of that program hold. */
#include "core/mem.h"
#include "weights/formats.h"
#include "weights/gates.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK "backbone.layers.%d."

const char *mr_guess_mamba(const mr_foreign *f)
{
    return mr_foreign_has(f, "backbone.layers.0.mixer.A_log") ? "a Mamba language model (transformers)" : NULL;
}

static const char *embedding_of(const mr_transfer *t)
{
    return mr_foreign_has(t->from, "backbone.embedding.weight") ? "backbone.embedding.weight"
                                                                : "backbone.embeddings.weight";
}

/* ---- config.json */

/* A key that must have this value where it is there. */
static void need_word(mr_transfer *t, const char *key, const char *value)
{
    const char *has = mr_sidecar_value(&t->from->config, key);
    if (has && strcmp(has, value))
        mr_transfer_fail(t, "config.json: %s = %.60s cannot be expressed; only %s can", key, has, value);
}

static int is_word(const mr_transfer *t, const char *key, const char *value)
{
    const char *has = mr_sidecar_value(&t->from->config, key);
    return has && !strcmp(has, value);
}

/* A size that must be that of the tensors. */
static void need_size(mr_transfer *t, const char *key, int64_t size)
{
    const char *has = mr_sidecar_value(&t->from->config, key);
    if (has && strcmp(has, "auto") && strcmp(has, mr_name_of("%lld", (long long)size).text))
        mr_transfer_fail(t, "config.json: %s = %.60s, but the tensors have %lld", key, has, (long long)size);
}

static int is_false(const mr_transfer *t, const char *key) { return is_word(t, key, "false"); }

/* ---- settings */

typedef struct sizes {
    int64_t vocab, dim, width, states, taps, rank, outputs;
    int layers;
} sizes;

static void read_sizes(mr_transfer *t, sizes *s)
{
    const int64_t *embedding = mr_sizes_of(t, embedding_of(t), 2);
    const int64_t *states = mr_sizes_of(t, "backbone.layers.0.mixer.A_log", 2);
    *s = (sizes){.vocab = embedding[0], .dim = embedding[1], .width = states[0], .states = states[1]};
    s->taps = mr_sizes_of(t, "backbone.layers.0.mixer.conv1d.weight", 3)[2];
    s->rank = mr_sizes_of(t, "backbone.layers.0.mixer.dt_proj.weight", 2)[1];
    s->layers = mr_foreign_blocks(t->from, BLOCK "mixer.A_log");
    s->outputs = mr_foreign_has(t->from, "lm_head.weight") ? mr_sizes_of(t, "lm_head.weight", 2)[0] : s->vocab;
}

static void check_config(mr_transfer *t, const sizes *s)
{
    need_word(t, "model_type", "mamba");
    need_word(t, "use_bias", "false");
    if (!is_word(t, "hidden_act", "swish")) need_word(t, "hidden_act", "silu"); /* two names of one function */
    need_size(t, "vocab_size", s->vocab);
    need_size(t, "hidden_size", s->dim);
    need_size(t, "num_hidden_layers", s->layers);
    need_size(t, "intermediate_size", s->width);
    need_size(t, "state_size", s->states);
    need_size(t, "conv_kernel", s->taps);
    need_size(t, "time_step_rank", s->rank);
    if (s->states > 32) mr_transfer_fail(t, "state_size = %lld: at most 32 can be expressed", (long long)s->states);
    if (s->taps > 16) mr_transfer_fail(t, "conv_kernel = %lld: at most 16 can be expressed", (long long)s->taps);
}

/* norm-eps. 0 would mean that of the kind; what is no number is the key's to refuse. */
static const char *epsilon_of(mr_transfer *t)
{
    const mr_sidecar_entry *entry = mr_sidecar_find(&t->from->config, "layer_norm_epsilon");
    const char *value = mr_sidecar_value(&t->from->config, "layer_norm_epsilon");
    char *end;
    if (entry && !entry->value) mr_transfer_fail(t, "config.json: layer_norm_epsilon is a list or an object");
    if (!value) return "1e-5";
    return strtod(value, &end) == 0 && end > value && !*end ? MR_EPS_TINY : value;
}

static void set_keys(mr_transfer *t, const sizes *s, int tied)
{
    mr_set(t, "input", "tokens");
    mr_set(t, "inputs", "%lld", (long long)s->vocab);
    mr_set(t, "head", "token");
    mr_set(t, "loss", "xent");
    mr_set(t, "outputs", "%lld", (long long)s->outputs);
    mr_set(t, "mixer", "mamba");
    mr_set(t, "layers", "%d", s->layers);
    mr_set(t, "dim", "%lld", (long long)s->dim);
    mr_set_width(t, s->width, s->dim);
    mr_set(t, "conv", "0");
    mr_set(t, "mlp", "0");
    mr_set(t, "norm", "rms");
    mr_set(t, "norm-eps", "%s", epsilon_of(t));
    mr_set(t, "states", "%lld", (long long)s->states);
    mr_set(t, "mixer-bias", "no");
    if (s->taps != 4) mr_set(t, "mixer-conv", "%lld", (long long)s->taps);
    if (s->rank != (s->dim + 15) / 16) mr_set(t, "dt-rank", "%lld", (long long)s->rank);
    if (tied) mr_set(t, "tie-embeddings", "yes");
}

/* ---- tensors */

static void move_block(mr_transfer *t, int i, int has_conv_bias)
{
    static const char *const same[] = {
        "in_proj.weight", "conv1d.weight", "x_proj.weight", "dt_proj.weight", "dt_proj.bias", "A_log", "D"};
    for (size_t k = 0; k < sizeof same / sizeof *same; k++)
        mr_move(t, mr_name_of(BLOCK "mixer.%s", i, same[k]).text, mr_name_of("blocks.%d.mixer.%s", i, same[k]).text);
    const mr_name bias = mr_name_of("blocks.%d.mixer.conv1d.bias", i);
    if (has_conv_bias) mr_move(t, mr_name_of(BLOCK "mixer.conv1d.bias", i).text, bias.text);
    else mr_fill(t, bias.text, 0);
    mr_move(t, mr_name_of(BLOCK "mixer.out_proj.weight", i).text, mr_name_of("blocks.%d.mixer.down.weight", i).text);
    mr_move(t, mr_name_of(BLOCK "norm.weight", i).text, mr_name_of("blocks.%d.norm1.weight", i).text);
}

/* A tied head that is in the file all the same must be the embedding. */
static void check_tied(mr_transfer *t, const sizes *s)
{
    const int64_t shape[] = {s->vocab, s->dim};
    if (!mr_foreign_has(t->from, "lm_head.weight")) return;
    mr_take(t, "lm_head.weight", 2, shape);
    float *head = t->taken; /* the next take must not free it */
    t->taken = NULL;
    const float *embedding = mr_take(t, embedding_of(t), 2, shape);
    for (int64_t i = 0; embedding && i < s->vocab * s->dim; i++)
        if (head[i] != embedding[i]) {
            mr_transfer_fail(t, "lm_head.weight is not the embedding, but tie_word_embeddings is true");
            break;
        }
    mr_free(head);
}

void mr_import_mamba(mr_transfer *t)
{
    sizes s;
    t->layout = "Mamba of transformers";
    read_sizes(t, &s);
    check_config(t, &s);
    /* without a config.json a head in the file is one of its own */
    const int tied =
        t->from->config.count ? !is_false(t, "tie_word_embeddings") : !mr_foreign_has(t->from, "lm_head.weight");
    const int conv_bias = t->from->config.count ? !is_false(t, "use_conv_bias")
                                                : mr_foreign_has(t->from, "backbone.layers.0.mixer.conv1d.bias");
    set_keys(t, &s, tied);
    if (tied) check_tied(t, &s);
    mr_transfer_create(t);
    mr_move(t, embedding_of(t), "embed.weight");
    for (int i = 0; !t->status && i < s.layers; i++) move_block(t, i, conv_bias);
    mr_move(t, "backbone.norm_f.weight", "norm.weight");
    if (!tied) mr_move(t, "lm_head.weight", "head.weight");
}
