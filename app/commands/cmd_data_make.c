/* minrnn data make: D4RL-like data from trained policies, and how near it comes to D4RL's. */
#include "control/hdf5_file.h"
#include "control/make_d4rl.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "tasks/data.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/json_out.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    mr_common common;
    char out[MR_TEXT_MAX], assets[MR_TEXT_MAX], policies[MR_TEXT_MAX];
    int64_t steps;
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"out", MR_OPT_TEXT, offsetof(settings, out), "", 0, 0, NULL, "the file to write; default: in the cache folder",
     MR_OPT_PATH},
    {"steps", MR_OPT_INT, offsetof(settings, steps), "0", 0, 1e9, NULL, "steps in all; 0: as many as D4RL's set has",
     0},
    {"assets", MR_OPT_TEXT, offsetof(settings, assets), "", 0, 0, NULL,
     "the folder of Gymnasium's XML files; default: MINRNN_DATA/rl, or an installed gymnasium", MR_OPT_PATH},
    {"policies", MR_OPT_TEXT, offsetof(settings, policies), "", 0, 0, NULL,
     "the file with the policies; default: MINRNN_DATA/rl/policies.h5", MR_OPT_PATH},
    {0}};

static const char *or_none(const char *text) { return *text ? text : NULL; }

/* ---- files */

static int find_policies(const settings *set, char **path, mr_error *err)
{
    const char *data = getenv("MINRNN_DATA");
    *path = *set->policies ? mr_strdup(set->policies) : mr_path_join(data ? data : "", "rl/policies.h5");
    if (!*path) return mr_no_memory(err, "a path");
    if (mr_path_exists(*path)) return 0;
    if (*set->policies) return mr_fail(err, MR_ENODATA, "%s: no such file", *path);
    return mr_fail(err, MR_ENODATA,
                   "the policies are not on this machine: set MINRNN_DATA to the folder that has rl/policies.h5, or "
                   "name the file with --policies");
}

/* A folder that cannot be written is found before the work, not after it. */
static int try_folder(const char *path, mr_error *err)
{
    mr_hdf5 *h;
    int status = mr_hdf5_create(path, &h, err);
    if (!status) mr_hdf5_close(h);
    return status;
}

/* Refuses to write over anything but what this command writes. */
static int check_out(const char *path, mr_error *err)
{
    char made_by[64] = "";
    mr_hdf5 *h = NULL;
    if (!mr_path_exists(path)) return try_folder(path, err);
    if (!mr_hdf5_open(path, &h, NULL) && mr_hdf5_has_attribute(h, "/", "made_by"))
        mr_hdf5_attribute_text(h, "/", "made_by", made_by, sizeof made_by, NULL);
    mr_hdf5_close(h);
    if (!strncmp(made_by, "D4RL-like", 9)) return try_folder(path, err);
    return mr_fail(err, MR_EINVAL, "%s exists and was not made by this command; remove it first or give another name",
                   path);
}

static int choose_out(const settings *set, const mr_d4rl_job *job, char **path, mr_error *err)
{
    char name[128];
    snprintf(name, sizeof name, "d4rl-like/%s-%s.hdf5", job->type->name, mr_d4rl_kinds[job->kind]);
    *path = *set->out ? mr_strdup(set->out) : mr_data_cache(name);
    if (!*path) return mr_fail(err, MR_EIO, "no cache folder can be made; name the file with --out");
    return check_out(*path, err);
}

/* A build that lacks a part says so before it asks for files. */
static int check_build(const mr_d4rl_job *job, mr_error *err)
{
    mr_env_model *model;
    mr_hdf5 *h;
    if (!mr_mujoco_version()) return mr_env_model_load(job->type, NULL, &model, err);
    return mr_hdf5_version() ? 0 : mr_hdf5_open("", &h, err);
}

/* ---- what the user sees */

typedef struct view {
    int shown;
    double next; /* of mr_seconds() */
} view;

static int watch(void *arg, size_t done, size_t total)
{
    view *v = arg;
    if (v->shown && mr_seconds() >= v->next) {
        fprintf(stderr, "\r%zuk of %zuk steps\033[K", done / 1000, total / 1000);
        fflush(stderr);
        v->next = mr_seconds() + .1;
    }
    return *mr_stop_flag() != 0;
}

static void print_part(const mr_d4rl_part *p)
{
    char ours[64], theirs[64], difference[64];
    snprintf(ours, sizeof ours, "%.0f ± %.0f", p->mean, p->deviation);
    snprintf(difference, sizeof difference, "%+.0f", p->mean - p->published_mean);
    if (!p->episodes) { /* all were cut */
        strcpy(ours, "unknown");
        strcpy(difference, "unknown");
    }
    snprintf(theirs, sizeof theirs, "%.0f ± %.0f", p->published_mean, p->published_deviation);
    /* ± has two bytes and one column */
    fprintf(stderr, "%-14s %8zu steps %6zu episodes   return %-15s D4RL's: %7zu steps, return %-15s difference %s\n",
            p->name, p->steps, p->episodes, ours, p->published_steps, theirs, difference);
}

