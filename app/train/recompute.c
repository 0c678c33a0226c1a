/* What a run computes again: asked of the library, told to the user. */
#include "train/recompute.h"

#include "core/mem.h"

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

/* As one text: how, and with which chunk. */
static void describe(const mr_recipe *r, char text[2 * MR_TEXT_MAX])
{
    char how[MR_TEXT_MAX], chunk[MR_TEXT_MAX];
    snprintf(text, 2 * MR_TEXT_MAX, "--recompute %s --recompute-chunk %s", value_of(r, keys[0], how),
             value_of(r, keys[1], chunk));
}

int mr_recompute_agree(const mr_recipe *r, mr_crew *crew, mr_error *err)
{
    enum { SIZE = 2 * MR_TEXT_MAX };
    char mine[SIZE] = "";
    if (crew->size == 1) return 0;
    char *all = mr_alloc((size_t)crew->size, SIZE);
    describe(r, mine);
    int status = all ? 0 : mr_no_memory(err, "messages of ranks");
    status = mr_crew_agree(crew, status, err);
    if (!status) status = mr_crew_gather(crew, mine, all, SIZE, err);
    for (int q = 1; all && !status && q < crew->size; q++)
        if (strcmp(all + (size_t)q * SIZE, all))
            status = mr_fail(err, MR_ECONFIG, "rank %d has memory for %.200s, and rank 0 for %.200s; give one of them",
                             q, all + (size_t)q * SIZE, all);
    mr_free(all);
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
