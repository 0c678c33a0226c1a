/* Nets: opened, created, asked, saved, freed. */
#include "api/api.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- parts ---- */

static char *copy_text(const mr_allocator *by, const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = mr_alloc_by(by, size, 1);
    return copy ? memcpy(copy, text, size) : NULL;
}

/* The list has room and ends with a row of zeros. 0: out of memory. */
static int add_meta(mr_net *net, const char *key, const char *value)
{
    mr_meta *m = net->meta;
    while (m->key) m++;
    m->value = copy_text(&net->ctx->allocator, value);
    m->key = m->value ? copy_text(&net->ctx->allocator, key) : NULL;
    if (!m->key) mr_free_by(&net->ctx->allocator, (char *)m->value);
    return m->key != NULL;
}

/* Everything that saving would not write by itself. */
static int keep_meta(mr_net *net, const mr_st *st, const char *path, mr_error *err)
{
    net->meta = mr_alloc_by(&net->ctx->allocator, (size_t)mr_st_meta_count(st) + 1, sizeof *net->meta);
    int kept = net->meta != NULL;
    for (int i = 0; kept && i < mr_st_meta_count(st); i++) {
        const char *key, *value;
        mr_st_meta_at(st, i, &key, &value);
        if (!strcmp(key, "format") || !strcmp(key, "version") || !strcmp(key, "step") || !strncmp(key, "model.", 6)) continue;
        kept = add_meta(net, key, value);
    }
    return kept ? 0 : mr_no_memory(err, path);
}

/* The net's own copy, in its context's memory; the given one is freed. */
static int keep_vocab(mr_net *net, mr_vocab *vocab, mr_error *err)
{
    const size_t bytes = (size_t)vocab->size * sizeof *vocab->codepoints;
    net->vocab = (mr_vocab){.kind = vocab->kind, .size = vocab->size};
    if (vocab->codepoints && bytes) {
        net->vocab.codepoints = mr_alloc_by(&net->ctx->allocator, bytes, 1);
        if (net->vocab.codepoints) memcpy(net->vocab.codepoints, vocab->codepoints, bytes);
    }
    const int kept = !vocab->codepoints == !net->vocab.codepoints;
    mr_vocab_free(vocab);
    return kept ? 0 : mr_no_memory(err, "a vocabulary");
}

static mr_net *make_net(mr_context *ctx)
{
    mr_net *net = mr_alloc_by(&ctx->allocator, 1, sizeof *net);
    if (!net) return NULL;
    net->ctx = ctx;
    mr_options_default(mr_learn_options, &net->train);
    pthread_mutex_init(&net->lock, NULL);
    pthread_cond_init(&net->turn, NULL);
    return net;
}

/* The weights' owner; `config` is checked there. */
static int make_owner(mr_net *net, const mr_config *config, mr_dev *dev, mr_error *err)
{
    int status = mr_model_new(config, dev, (mr_decay_set)net->train.decay_set, &net->owner, err);
    if (status) return status;
    net->face = mr_config_interface(config);
    net->state_reals = mr_model_state_reals(net->owner);
    return 0;
}

static void free_parts(mr_net *net, mr_dev *dev)
{
    const mr_allocator *by = dev->by;
    for (mr_runner *r = net->idle, *next; r; r = next) {
        next = r->next;
        mr_model_use(r->model, dev);
        mr_state_free(r->many);
        mr_model_free(r->model);
        mr_free_by(by, r);
    }
    if (net->owner) mr_model_use(net->owner, dev);
    mr_model_free(net->owner);
    mr_free_by(by, net->vocab.codepoints);
    for (const mr_meta *m = net->meta; m && m->key; m++) {
        mr_free_by(by, (char *)m->key);
        mr_free_by(by, (char *)m->value);
    }
    mr_free_by(by, net->meta);
}

void mr_net_free(mr_net *net)
{
    if (!net) return;
    mr_context *ctx = net->ctx;
    mr_dev *dev = mr_context_borrow(ctx);
    free_parts(net, dev);
    mr_context_return(ctx, dev);
    pthread_cond_destroy(&net->turn);
    pthread_mutex_destroy(&net->lock);
    mr_free_by(&ctx->allocator, net);
}

/* ---- opening ---- */

static int read_file(mr_net *net, const mr_st *st, const char *path, mr_dev *dev, mr_error *err)
{
    mr_config config;
    mr_vocab vocab = {0};
    if (mr_st_meta(st, "state.step"))
        return mr_fail(err, MR_EFORMAT, "%s: is the state of a training, which mr_net_load_training or `minrnn train --resume` reads; its model is a file of its own", path);
    int status = mr_model_read_config(st, path, mr_model_meta_keys, &config, err);
    if (!status) status = mr_model_read_step(&net->steps, st, path, err);
    if (!status) status = mr_model_read_vocab(&vocab, &config, st, path, err);
    if (!status) status = keep_vocab(net, &vocab, err);
    else mr_vocab_free(&vocab);
    if (!status) status = keep_meta(net, st, path, err);
    if (!status) status = make_owner(net, &config, dev, err);
    return status ? status : mr_model_read_weights(net->owner, st, path, 1, 1, err);
}