static int print_json(const mr_d4rl_made *made, const char *path)
{
    mr_json_out out;
    mr_error err;
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_field_text(w, "path", path);
    mr_json_field_text(w, "made_by", made->set.made_by);
    mr_json_write_key(w, "parts");
    mr_json_write_open(w, '[');
    for (int i = 0; i < made->part_count; i++) {
        const mr_d4rl_part *p = &made->parts[i];
        mr_json_write_open(w, '{');
        mr_json_field_text(w, "name", p->name);
        mr_json_field_whole(w, "steps", (int64_t)p->steps);
        mr_json_field_whole(w, "episodes", (int64_t)p->episodes);
        mr_json_field_real(w, "return_mean", p->episodes ? p->mean : NAN, 9);
        mr_json_field_real(w, "return_sd", p->episodes ? p->deviation : NAN, 9);
        mr_json_field_whole(w, "d4rl_steps", (int64_t)p->published_steps);
        mr_json_field_real(w, "d4rl_return_mean", p->published_mean, 9);
        mr_json_field_real(w, "d4rl_return_sd", p->published_deviation, 9);
        mr_json_write_close(w, '}');
    }
    mr_json_write_close(w, ']');
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", &err) ? mr_report("data make", &err) : MR_EXIT_DONE;
}

static int print_made(const settings *set, const mr_d4rl_made *made, const char *path)
{
    for (int i = 0; !set->common.quiet && i < made->part_count; i++) print_part(&made->parts[i]);
    if (set->steps && !set->out[0] && !set->common.quiet)
        fprintf(stderr,
                "train and reproduce will use this set of %lld steps; to keep it apart from the full one, give --out\n",
                (long long)set->steps);
    if (set->common.json) return print_json(made, path);
    puts(path);
    return MR_EXIT_DONE;
}

/* ---- the command */

static int make(const settings *set, const mr_d4rl_job *wanted)
{
    mr_d4rl_job job = *wanted;
    mr_error err;
    mr_d4rl_made made = {0};
    char *policies = NULL, *path = NULL;
    view v = {.shown = !set->common.quiet && isatty(STDERR_FILENO)};
    mr_catch_signals();
    int status = check_build(&job, &err), code = MR_EXIT_DONE;
    if (!status) status = find_policies(set, &policies, &err);
    if (!status) status = choose_out(set, &job, &path, &err);
    job.policies = policies;
    job.progress = watch;
    job.arg = &v;
    if (!status) status = mr_d4rl_make(&job, &made, &err);
    if (v.next > 0) fprintf(stderr, "\r\033[K");
    if (!status) status = mr_d4rl_write(&made.set, path, &err);
    if (status == MR_ESTOPPED) code = 128 + (int)*mr_stop_flag();
    else if (status) code = mr_report("data make", &err);
    else code = print_made(set, &made, path);
    mr_d4rl_free(&made.set);
    mr_free(policies);
    mr_free(path);
    return code;
}

static int unknown_env(const char *name)
{
    const char *names[8] = {NULL};
    for (int i = 0; mr_env_types[i].name && i < 7; i++) names[i] = mr_env_types[i].name;
    return mr_unknown_name("data make", "environment", name, names);
}

static int find_kind(const char *name)
{
    int kind = 0;
    while (mr_d4rl_kinds[kind] && strcmp(mr_d4rl_kinds[kind], name) != 0) kind++;
    return mr_d4rl_kinds[kind] ? kind : -1;
}

int mr_cmd_data_make(int argc, char **argv)
{
    static const char *const what[] = {"d4rl-like", NULL};
    settings set = {0};
    mr_args args = {
        .command = "data make",
        .flags = flags,
        .settings = &set,
        .operands = "d4rl-like ENV SET",
        .min = 3,
        .max = 3,
        .usage = "usage: minrnn data make d4rl-like ENV SET [--out FILE] [--steps N] [--seed N]\n\n"
                 "Makes a data set for offline reinforcement learning in D4RL's format: trained policies act in\n"
                 "simulations of ENV (hopper, halfcheetah, walker2d). SET is medium (one middling policy),\n"
                 "medium-replay (several, ever better) or medium-expert (medium, then a strong policy). Afterwards\n"
                 "the returns of its episodes are printed next to those that D4RL's own data has.\n"
                 "The same seed gives the same file for any number of threads.\n",
        .examples = "  minrnn data make d4rl-like hopper medium\n"
                    "  minrnn data make d4rl-like walker2d medium-expert --out walker.hdf5 --seed 1\n"
                    "  minrnn data make d4rl-like halfcheetah medium-replay --steps 20000 --out small.hdf5\n"};
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    if (strcmp(args.given[0], what[0]) != 0) return mr_unknown_name("data make", "kind of data", args.given[0], what);
    const int kind = find_kind(args.given[2]);
    mr_d4rl_job job = {.type = mr_env_type_find(args.given[1]),
                       .kind = (mr_d4rl_kind)kind,
                       .assets = or_none(set.assets),
                       .steps = (size_t)set.steps,
                       .threads = (int)set.common.threads,
                       .seed = (uint64_t)set.common.seed};
    if (!job.type) return unknown_env(args.given[1]);
    if (kind < 0) return mr_unknown_name("data make", "set", args.given[2], mr_d4rl_kinds);
    return make(&set, &job);
}
