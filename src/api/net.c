/* Nets: made without weights, opened from files, freed. */
#include "api/api.h"

#include <string.h>

mr_net *mr_net_blank(mr_context *ctx)
{
    mr_net *net = mr_alloc_with(&ctx->allocator, 1, sizeof *net);
    if (!net) return NULL;
    net->ctx = ctx;
    net->fresh_grads = 1;
    mr_options_default(mr_learn_table, &net->train);
    net->chosen.how = MR_RECOMPUTE_AUTO;
    pthread_mutex_init(&net->lock, NULL);
    pthread_cond_init(&net->lease_ended, NULL);
    return net;
}

int mr_net_make_owner(mr_net *net, const mr_config *config, mr_dev *dev, mr_error *err)
{
    int status = mr_model_new(config, dev, net->train.decay_set, &net->owner, err);
    if (status) return status;
    net->interface = mr_config_interface(config);
    net->state_reals = mr_model_state_reals(net->owner);
    if (!net->ctx->comm) return 0;
    status = mr_model_join(net->owner, net->ctx->comm, net->ctx->courier, net->ctx->shard, net->ctx->cut, err);
    return status ? status : mr_cut_begin(net, err);
}

static void free_runners(mr_net *net, mr_dev *dev)
{
    for (mr_runner *r = net->idle, *next; r; r = next) {
        next = r->next;
        mr_model_use(r->model, dev);
        dev->release(dev, r->states);
        dev->release(dev, r->slots);
        mr_model_free(r->model);
        mr_free_with(dev->allocator, r);
    }
}

static void free_parts(mr_net *net, mr_dev *dev)
{
    free_runners(net, dev);
    dev->release(dev, net->pool.reals);
    dev->release(dev, net->carried.reals);
    if (net->owner) mr_model_use(net->owner, dev);
    mr_model_free(net->owner);
    mr_sequence_free(net->sequence);
    mr_vocab_free(net->vocab);
    mr_free_with(dev->allocator, net->pool.unused);
    mr_free_with(dev->allocator, net->best);
    mr_free_with(dev->allocator, net->micro_sums);
    for (int i = 0; i < net->meta_count; i++) {
        mr_free_with(dev->allocator, net->meta[i].key);
        mr_free_with(dev->allocator, net->meta[i].value);
    }
    mr_free_with(dev->allocator, net->meta);
}

void mr_net_free(mr_net *net)
{
    if (!net) return;
    mr_context *ctx = net->ctx;
    mr_dev *dev = mr_context_borrow(ctx);
    free_parts(net, dev);
    mr_context_return(ctx, dev);
    pthread_cond_destroy(&net->lease_ended);
    pthread_mutex_destroy(&net->lock);
    mr_free_with(&ctx->allocator, net);
}

/* ---- opening ---- */

/* Is this metadata that saving writes by itself? */
static int is_ours(const char *key)
{
    return !strcmp(key, "format") || !strcmp(key, "version") || !strcmp(key, "step") || !strcmp(key, "vocab") ||
           !strncmp(key, "model.", 6);
}

static int keep_meta(mr_net *net, const mr_st *st, const char *path, mr_error *err)
{
    for (int i = 0; i < mr_st_meta_count(st); i++) {
        const char *key, *value;
        mr_st_meta_at(st, i, &key, &value);
        if (!is_ours(key) && !mr_net_put_meta(net, key, value)) return mr_no_memory(err, path);
    }
    return 0;
}

static int keep_vocab(mr_net *net, const mr_config *config, const mr_st *st, const char *path, mr_error *err)
{
    mr_vocab *vocab = NULL;
    int status = mr_model_read_vocab(&vocab, config, st, path, err);
    if (!status && vocab && !(net->vocab = mr_vocab_copy(vocab, &net->ctx->allocator)))
        status = mr_no_memory(err, path);
    mr_vocab_free(vocab);
    return status;
}

static int read_file(mr_net *net, const mr_st *st, const char *path, mr_dev *dev, mr_error *err)
{
    mr_config config;
    if (mr_st_meta(st, "state.step"))
        return mr_fail(err, MR_EFORMAT,
                       "%s: is the state of a training run, not a model; the models beside it are model.safetensors "
                       "(the best) and last.safetensors; `minrnn train --out FOLDER --resume` and "
                       "mr_net_load_training continue from it",
                       path);
    int status = mr_model_read_config(st, path, &config, err);
    if (!status) status = mr_model_read_step(&net->steps, st, path, err);
    if (!status) status = keep_vocab(net, &config, st, path, err);
    if (!status) status = keep_meta(net, st, path, err);
    if (!status) status = mr_net_make_owner(net, &config, dev, err);
    return status ? status : mr_model_read_weights(net->owner, st, path, 1, 1, err);
}

static int open_st(mr_context *ctx, const mr_st *st, const char *path, mr_net **out, mr_error *err)
{
    mr_net *net = mr_net_blank(ctx);
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