static int open_st(mr_context *ctx, const mr_st *st, const char *path, mr_net **out, mr_error *err)
{
    mr_net *net = make_net(ctx);
    if (!net) return mr_no_memory(err, path);
    mr_dev *dev = mr_context_borrow(ctx);
    int status = read_file(net, st, path, dev, err), report = dev->sync(dev, status ? NULL : err);
    mr_context_return(ctx, dev);
    if (!status) status = report;
    if (status) mr_net_free(net);
    else *out = net;
    if (!status) mr_context_log(ctx, "%s: %lld parameters", path, (long long)mr_net_parameters(net));
    return status;
}

int mr_net_open(mr_context *ctx, const char *path, mr_net **out, mr_error *err)
{
    mr_st *st;
    *out = NULL;
    int status = mr_st_open(path, &st, err);
    if (!status) status = open_st(ctx, st, path, out, err);
    mr_st_close(st);
    return status;
}

int mr_net_open_memory(mr_context *ctx, const void *data, size_t size, mr_net **out, mr_error *err)
{
    static const char name[] = "model in memory";
    mr_st *st;
    *out = NULL;
    int status = mr_st_open_memory(data, size, name, &st, err);
    if (!status) status = open_st(ctx, st, name, out, err);
    mr_st_close(st);
    return status;
}

/* ---- creating ---- */

typedef struct creation {
    mr_config config;
    mr_learn_settings train;
    mr_vocab vocab;
    const char *vocab_text; /* NULL: none */
} creation;

static int take_vocab(creation *c, const char *text, mr_error *err)
{
    mr_error inner;
    mr_vocab_free(&c->vocab);
    if (mr_vocab_parse(&c->vocab, text, &inner)) return mr_fail(err, MR_EINVAL, "vocab: %.800s", inner.text);
    const mr_interface face = {MR_INPUT_TOKENS, c->vocab.size, MR_HEAD_TOKEN, MR_LOSS_XENT, c->vocab.size};
    mr_config_take(&c->config, &face);
    c->vocab_text = text;
    return 0;
}

