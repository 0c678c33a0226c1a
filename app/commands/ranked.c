/* Processes that train together: which device each one has, who prints what, and how all of them end. */
#include "commands/ranked.h"

#include "commands/commands.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const mr_rank_engines[] = {"auto", "mpi", "nccl", "off", NULL};

static struct {
    int rank, stderr_kept; /* −1: it is not silent */
    FILE *unsaid;          /* what went to stderr since */
} silent = {.stderr_kept = -1};

static void unmute(void)
{
    if (silent.stderr_kept < 0) return;
    fflush(stderr);
    dup2(silent.stderr_kept, STDERR_FILENO);
    close(silent.stderr_kept);
    silent.stderr_kept = -1;
}

/* At the end of a rank that never joined. */
static void say_late(void)
{
    char line[4096];
    if (silent.stderr_kept < 0) return;
    unmute();
    if (fseek(silent.unsaid, 0, SEEK_END) || ftell(silent.unsaid) <= 0) return;
    sleep(3);
    rewind(silent.unsaid);
    while (fgets(line, sizeof line, silent.unsaid)) fprintf(stderr, "rank %d: %s", silent.rank, line);
}

void mr_rank_mute(void)
{
    const int ranks = mr_ranks_launched(&silent.rank);
    if (ranks <= 1 || !silent.rank) return;
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    silent.unsaid = tmpfile();
    if (nowhere >= 0 && silent.unsaid) {
        silent.stderr_kept = dup(STDERR_FILENO);
        dup2(fileno(silent.unsaid), STDERR_FILENO);
        dup2(nowhere, STDOUT_FILENO);
        atexit(say_late);
    }
    if (nowhere >= 0) close(nowhere);
}

/* ---- joining ---- */

/* MPI's own start waits without end and without a word for ranks that do not join. */
static volatile unsigned next_alarm;

static void say_waiting(int number)
{
    static const char line[] = "minrnn: waiting for the other ranks to join; was the same command started on all?\n";
    (void)number;
    if (write(STDERR_FILENO, line, sizeof line - 1) < 0) return;
    next_alarm *= 2;
    alarm(next_alarm);
}

static int join(mr_context *ctx, const mr_join_options *options, mr_error *err)
{
    struct sigaction speak = {.sa_handler = say_waiting, .sa_flags = SA_RESTART}, before;
    next_alarm = 5;
    sigaction(SIGALRM, &speak, &before);
    alarm(next_alarm);
    const int status = mr_context_join(ctx, options, err);
    alarm(0);
    sigaction(SIGALRM, &before, NULL);
    return status;
}

/* What only makes sense for a process that was started as one of several. */
static int check_alone(const mr_join_options *options, mr_error *err)
{
    const int named = strcmp(options->engine, "auto") && strcmp(options->engine, "off");
    if (options->sequence_ranks > 1)
        return mr_fail(err, MR_ECONFIG,
                       "sequence-ranks = %d: this process was not started as one of several; start it "
                       "with mpirun -n %d minrnn train …",
                       options->sequence_ranks, options->sequence_ranks);
    if (!named || mr_ranks_launched(NULL)) return 0;
    return mr_fail(err, MR_ECONFIG,
                   "ranks = %s: this process was not started as one of several; start it with mpirun -n 2 minrnn "
                   "train …, or leave --ranks out",
                   options->engine);
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
    int status = together ? 0 : check_alone(options, err);
    if (!status) status = mr_open_context(&mine, &r->ctx, err);
    if (!status && together) status = join(r->ctx, options, err);
    if (!status) unmute();
    if (!status) status = mr_crew_begin(&r->crew, r->ctx, together ? options->sequence_ranks : 1, mr_stop_flag(), err);
    if (!common->quiet) r->crew.tell = mr_print_notice;
    return status;
}

/* Whether a run of an earlier version adds gradients in its own way. */
static int sums_in_order(const mr_recipe *recipe)
{
    char value[MR_TEXT_MAX];
    for (int section = 0; section < MR_SECTIONS; section++) {
        const mr_option *o = mr_option_find(mr_recipe_table(recipe, section), "gradient-sum");
        if (o) return !strcmp(mr_option_print(o, mr_recipe_settings(recipe, section), value), "order");
    }
    return 0;
}

int mr_rank_check_recipe(const mr_crew *crew, const mr_recipe *recipe, int fresh, mr_error *err)
{
    const int groups = crew->size / crew->cut;
    const int64_t micros = recipe->train.accumulate;
    if (crew->size > 1 && fresh && sums_in_order(recipe))
        return mr_fail(err, MR_ECONFIG,
                       "gradient-sum = order: several ranks add gradients in a tree; leave --gradient-sum out, or "
                       "start one process");
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
    if (!shared && r->crew.rank && r->crew.lost < 0) {
        snprintf(named.text, sizeof named.text, "rank %d: %.900s", r->crew.rank, err->text);
        sleep(1); /* rank 0 may be about to say the same, and to end all */
    }
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
