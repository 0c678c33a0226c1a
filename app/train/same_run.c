/* Do all ranks train the same run? What differs is named. */
#include "train/ranks.h"

#include "core/mem.h"
#include "core/sha256.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- settings and data ---- */

/* Lines "name = value": the first that differs is told. `version` stays first, so that versions with other structs
 * still understand each other's. */
typedef struct identity {
    char version[64];
    char lines[16000];
} identity;

static void add_line(identity *id, const char *name, const char *value)
{
    const size_t used = strlen(id->lines);
    snprintf(id->lines + used, sizeof id->lines - used, "%s = %.200s\n", name, value);
}

/* Paths may differ: the data that they lead to may not. */
static void describe(identity *id, const mr_crew *c, const mr_recipe *r)
{
    char value[MR_TEXT_MAX];
    snprintf(id->version, sizeof id->version, "%s", mr_version());
    add_line(id, "the device", mr_context_device(c->ctx));
    add_line(id, "the chip", mr_context_chip(c->ctx));
    add_line(id, "the task", r->task->type->name);
    for (int section = 0; section < MR_SECTIONS; section++)
        for (const mr_option *o = mr_recipe_table(r, section); o->key; o++)
            if (!(o->flags & MR_OPT_PATH))
                add_line(id, o->key, mr_option_print(o, mr_recipe_settings(r, section), value));
    if (r->task->data_sha256[0]) add_line(id, "data with the SHA-256", r->task->data_sha256);
    const size_t used = strlen(id->lines);
    snprintf(id->lines + used, sizeof id->lines - used, "%s", c->flags ? c->flags : "");
}

/* The lines of two texts at which they differ first; 0: nowhere. */
static int first_difference(const char *a, const char *b, char one[320], char two[320])
{
    while (*a || *b) {
        const size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        snprintf(one, 320, "%.*s", (int)n, a);
        snprintf(two, 320, "%.*s", (int)m, b);
        if (strcmp(one, two)) return 1;
        a += n + (a[n] != 0);
        b += m + (b[m] != 0);
    }
    return 0;
}

static int compare(int rank, const identity *first, const identity *other, mr_error *err)
{
    char one[320], two[320];
    if (strcmp(first->version, other->version))
        return mr_fail(err, MR_ECONFIG, "rank %d runs minrnn %.60s and rank 0 %.60s; start the same program on all",
                       rank, other->version, first->version);
    if (!first_difference(first->lines, other->lines, one, two)) return 0;
    return mr_fail(err, MR_ECONFIG, "rank %d has %.300s, and rank 0 %.300s; all ranks must train the same run", rank,
                   two[0] ? two : "nothing", one[0] ? one : "nothing");
}

int mr_crew_same_run(mr_crew *c, const mr_recipe *r, mr_error *err)
{
    int status = 0;
    if (c->size == 1) return 0;
    identity *ids = mr_alloc((size_t)c->size + 1, sizeof *ids);
    if (!ids) return mr_no_memory(err, "messages of ranks");
    describe(&ids[c->size], c, r);
    status = mr_crew_gather(c, &ids[c->size], ids, sizeof *ids, err);
    for (int q = 1; !status && q < c->size; q++) status = compare(q, &ids[0], &ids[q], err);
    mr_free(ids);
    return status;
}

/* ---- weights ---- */

typedef struct weights {
    int64_t step;
    char sha256[MR_SHA256_TEXT];
} weights;

static int hash_tensor(mr_net *net, mr_vector which, const mr_tensor *tensor, mr_sha256 *hash, mr_error *err)
{
    float *room = mr_alloc(tensor->count, sizeof *room);
    if (!room) return mr_no_memory(err, tensor->name);
    int status = mr_net_get(net, which, tensor->name, room, tensor->count, err);
    if (!status) mr_sha256_add(hash, room, tensor->count * sizeof *room);
    mr_free(room);
    return status;
}

static int hash_net(mr_net *net, weights *w, mr_error *err)
{
    mr_sha256 hash;
    int status = 0;
    mr_sha256_begin(&hash);
    for (int i = 0; !status && i < mr_net_tensors(net); i++) {
        mr_tensor tensor = MR_TENSOR;
        status = mr_net_tensor(net, i, &tensor, err);
        if (!status) status = hash_tensor(net, MR_WEIGHTS, &tensor, &hash, err);
    }
    w->step = mr_net_steps(net);
    mr_sha256_end(&hash, w->sha256);
    return status;
}

int mr_crew_same_net(mr_crew *c, mr_net *net, const char *dir, mr_error *err)
{
    weights mine = {0};
    if (c->size == 1) return 0;
    weights *all = mr_alloc((size_t)c->size, sizeof *all);
    int status = all ? hash_net(net, &mine, err) : mr_no_memory(err, "messages of ranks");
    status = mr_crew_agree(c, status, err);
    if (!status) status = mr_crew_gather(c, &mine, all, sizeof mine, err);
    for (int q = 1; all && !status && q < c->size; q++) {
        if (all[q].step != all[0].step)
            status = mr_fail(err, MR_EDATA,
                             "rank %d is at step %" PRId64 " and rank 0 at step %" PRId64
                             "; %.300s must be a folder that all ranks share",
                             q, all[q].step, all[0].step, dir);
        else if (strcmp(all[q].sha256, all[0].sha256))
            status = mr_fail(err, MR_EDATA,
                             "rank %d has other weights than rank 0 at step %" PRId64
                             "; %.300s must be a folder that all ranks share, and --init the same model",
                             q, all[0].step, dir);
    }
    mr_free(all);
    return status;
}