static int take_key(creation *c, const char *key, const char *value, mr_error *err)
{
    const mr_option *const tables[] = {mr_config_options, mr_learn_options, NULL};
    void *const settings[] = {&c->config, &c->train};
    for (int i = 0; tables[i] && strcmp(key, "weights"); i++) {
        const mr_option *o = mr_option_find(tables[i], key);
        if (o && c->vocab_text && (o->flags & MR_OPT_DERIVED))
            return mr_fail(err, MR_EINVAL, "%s: follows from vocab; leave one of them out", key);
        if (o) return mr_option_parse(o, settings[i], value, err);
    }
    const char *near = mr_option_nearest(tables, key);
    return mr_fail(err, MR_EINVAL, "unknown key %.100s%s%s%s", key, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int take_settings(creation *c, const char *const *settings, mr_error *err)
{
    int status = 0;
    for (const char *const *s = settings; !status && s && *s; s += 2) {
        if (!s[1]) status = mr_fail(err, MR_EINVAL, "%.100s: the list of settings ends before its value", *s);
        else if (!strcmp(*s, "vocab")) status = take_vocab(c, s[1], err);
        else status = take_key(c, *s, s[1], err);
    }
    return status;
}

/* A net of text says so, so that the command takes it too. */
static int say_task(mr_net *net, const creation *c, mr_error *err)
{
    net->meta = mr_alloc_by(&net->ctx->allocator, 3, sizeof *net->meta);
    if (!net->meta) return mr_no_memory(err, "a net");
    if (!c->vocab_text) return 0;
    return add_meta(net, "task.name", "text") && add_meta(net, "vocab", c->vocab_text) ? 0 : mr_no_memory(err, "a net");
}

static int start_weights(mr_net *net, mr_dev *dev, mr_error *err)
{
    const mr_params *params = mr_model_params(net->owner);
    float *weights = mr_alloc_by(dev->by, params->total, sizeof *weights);
    int status = weights ? mr_model_plan(net->owner, 1, 1, 0, err) : mr_no_memory(err, "the weights");
    if (!status) {
        mr_model_start(net->owner, (uint64_t)net->train.seed, 256, weights);
        mr_model_put(net->owner, MR_WEIGHTS, weights);
        status = dev->sync(dev, err);
    }
    mr_free_by(dev->by, weights);
    return status;
}

static int create(mr_net *net, creation *c, mr_error *err)
{
    mr_dev *dev = mr_context_borrow(net->ctx);
    net->train = c->train;
    int status = say_task(net, c, err);
    if (!status) status = keep_vocab(net, &c->vocab, err);
    if (!status) status = make_owner(net, &c->config, dev, err);
    if (!status) status = start_weights(net, dev, err);
    mr_context_return(net->ctx, dev);
    return status;
}

int mr_net_create(mr_context *ctx, const char *const *settings, mr_net **out, mr_error *err)
{
    creation c = {0};
    *out = NULL;
    mr_options_default(mr_config_options, &c.config);
    mr_options_default(mr_learn_options, &c.train);
    int status = take_settings(&c, settings, err);
    mr_net *net = status ? NULL : make_net(ctx);
    if (!status && !net) status = mr_no_memory(err, "a net");
    if (!status) status = create(net, &c, err);
    mr_vocab_free(&c.vocab);
    if (status) mr_net_free(net);
    else *out = net;
    if (!status) mr_context_log(ctx, "new model: %lld parameters", (long long)mr_net_parameters(net));
    return status;
}

/* ---- asking ---- */

int mr_net_inputs(const mr_net *net) { return net->face.inputs; }
int mr_net_outputs(const mr_net *net) { return net->face.outputs; }
int mr_net_takes_values(const mr_net *net) { return net->face.input == MR_INPUT_REALS; }
int mr_net_row_per_token(const mr_net *net) { return net->face.head == MR_HEAD_TOKEN; }
int64_t mr_net_parameters(const mr_net *net) { return mr_model_count(net->owner); }

int64_t mr_net_steps(const mr_net *net)
{
    mr_net *own = (mr_net *)net; /* for the lock: a training may be counting on */
    pthread_mutex_lock(&own->lock);
    const int64_t steps = net->steps;
    pthread_mutex_unlock(&own->lock);
    return steps;
}

int mr_net_encode(const mr_net *net, const char *text, size_t size, size_t *used, mr_error *err)
{
    int32_t tokens[4];
    size_t count = 0, taken = 0;
    *used = 0;
    if (!net->vocab.size) return mr_fail(err, MR_EINVAL, "this model does not read text");
    /* the shortest piece that is a whole character */
    for (size_t n = 1; n <= size && n <= 4; n++) {
        int status = mr_vocab_encode(&net->vocab, text, n, n == size || n == 4, 0, tokens, &count, &taken, err);
        if (status) return status;
        if (count) return *used = taken, tokens[0];
    }
    return mr_fail(err, MR_EINVAL, "no text to encode");
}

int mr_net_decode(const mr_net *net, int token, char bytes[4], mr_error *err)
{
    if (token >= 0 && token < net->vocab.size) return mr_vocab_decode(&net->vocab, token, bytes);
    return mr_fail(err, MR_EINVAL, "token %d is not in the vocabulary of %d", token, net->vocab.size);
}

/* ---- saving ---- */

static int check_finite(const mr_params *params, const float *weights, mr_error *err)
{
    for (int i = 0; i < params->count; i++)
        for (size_t j = 0; j < params->list[i].count; j++)
            if (!isfinite(weights[params->list[i].offset + j]))
                return mr_fail(err, MR_ENONFINITE, "%s: has become NaN or infinite, and is not saved; lower lr", params->list[i].name);
    return 0;
}

static int save(const mr_net *net, float *weights, const char *path, mr_error *err)
{
    const mr_params *params = mr_model_params(net->owner);
    char step[32];
    int count = 0;
    mr_model_get(net->owner, MR_WEIGHTS, weights);
    int status = check_finite(params, weights, err);
    if (status) return status;
    while (net->meta[count].key) count++;
    mr_meta *extra = mr_alloc_by(&net->ctx->allocator, (size_t)count + 2, sizeof *extra);
    if (!extra) return mr_no_memory(err, path);
    snprintf(step, sizeof step, "%" PRId64, net->steps);
    memcpy(extra, net->meta, (size_t)count * sizeof *extra);
    extra[count] = (mr_meta){"step", step};
    status = mr_model_save(path, mr_model_config(net->owner), params, weights, extra, err);
    mr_free_by(&net->ctx->allocator, extra);
    return status;
}

int mr_net_save(mr_net *net, const char *path, mr_error *err)
{
    mr_turn turn;
    if (mr_model_quants(net->owner)) return mr_fail(err, MR_ECONFIG, "%s: weights in 8 bits are not written anew; copy the file that they came from", path);
    float *weights = mr_alloc_by(&net->ctx->allocator, mr_model_params(net->owner)->total, sizeof *weights);
    if (!weights) return mr_no_memory(err, path);
    mr_turn_begin_alone(&turn, net);
    int status = mr_turn_end(&turn, save(net, weights, path, err), err);
    mr_free_by(&net->ctx->allocator, weights);
    return status;
}
