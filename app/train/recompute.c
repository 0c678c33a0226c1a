/* What a run computes again: asked of the library, told to the user. */
#include "train/recompute.h"

#include <stdio.h>
#include <string.h>

static const char *const keys[] = {"recompute", "recompute-chunk", NULL};

static const char *value_of(const mr_recipe *r, const char *key, char value[MR_TEXT_MAX])
{
    return mr_option_print(mr_option_find(mr_train_table(), key), &r->train, value);
}

int mr_reserve_run(mr_recipe *r, mr_net *net, mr_error *err)
{
    mr_shape shapes[2];
    char value[MR_TEXT_MAX];
    mr_task_shapes(r->task, shapes);
    int status = mr_net_reserve(net, &shapes[0], &shapes[1], err);
    for (int i = 0; !status && keys[i]; i++) {
        status = mr_net_setting(net, keys[i], value, sizeof value, err);
        if (!status) status = mr_recipe_set(r, keys[i], value, err);
    }
    return status;
}

int mr_reserve_scores(const mr_recipe *r, mr_net *net, mr_error *err)
{
    mr_shape shapes[2];
    char value[MR_TEXT_MAX];
    int status = 0;
    mr_task_shapes(r->task, shapes);
    for (int i = 0; !status && keys[i]; i++) status = mr_net_set(net, keys[i], value_of(r, keys[i], value), err);
    return status ? status : mr_net_reserve(net, NULL, &shapes[1], err);
}

void mr_recompute_say(const mr_recipe *r, char *line, size_t size)
{
    char how[MR_TEXT_MAX], chunk[MR_TEXT_MAX];
    value_of(r, "recompute", how);
    value_of(r, "recompute-chunk", chunk);
    if (size) *line = 0;
    if (!strcmp(how, "blocks"))
        snprintf(line, size, "recompute = blocks: every block's forward runs twice, to save memory");
    if (!strcmp(how, "chunks"))
        snprintf(line, size, "recompute = chunks: the forward runs twice, %.20s tokens at a time, to save memory",
                 chunk);
}
