/* Starting from a model: its configuration and vocabulary go into the recipe, later its weights into the net. */
#include "train/init.h"

#include "core/mem.h"
#include "train/session.h"

#include <string.h>

/* What says how to train rather than what the model is: free for each run. */
static const char *const free_keys[] = {"dropout", "gate-init", NULL};

static int is_free(const char *key)
{
    for (int i = 0; free_keys[i]; i++)
        if (!strcmp(key, free_keys[i])) return 1;
    return 0;
}

int mr_init_decides(int section, const char *key)
{
    if (section == MR_SECTION_TASK) return !strcmp(key, "vocab");
    return section == MR_SECTION_MODEL && !is_free(key) && mr_option_find(mr_model_table(), key);
}

/* ---- the vocabulary ---- */

/* Texts are read with the given vocabulary from now on, and `vocab` says which kind it is. */
static int take_vocab(mr_recipe *r, const char *path, const char *text, mr_error *err)
{
    const mr_option *kind = mr_option_find(r->task->type->options, "vocab");
    mr_error inner;
    if (!kind) return 0; /* no task over a text */
    if (!text[0])
        return mr_fail(err, MR_ECONFIG, "%s: has no vocabulary; task %s needs a model of text", path,
                       r->task->type->name);
    if (mr_vocab_parse(text, &r->vocab, &inner)) return mr_fail(err, inner.status, "%s: %.900s", path, inner.text);
    r->task->given = r->vocab;
    return mr_option_parse(kind, r->task->settings, mr_vocab_is_bytes(r->vocab) ? "bytes" : "chars", err);
}

/* The vocabulary of a state, with which the run began, even if the model has changed since. */
static int take_state_vocab(mr_recipe *r, const char *state, mr_error *err)
{
    size_t needed = 0;
    int status = mr_file_meta(state, "vocab", NULL, 0, &needed, NULL);
    if (!needed) return status ? mr_file_meta(state, "vocab", NULL, 0, &needed, err) : take_vocab(r, state, "", err);
    char *text = mr_alloc(needed, 1);
    status = text ? mr_file_meta(state, "vocab", text, needed, &needed, err) : mr_no_memory(err, state);
    if (!status) status = take_vocab(r, state, text, err);
    mr_free(text);
    return status;
}

/* ---- the model ---- */

static int take_net_vocab(mr_recipe *r, const char *path, mr_error *err)
{
    const mr_vocab *vocab = mr_net_vocab(r->init_net);
    size_t needed = 0;
    if (!vocab) return take_vocab(r, path, "", err);
    mr_vocab_print(vocab, NULL, 0, &needed, NULL);
    char *text = needed ? mr_alloc(needed, 1) : NULL;
    int status = text ? mr_vocab_print(vocab, text, needed, NULL, err) : mr_no_memory(err, "the vocabulary");
    if (!status) status = take_vocab(r, path, text, err);
    mr_free(text);
    return status;
}

static int take_config(mr_recipe *r, mr_error *err)
{
    const mr_model_settings before = r->model;
    int status = mr_recipe_take_model(r, r->init_net, err);
    for (int i = 0; !status && free_keys[i]; i++) {
        char value[MR_TEXT_MAX];
        const mr_option *o = mr_option_find(mr_model_table(), free_keys[i]);
        if (o) status = mr_option_parse(o, &r->model, mr_option_print(o, &before, value), err);
    }
    return status;
}

static int check_trainable(const mr_net *net, const char *path, mr_error *err)
{
    char weights[MR_TEXT_MAX];
    int status = mr_net_setting(net, "weights", weights, sizeof weights, err);
    if (status) return status;
    if (strcmp(weights, "f32"))
        return mr_fail(err, MR_ECONFIG,
                       "%s: its weights are in 8 bits, which are not trained; give the model that it was made from",
                       path);
    if (mr_net_scaler(net, NULL, NULL, 0, NULL, NULL, 0, NULL))
        return mr_fail(err, MR_ECONFIG, "%s: has a scaler of its own, which a new run cannot take over", path);
    return 0;
}

/* On the CPU, whatever the run will use: the weights are only copied from there. */
static int open_model(mr_recipe *r, const char *path, mr_error *err)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    options.device = "cpu";
    options.threads = 1;
    int status = mr_context_new(&options, &r->init_ctx, err);
    if (!status) status = mr_net_open(r->init_ctx, path, &r->init_net, err);
    if (!status) status = check_trainable(r->init_net, path, err);
    if (!status) status = take_config(r, err);
    return status ? status : take_net_vocab(r, path, err);
}

int mr_init_open(mr_recipe *r, const char *state, mr_error *err)
{
    mr_error inner;
    if (!r->train.init[0]) return 0;
    if (state) return take_state_vocab(r, state, err);
    char *path = NULL;
    int status = mr_model_path(r->train.init, &path, &inner);
    if (!status) status = open_model(r, path, &inner);
    mr_free(path);
    return status ? mr_fail(err, status, "--init: %.1000s", inner.text) : 0;
}

int mr_init_check(const mr_recipe *r, mr_error *err)
{
    mr_error inner;
    if (!r->init_net || !mr_recipe_suits(r, r->init_net, &inner)) return 0;
    return mr_fail(err, inner.status, "--init %.200s: %.800s", r->train.init, inner.text);
}

static int copy_tensor(mr_net *from, mr_net *to, int index, mr_error *err)
{
    mr_tensor tensor = MR_TENSOR;
    int status = mr_net_tensor(from, index, &tensor, err);
    float *values = status ? NULL : mr_alloc(tensor.count, sizeof *values);
    if (!status && !values) status = mr_no_memory(err, tensor.name);
    if (!status) status = mr_net_get(from, MR_WEIGHTS, tensor.name, values, tensor.count, err);
    if (!status) status = mr_net_put(to, MR_WEIGHTS, tensor.name, values, tensor.count, err);
    mr_free(values);
    return status;
}

int mr_init_weights(mr_recipe *r, mr_net *net, mr_error *err)
{
    if (!r->init_net) return 0;
    int status = mr_net_tensors(net) == mr_net_tensors(r->init_net)
                     ? 0
                     : mr_fail(err, MR_ECONFIG, "--init %.200s: %d tensors, not %d", r->train.init,
                               mr_net_tensors(r->init_net), mr_net_tensors(net));
    for (int i = 0; !status && i < mr_net_tensors(net); i++) status = copy_tensor(r->init_net, net, i, err);
    mr_recipe_drop_init(r);
    return status;
}
