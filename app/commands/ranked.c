/* Processes that train together: which device each one has, who prints what, and how all of them end. */
#include "commands/ranked.h"

#include "commands/commands.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const mr_rank_engines[] = {"auto", "mpi", "nccl", "off", NULL};

static int stderr_kept = -1; /* of a silent rank */

void mr_rank_mute(void)
{
    int rank;
    if (mr_ranks_launched(&rank) == 1 || !rank) return;
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) return;
    stderr_kept = dup(STDERR_FILENO);
    dup2(nowhere, STDERR_FILENO);
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
}

static void unmute(void)
{
    if (stderr_kept < 0) return;
    fflush(stderr);
    dup2(stderr_kept, STDERR_FILENO);
    close(stderr_kept);
    stderr_kept = -1;
}

/* Ranks of one machine share its GPUs, and its processors unless the launcher has bound each rank to its own. */
mr_common mr_rank_share_machine(const mr_common *common)
{
    mr_common mine = *common;
    int place, here;
    mr_ranks_here(&place, &here);
    const int gpus = mr_cuda_count();
    if (gpus > 0 && (!strcmp(mine.device, "auto") || !strcmp(mine.device, "cuda")))
        snprintf(mine.device, sizeof mine.device, "cuda:%d", place % gpus);
    const long all = sysconf(_SC_NPROCESSORS_ONLN);
    if (!mine.threads && here > 1 && mr_processors_allowed() == all) mine.threads = all > here ? all / here : 1;
    return mine;
}

int mr_ranked_begin(mr_ranked *r, const mr_common *common, const mr_join_options *options, mr_error *err)
{
    const int together = mr_ranks_launched(NULL) > 1 && strcmp(options->engine, "off");
    const mr_common mine = together ? mr_rank_share_machine(common) : *common;
    *r = (mr_ranked){.crew = {.size = 1, .cut = 1, .lost = -1}};
    if (!together) unmute();
    if (!together && options->sequence_ranks > 1)
        return mr_fail(err, MR_ECONFIG,
                       "sequence-ranks = %d: this process was not started as one of several; start it "
                       "with mpirun -n %d minrnn train …",
                       options->sequence_ranks, options->sequence_ranks);
    int status = mr_open_context(&mine, &r->ctx, err);
    if (!status && together) status = mr_context_join(r->ctx, options, err);
    if (!status) unmute();
    if (!status) status = mr_crew_begin(&r->crew, r->ctx, together ? options->sequence_ranks : 1, mr_stop_flag(), err);
    if (!common->quiet) r->crew.tell = mr_print_notice;
    return status;
}

int mr_rank_check_micros(const mr_crew *crew, int64_t micros, mr_error *err)
{
    const int groups = crew->size / crew->cut;
    if (groups <= micros) return 0;
    return mr_fail(
        err, MR_ECONFIG,
        "accumulate = %lld: %d %s need as many micro-batches a step; add --accumulate %d (and lower --batch, "
        "for steps of the same size), or start fewer",
        (long long)micros, groups, crew->cut > 1 ? "groups of ranks" : "ranks", groups);
}

void mr_ranked_report(const mr_ranked *r, const char *command, int shared, const mr_error *err)
{
    mr_error named = *err;
    if (r->crew.lost >= 0 ? !mr_crew_speaks(&r->crew, r->crew.lost) : shared && r->crew.rank) return;
    if (!shared && r->crew.rank && r->crew.lost < 0)
        snprintf(named.text, sizeof named.text, "rank %d: %.900s", r->crew.rank, err->text);
    mr_report(command, &named);
}

void mr_ranked_end(mr_ranked *r, int abort)
{
    if (abort && r->crew.lost >= 0) { /* the launcher is ending the others, or they see it themselves */
        fflush(NULL);
        _exit(MR_EXIT_FAILED);
    }
    if (abort) {
        fflush(NULL);
        mr_context_abort(r->ctx);
    }
    mr_crew_end(&r->crew);
    mr_context_free(r->ctx);
}
