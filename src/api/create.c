/* New nets: settings are read into a configuration, and weights are drawn at random. */
#include "api/api.h"

#include <string.h>

typedef struct creation {
    mr_config config;
    mr_learn_settings train;
    mr_vocab *vocab; /* NULL: none was given */
    int64_t horizon;
} creation;

static int take_vocab(creation *c, const char *text, mr_error *err)
{
    mr_error inner;
    mr_vocab_free(c->vocab);
    int status = mr_vocab_parse(text, &c->vocab, &inner);
    if (status) return mr_fail(err, status == MR_ENOMEM ? status : MR_EINVAL, "vocab: %.800s", inner.text);
    const mr_interface interface = {MR_INPUT_TOKENS, c->vocab->size, MR_HEAD_TOKEN, MR_LOSS_XENT, c->vocab->size};
    mr_config_set_interface(&c->config, &interface);
    return 0;
}

static int take_horizon(creation *c, const char *value, mr_error *err)
{
    static const mr_option row = {"horizon", MR_OPT_INT, 0, "256", 1, INT32_MAX, NULL, "", 0};
    return mr_option_parse(&row, &c->horizon, value, err);
}

/* Keys that have their default in every new model. They are accepted with that value, because mr_net_setting returns
 * them. */
static int take_fixed(const char *key, const char *value, mr_error *err)
{
    const mr_option *o = mr_option_find(mr_config_options, key);
    if (!strcmp(value, o->fallback)) return 0;
    return mr_fail(err, MR_EINVAL, "%s = %.100s: a new model has %s; %s", key, value, o->fallback,
                   strcmp(key, "scaler") ? "mr_net_save_int8 makes the others"
                                         : "mr_net_set_scaler and mr_net_fit_scaler set it");
}

static int take_key(creation *c, const char *key, const char *value, mr_error *err)
{
    const mr_option *const tables[] = {mr_config_options, mr_learn_table, NULL};
    void *const settings[] = {&c->config, &c->train};
    if (!strcmp(key, "weights") || !strcmp(key, "scaler")) return take_fixed(key, value, err);
    for (int i = 0; tables[i]; i++) {
        const mr_option *o = mr_option_find(tables[i], key);
        if (o && c->vocab && (o->flags & MR_OPT_DERIVED))
            return mr_fail(err, MR_EINVAL, "%s: follows from vocab; leave one of them out", key);
        if (o) return mr_option_parse(o, settings[i], value, err);
    }
    const char *near = mr_option_nearest(tables, key);
    return mr_fail(err, MR_EINVAL, "unknown key %.100s%s%s%s", key, near ? "; did you mean " : "", near ? near : "",
                   near ? "?" : "");
}

static int take_settings(creation *c, const char *const *settings, mr_error *err)
{
    int status = 0;
    mr_options_default(mr_config_options, &c->config);
    mr_options_default(mr_learn_table, &c->train);
    c->horizon = 256;
    for (const char *const *s = settings; !status && s && *s; s += 2) {
        if (!s[1]) return mr_fail(err, MR_EINVAL, "%.100s: the list of settings ends before its value", *s);
        if (!strcmp(*s, "vocab")) status = take_vocab(c, s[1], err);
        else if (!strcmp(*s, "horizon")) status = take_horizon(c, s[1], err);
        else status = take_key(c, *s, s[1], err);
    }
    if (!status) mr_config_settle(&c->config, c->horizon);
    return status;
}

static int start_weights(mr_net *net, double horizon, mr_dev *dev, mr_error *err)
{
    const mr_params *params = mr_model_params(net->owner);
    int status = mr_model_plan(net->owner, 1, 1, 0, err); /* first, because its error says how much memory is missing */
    float *weights = status ? NULL : mr_alloc_with(dev->allocator, params->total, sizeof *weights);
    if (!status && !weights) status = mr_no_memory(err, "the weights");
    if (!status) {
        mr_model_init_weights(net->owner, (uint64_t)net->train.seed, horizon, weights);
        mr_model_put(net->owner, MR_WEIGHTS, weights);
        status = dev->sync(dev, err);
    }
    mr_free_with(dev->allocator, weights);
    return status;
}

static int create(mr_net *net, const creation *c, mr_error *err)
{
    mr_dev *dev = mr_context_borrow(net->ctx);
    int status = 0;
    net->train = c->train;
    if (c->vocab) {
        net->vocab = mr_vocab_copy(c->vocab, &net->ctx->allocator);
        /* the command accepts only nets that name their task */
        if (!net->vocab || !mr_net_put_meta(net, "task.name", "text")) status = mr_no_memory(err, "a net");
    }
    if (!status) status = mr_net_make_owner(net, &c->config, dev, err);
    if (!status) status = start_weights(net, (double)c->horizon, dev, err);
    mr_context_return(net->ctx, dev);
    return status;
}

int mr_net_create(mr_context *ctx, const char *const *settings, mr_net **out, mr_error *err)
{
    creation c = {0};
    *out = NULL;
    int status = take_settings(&c, settings, err);
    mr_net *net = status ? NULL : mr_net_blank(ctx);
    if (!status && !net) status = mr_no_memory(err, "a net");
    if (!status) status = create(net, &c, err);
    mr_vocab_free(c.vocab);
    if (status) mr_net_free(net);
    else *out = net;
    if (!status) mr_context_log(ctx, "new model: %lld parameters", (long long)mr_net_parameters(net));
    return status;
}

/* Makes only the table of parameters, which needs nothing of a device but its allocator. */
static int count_parameters(const mr_config *config, int64_t *parameters, mr_error *err)
{
    mr_dev plain = {.kind = "none", .real_size = sizeof(float), .act_size = sizeof(float)};
    mr_model *model = NULL;
    int status = mr_model_new(config, &plain, MR_DECAY_ALL, &model, err);
    if (status) return status;
    *parameters = mr_model_count(model);
    mr_model_free(model);
    return 0;
}

int mr_settings_check(const char *const *settings, int64_t *parameters, mr_error *err)
{
    creation c = {0};
    int64_t count = 0;
    int status = take_settings(&c, settings, err);
    if (!status) status = count_parameters(&c.config, &count, err);
    mr_vocab_free(c.vocab);
    if (!status && parameters) *parameters = count;
    return status;
}
