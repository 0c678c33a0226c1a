/* The crew of a run: agreement, and waiting for ranks that are slow or gone. */
#include "train/ranks.h"

#include "core/clock.h"
#include "core/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Seconds: after which a slow rank is named, and after which one is given up once the run was told to stop. */
enum { SLOW = 5, GIVE_UP = 10 };

/* ---- waiting ---- */

int mr_crew_speaks(const mr_crew *c, int about) { return c->rank == (about == 0 ? 1 : 0); }

static int is_here(const mr_crew *c, int rank) { return !strcmp(c->places[rank].host, c->places[c->rank].host); }

/* A process of this machine can be seen to be gone; of others the launcher knows, and sends a signal. */
static int is_gone(const mr_crew *c, int rank)
{
    return is_here(c, rank) && kill((pid_t)c->places[rank].process, 0) && errno == ESRCH;
}

/* Rank 0 may take its time for what it does alone: writing, and scoring the whole test set. */
static int waits_for(const mr_crew *c, int rank) { return c->patient && rank == 0; }

/* The rank that is waited for may be waiting for one that is gone. */
static int find_gone(const mr_crew *c)
{
    for (int q = 0; q < c->size; q++)
        if (q != c->rank && is_gone(c, q)) return q;
    return -1;
}

static int gives_up(mr_crew *c, int rank)
{
    if (!c->stop || !*c->stop || waits_for(c, rank) || is_here(c, rank)) return 0;
    if (c->stop_began == 0) c->stop_began = mr_seconds();
    return mr_seconds() - c->stop_began >= GIVE_UP;
}

static void name_slow(mr_crew *c, int rank, double seconds)
{
    char line[200];
    if (waits_for(c, rank) || seconds < c->next_line) return;
    c->next_line = 2 * seconds;
    snprintf(line, sizeof line, "rank %d (process %lld on %.60s) has kept the others waiting for %.0f s", rank,
             (long long)c->places[rank].process, c->places[rank].host, seconds);
    if (c->tell && mr_crew_speaks(c, rank)) c->tell(c->tell_user, line);
}

/* Called by the library, in the thread that waits. */
static int on_waiting(void *user, int rank, double seconds)
{
    mr_crew *c = user;
    /* another exchange than last time; or this process itself was stopped for a while */
    if (seconds < c->waited || seconds > c->waited + 2) c->next_line = seconds + SLOW;
    c->waited = seconds;
    const int gone = find_gone(c);
    if (gone >= 0 || gives_up(c, rank)) return c->lost = gone >= 0 ? gone : rank, 1;
    name_slow(c, rank, seconds);
    return 0;
}

int mr_crew_lost(const mr_crew *c, int64_t step, int64_t saved, const char *dir, mr_error *err)
{
    char kept[80] = "nothing was saved yet";
    if (c->lost < 0) return 0;
    if (step < 0) {
        mr_fail(err, MR_EDEVICE, "rank %d (process %lld on %.60s) has ended or does not answer; nothing was begun",
                c->lost, (long long)c->places[c->lost].process, c->places[c->lost].host);
        return 1;
    }
    if (saved) snprintf(kept, sizeof kept, "the checkpoint of step %lld is kept", (long long)saved);
    mr_fail(err, MR_EDEVICE,
            "rank %d (process %lld on %.60s) has ended or does not answer; the run stopped after step %lld and %s; "
            "resume it with any number of ranks: mpirun -n N minrnn train --out %.200s --resume",
            c->lost, (long long)c->places[c->lost].process, c->places[c->lost].host, (long long)step, kept, dir);
    return 1;
}

/* ---- beginning ---- */

int mr_crew_begin(mr_crew *c, mr_context *ctx, int cut, const mr_stop *stop, mr_error *err)
{
    mr_rank_place here = {.process = getpid()};
    *c = (mr_crew){.ctx = ctx,
                   .rank = mr_context_rank(ctx),
                   .size = mr_context_ranks(ctx),
                   .cut = cut,
                   .stop = stop,
                   .lost = -1,
                   .next_line = SLOW};
    if (c->size == 1) return 0;
    gethostname(here.host, sizeof here.host - 1);
    c->places = mr_alloc((size_t)c->size, sizeof *c->places);
    const int status = mr_crew_gather(c, &here, c->places, sizeof here, err);
    if (!status) mr_context_while_waiting(ctx, on_waiting, c);
    return status;
}

void mr_crew_end(mr_crew *c)
{
    if (c->places) mr_context_while_waiting(c->ctx, NULL, NULL);
    mr_free(c->places);
    c->places = NULL;
}

/* ---- agreeing ---- */

/* Everybody's `bytes`; NULL: out of memory, or a rank is gone. */
static void *gather(mr_crew *c, const void *mine, size_t bytes, int *status, mr_error *err)
{
    void *all = mr_alloc((size_t)c->size, bytes);
    *status = mr_crew_gather(c, mine, all, bytes, err);
    if (!*status) return all;
    mr_free(all);
    return NULL;
}

int mr_crew_gather(mr_crew *c, const void *mine, void *all, size_t bytes, mr_error *err)
{
    const int status = all ? mr_context_gather(c->ctx, mine, all, bytes, err) : mr_no_memory(err, "messages of ranks");
    if (status) c->cut_off = 1;
    return status;
}

int mr_crew_agree(mr_crew *c, int status, mr_error *err)
{
    mr_error mine = {0};
    if (c->size == 1) return status;
    if (status) mine = *err, mine.status = status;
    mr_error *all = gather(c, &mine, sizeof mine, &status, err);
    for (int q = 0; all && !status && q < c->size; q++) {
        if (!all[q].status) continue;
        status = all[q].status;
        if (q) mr_fail(err, status, "rank %d: %.900s", q, all[q].text);
        else *err = all[q];
    }
    mr_free(all);
    return status;
}

int mr_crew_sum(mr_crew *c, int64_t *value, mr_error *err)
{
    int status = 0;
    if (c->size == 1) return 0;
    int64_t *all = gather(c, value, sizeof *value, &status, err);
    if (!all) return status;
    *value = 0;
    for (int q = 0; q < c->size; q++) *value += all[q];
    mr_free(all);
    return 0;
}

int mr_crew_follow(mr_crew *c, void *orders, size_t bytes, int *any, int flags, mr_error *err)
{
    int status = 0;
    if (c->size == 1) return 0;
    const size_t each = bytes + (size_t)flags * sizeof *any;
    char *mine = mr_alloc(each, 1), *all = NULL;
    if (!mine) return mr_no_memory(err, "messages of ranks");
    memcpy(mine, orders, bytes);
    if (flags) memcpy(mine + bytes, any, (size_t)flags * sizeof *any);
    all = gather(c, mine, each, &status, err);
    for (int q = 0; all && q < c->size; q++)
        for (int i = 0; i < flags; i++) {
            int flag;
            memcpy(&flag, all + (size_t)q * each + bytes + (size_t)i * sizeof flag, sizeof flag);
            any[i] = any[i] || flag;
        }
    if (all) memcpy(orders, all, bytes);
    mr_free(all);
    mr_free(mine);
    return status;
}
