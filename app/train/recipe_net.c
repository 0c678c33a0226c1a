/* From a recipe to its opened task and its net. */
#include "train/recipe.h"

#include "core/mem.h"

#include <stdio.h>
#include <string.h>

static void add_whole(mr_key_list *l, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    mr_key_list_add(l, key, text);
}

static const char *const input_names[] = {"tokens", "reals"}, *const loss_names[] = {"xent", "mse"};
static const char *const head_names[] = {"token", "last", "mean", "pair-last", "pair-mean"};

/* The model's inputs and outputs, and how long the task's sequences are. */
static void add_interface(mr_key_list *l, const mr_interface *interface, int64_t horizon)
{
    mr_key_list_add(l, "input", input_names[interface->input]);
    add_whole(l, "inputs", interface->inputs);
    mr_key_list_add(l, "head", head_names[interface->head]);
    mr_key_list_add(l, "loss", loss_names[interface->loss]);
    add_whole(l, "outputs", interface->outputs);
    add_whole(l, "horizon", horizon);
}

static void add_keys(mr_key_list *l, const mr_recipe *r)
{
    mr_key_list_take(l, mr_model_table(), &r->model);
    mr_key_list_take(l, mr_train_table(), &r->train);
}

static int check_keys(mr_key_list *l, mr_error *err)
{
    int status =
        l->failed ? mr_no_memory(err, "the recipe") : mr_settings_check((const char *const *)l->list, NULL, err);
    mr_key_list_free(l);
    return status;
}

int mr_recipe_check_model(const mr_recipe *r, mr_error *err)
{
    /* mse takes every key of a model, xent not all (output) */
    const mr_interface plain = {
        .input = MR_INPUT_TOKENS, .inputs = 2, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_MSE, .outputs = 2};
    mr_key_list list = {0};
    add_keys(&list, r);
    add_interface(&list, &plain, 1);
    return check_keys(&list, err);
}

int mr_recipe_open_task(mr_recipe *r, mr_error *err)
{
    r->task->seed = (uint64_t)mr_train_seed(&r->train);
    r->task->batch = (int)r->train.batch;
    r->task->context = (int)r->train.context;
    return mr_task_open(r->task, err);
}

int mr_recipe_open(mr_recipe *r, mr_error *err)
{
    mr_key_list list = {0};
    int status = mr_recipe_open_task(r, err);
    if (status) return status;
    add_keys(&list, r);
    add_interface(&list, &r->task->interface, r->task->max_T);
    return check_keys(&list, err);
}

/* Further metadata of a model file: the task with its settings, and the keys of [train] that an evaluation needs. */
static int add_meta(const mr_recipe *r, mr_net *net, mr_error *err)
{
    char key[64], value[MR_TEXT_MAX];
    int status = mr_net_set_meta(net, "task.name", r->task->type->name, err);
    for (const mr_option *o = r->task->type->options; !status && o->key; o++) {
        if (o->flags & (MR_OPT_PATH | MR_OPT_DERIVED)) continue;
        mr_option_print(o, r->task->settings, value);
        if ((o->flags & MR_OPT_SPARSE) && !strcmp(value, o->fallback)) continue;
        snprintf(key, sizeof key, "task.%s", o->key);
        status = mr_net_set_meta(net, key, value, err);
    }
    snprintf(value, sizeof value, "%lld", (long long)r->train.batch);
    if (!status) status = mr_net_set_meta(net, "train.batch", value, err);
    snprintf(value, sizeof value, "%lld", (long long)r->train.context);
    return status ? status : mr_net_set_meta(net, "train.context", value, err);
}

int mr_recipe_take_model(mr_recipe *r, const mr_net *net, mr_error *err)
{
    char value[MR_TEXT_MAX];
    int status = 0;
    for (const mr_option *o = mr_model_table(); !status && o->key; o++) {
        status = mr_net_setting(net, o->key, value, sizeof value, err);
        if (!status) status = mr_option_parse(o, &r->model, value, err);
    }
    return status;
}

/* A vocabulary decides the model's inputs and outputs; without one the task's interface does. */
static int add_sides(mr_key_list *l, const mr_task *task, mr_error *err)
{
    size_t needed = 0;
    if (!task->vocab) return add_interface(l, &task->interface, task->max_T), 0;
    mr_vocab_print(task->vocab, NULL, 0, &needed, NULL);
    char *text = needed ? mr_alloc(needed, 1) : NULL;
    int status = text ? mr_vocab_print(task->vocab, text, needed, NULL, err) : mr_no_memory(err, "the vocabulary");
    if (!status) mr_key_list_add(l, "vocab", text);
    add_whole(l, "horizon", task->max_T);
    mr_free(text);
    return status;
}

/* Training keeps eight numbers for each parameter. More than the machine has is refused before any memory is taken; a
 * GPU reports for itself. */
static int check_memory(const mr_key_list *l, const mr_context *ctx, mr_error *err)
{
    int64_t parameters = 0;
    const double have = strncmp(mr_context_device(ctx), "cuda", 4) ? (double)mr_memory_total() : 0;
    int status = mr_settings_check((const char *const *)l->list, &parameters, err);
    const double need = 8.0 * sizeof(float) * (double)parameters;
    if (status || !have || need <= have) return status;
    return mr_fail(err, MR_ENOMEM,
                   "%.4g GB of memory are needed and this machine has %.4g, to train %.3g parameters; lower --dim, "
                   "--layers, --expansion or --mlp",
                   need / 1e9, have / 1e9, (double)parameters);
}

int mr_recipe_net(mr_recipe *r, mr_context *ctx, mr_net **out, mr_error *err)
{
    mr_key_list list = {0};
    *out = NULL;
    add_keys(&list, r);
    int status = add_sides(&list, r->task, err);
    if (!status && list.failed) status = mr_no_memory(err, "the recipe");
    if (!status) status = check_memory(&list, ctx, err);
    if (!status) status = mr_net_create(ctx, (const char *const *)list.list, out, err);
    mr_key_list_free(&list);
    if (!status && r->task->input_mean)
        status = mr_net_set_scaler(*out, r->task->input_mean, r->task->input_scale, NULL, NULL, err);
    if (!status) status = add_meta(r, *out, err);
    if (!status) status = mr_recipe_take_model(r, *out, err);
    if (!status) return 0;
    mr_net_free(*out);
    *out = NULL;
    return status;
}

const char *mr_recipe_model_key(const mr_recipe *r, const char *key, char out[MR_TEXT_MAX])
{
    return mr_option_print(mr_option_find(mr_model_table(), key), &r->model, out);
}

static void describe_face(const mr_interface *interface, char *out, size_t size)
{
    snprintf(out, size, "%d %s in, %d outputs, head %s, loss %s", interface->inputs,
             interface->input == MR_INPUT_TOKENS ? "kinds of tokens" : "values", interface->outputs,
             head_names[interface->head], loss_names[interface->loss]);
}

int mr_recipe_suits(const mr_recipe *r, const mr_net *net, mr_error *err)
{
    const mr_interface needed = r->task->interface, has = {.input = mr_net_input(net),
                                                           .inputs = mr_net_inputs(net),
                                                           .head = mr_net_head(net),
                                                           .loss = mr_net_loss(net),
                                                           .outputs = mr_net_outputs(net)};
    char left[128], right[128];
    describe_face(&needed, left, sizeof left);
    describe_face(&has, right, sizeof right);
    if (!strcmp(left, right)) return 0;
    return mr_fail(err, MR_ECONFIG, "task %s needs a model with %s; this one has %s", r->task->type->name, left, right);
}
