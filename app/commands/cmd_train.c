/* minrnn train: recipes, progress, stopping. */
#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "train/begin.h"
#include "train/init.h"
#include "train/recipes.h"
#include "train/run_folder.h"
#include "train/train.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/json_out.h"
#include "commands/ranked.h"
#include "commands/run_view.h"
#include "commands/train_help.h"

#include <assert.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

typedef struct settings {
    mr_common common;
    char out[MR_TEXT_MAX];
    int resume, ranks, shard;
    int64_t sequence_ranks;
    double began; /* mr_seconds() when the command began */
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"out", MR_OPT_TEXT, offsetof(settings, out), "", 0, 0, NULL, "the run's folder", MR_OPT_PATH},
    {"resume", MR_OPT_BOOL, offsetof(settings, resume), "no", 0, 0, NULL,
     "continue the run in --out, or start it where there is none yet", 0},
    {"ranks", MR_OPT_CHOICE, offsetof(settings, ranks), "auto", 0, 0, mr_rank_engines,
     "how processes that mpirun, srun or torchrun started exchange gradients; off: each trains alone", 0},
    {"shard", MR_OPT_BOOL, offsetof(settings, shard), "no", 0, 0, NULL,
     "ranks: each keeps a part of the optimiser's memory; the same numbers", 0},
    {"sequence-ranks", MR_OPT_INT, offsetof(settings, sequence_ranks), "1", 1, 1 << 20, NULL,
     "ranks: so many share each sequence, one after another in time", 0},
    {0}};

/* ---- the command ---- */

/* The recipe of a run to be resumed that has none of its own. */
static int load_other_recipe(mr_recipe *recipe, const char *named, const char *out, mr_error *err)
{
    if (named) return mr_recipe_load(recipe, named, err);
    if (mr_run_exists(out))
        return mr_fail(
            err, MR_EDATA,
            "%.300s: its recipe.ini is missing; name the recipe, and give the flags that the run was started "
            "with",
            out);
    return mr_fail(err, MR_EDATA,
                   "%.300s: there is no run to resume; to start one, name a recipe: minrnn train RECIPE --out %.300s",
                   out, out);
}

/* The recipe of the run in --out. One that was named as well must at least be for the same task. */
static int load_run_recipe(mr_recipe *recipe, const char *named, const char *out, mr_error *err)
{
    mr_recipe other = {0};
    char *path = mr_path_join(out, "recipe.ini");
    if (!path) return mr_no_memory(err, "the recipe");
    const int there = mr_path_exists(path);
    int status = there ? mr_recipe_load_run(recipe, path, err) : load_other_recipe(recipe, named, out, err);
    mr_free(path);
    if (!there || status) return status;
    if (named) status = mr_recipe_load(&other, named, err);
    if (!status && named && other.task->type != recipe->task->type)
        status = mr_fail(err, MR_ECONFIG, "%s: is a run of task %s, not %s; choose another --out", out,
                         recipe->task->type->name, other.task->type->name);
    mr_recipe_free(&other);
    if (status) mr_recipe_free(recipe);
    return status;
}

/* The flags on top of a recipe. Returns −1 to continue, otherwise the exit status. */
static int take_flags(mr_recipe *recipe, const mr_args *args, const settings *set)
{
    const mr_option *tables[MR_SECTIONS + 1] = {NULL};
    void *settings_of[MR_SECTIONS];
    for (int i = 0; i < MR_SECTIONS; i++) {
        tables[i] = mr_recipe_table(recipe, i);
        settings_of[i] = mr_recipe_settings(recipe, i);
    }
    int code = mr_args_take_pairs(args, tables, settings_of);
    /* flags of every command that are keys of [train] too */
    if (mr_args_was_set(args, "seed")) mr_train_set_whole(&recipe->train, "seed", set->common.seed);
    if (mr_args_was_set(args, "dtype")) recipe->train.dtype = set->common.dtype;
    if (mr_args_was_set(args, "tf32")) recipe->train.tf32 = set->common.tf32;
    return code;
}

/* A run that has begun keeps the model that it began from. */
static int check_same_init(const char *began, const char *now, const char *out, mr_error *err)
{
    char *a = mr_path_absolute(began), *b = mr_path_absolute(now);
    const int same = a && b && !strcmp(a, b);
    mr_free(a);
    mr_free(b);
    if (same) return 0;
    return mr_fail(err, MR_ECONFIG,
                   "--init is for new runs, and the one in %.200s began from %.200s; leave --init out, or choose "
                   "another --out",
                   out, began[0] ? began : "random weights");
}

/* Which recipe: the one named, or that of the run to be resumed. A flag on top of a run's own recipe must not change
 * what may not change; mr_train checks that against the state. Returns −1 to continue, otherwise the exit status. */
static int load_recipe(mr_recipe *recipe, const mr_args *args, const settings *set)
{
    const char *named = args->count ? args->given[0] : NULL;
    const int has_state = set->resume && mr_run_has_state(set->out);
    char began[MR_TEXT_MAX];
    mr_error err;
    int status = mr_run_check_model(set->out, &err);
    if (!status)
        status =
            has_state || !named ? load_run_recipe(recipe, named, set->out, &err) : mr_recipe_load(recipe, named, &err);
    if (status) return mr_report("train", &err);
    strcpy(began, recipe->train.init);
    int code = take_flags(recipe, args, set);
    if (code < 0 && has_state && check_same_init(began, recipe->train.init, set->out, &err))
        code = mr_report("train", &err);
    if (code >= 0) mr_recipe_free(recipe);
    return code;
}

/* A flag's value as its option prints it: 0.10 is 0.1. It has been parsed before, so this cannot fail. */
static void normalise(const mr_option *option, const char *value, char out[MR_TEXT_MAX])
{
    mr_option alone = *option;
    mr_slot slot = {0};
    alone.offset = 0;
    mr_option_parse(&alone, &slot, value ? value : "yes", NULL);
    mr_option_print(&alone, &slot, out);
}

/* A run that starts from a model has that model's shape and vocabulary: a flag may repeat them, but not change them. */
static int check_flag(const mr_flag_pair *flag, const mr_recipe *recipe, mr_error *err)
{
    char given[MR_TEXT_MAX], has[MR_TEXT_MAX];
    for (int section = 0; section < MR_SECTIONS; section++) {
        const mr_option *o = mr_option_find(mr_recipe_table(recipe, section), flag->key);
        if (!o || !mr_init_decides(section, o->key)) continue;
        mr_option_print(o, mr_recipe_settings(recipe, section), has);
        normalise(o, flag->value, given);
        if (strcmp(given, has))
            return mr_fail(err, MR_ECONFIG, "--%s %.100s: the model of --init has %s = %.100s; leave --%s out", o->key,
                           given, o->key, has, o->key);
    }
    return 0;
}

/* Rank 0 begins the run; then the others follow. */
static int begin(mr_recipe *recipe, const mr_args *args, const settings *set, mr_crew *crew, mr_error *err)
{
    assert(recipe->task); /* since it was loaded */
    recipe->task->stop = mr_stop_flag();
    mr_view_reading(recipe, set->common.quiet || crew->rank);
    int status = crew->rank ? 0 : mr_run_begin(recipe, set->out, set->resume, err);
    for (int i = 0; !status && !crew->rank && recipe->train.init[0] && i < args->pair_count; i++)
        status = check_flag(&args->pairs[i], recipe, err);
    status = mr_crew_agree(crew, status, err);
    if (!status && crew->rank) status = mr_run_follow(recipe, set->out, set->resume, err);
    status = mr_crew_agree(crew, status, err);
    if (!status) status = mr_crew_same_run(crew, recipe, err);
    if (!status && !crew->rank) status = mr_rank_check_recipe(crew, recipe, !mr_run_has_state(set->out), err);
    status = mr_crew_agree(crew, status, err);
    if (status && !crew->rank) mr_run_take_back(recipe, set->out);
    return status;
}

/* 30146560 as 30,146,560. */
static const char *grouped(char out[32], int64_t count)
{
    char digits[24];
    size_t at = 0;
    const int n = snprintf(digits, sizeof digits, "%lld", (long long)count);
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

/* How much of the test set the best loss covers, where evaluations score a part of it. */
static void print_part(const mr_train_result *r)
{
    static const char *const reasons[] = {
        [MR_WHOLE_NO_TIME] = "--max-seconds left no time for the rest",
        [MR_WHOLE_STOPPED] = "it was stopped before the rest",
        [MR_WHOLE_LATER] = "model.safetensors is of a later step",
    };
    char scored[32], all[32];
    if (r->whole == MR_WHOLE_AT_END)
        printf(" (on all %s test %s)", grouped(all, r->test_size), r->in_tokens ? "tokens" : "batches");
    if (r->whole == MR_WHOLE_ALWAYS || r->whole == MR_WHOLE_AT_END) return;
    printf(" (on %s of %s %s: %s)", grouped(scored, r->scored), grouped(all, r->test_size),
           r->in_tokens ? "tokens" : "batches", reasons[r->whole]);
}

static void print_result(const settings *set, const mr_recipe *recipe, const mr_train_result *r)
{
    static const char *const ends[] = {"", "no better evaluation for a while; ", "time is up; ", ""};
    printf("%sstep %lld; best at step %lld: %s loss %.4f", ends[r->end], (long long)r->step, (long long)r->best_step,
           mr_task_scored(recipe->task), r->best_loss);
    if (isfinite(r->best_accuracy)) printf(", accuracy %.2f %%", 100 * r->best_accuracy);
    print_part(r);
    printf("\n%s/model.safetensors\n", set->out);
}

static int print_json(const mr_train_result *r)
{
    mr_json_out out;
    mr_error err;
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_field_whole(w, "step", r->step);
    mr_json_field_whole(w, "best_step", r->best_step);
    mr_json_field_real(w, "best_loss", r->best_loss, 9);
    if (isfinite(r->best_accuracy)) mr_json_field_real(w, "best_accuracy", r->best_accuracy, 9);
    mr_json_field_whole(w, "scored", r->scored);
    mr_json_field_whole(w, "test_size", r->test_size);
    mr_json_field_text(w, "unit", r->in_tokens ? "tokens" : "batches");
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", &err) ? mr_report("train", &err) : MR_EXIT_DONE;
}

/* Rounds up to two significant digits: 1234 is 1300. */
static double round_up(double seconds)
{
    const double unit = pow(10, floor(log10(seconds)) - 1);
    return ceil(seconds / unit) * unit;
}

/* What to do next, where a run ended by time or overfits. A longer limit must allow for the time that is used already,
 * and for reading the data again. */
static void print_hints(const settings *set, const mr_recipe *recipe, const mr_train_result *r)
{
    const mr_overfit *o = &r->overfit;
    if (r->unscored)
        fprintf(stderr,
                "--max-seconds left no time to evaluate step %lld: last.safetensors has it, and `minrnn eval` scores "
                "it\n",
                (long long)r->step);
    if (r->end == MR_END_SECONDS)
        fprintf(stderr, "to train longer: minrnn train --out %s --resume --max-seconds %.6g\n", set->out,
                round_up(r->seconds + fmax(r->seconds, recipe->train.max_seconds)));
    if (!o->found) return;
    fprintf(stderr,
            "hint: it overfits: since step %lld the %s loss rose from %.4g to %.4g while the training loss fell from "
            "%.4g to %.4g; model.safetensors is the best point, step %lld; try fewer --steps, --patience, more "
            "--dropout or --weight-decay, or more data\n",
            (long long)o->best_step, mr_task_scored(recipe->task), o->best_loss, o->last_loss, o->train_at_best,
            o->train_at_end, (long long)r->best_step);
}

/* As a shell reports a signal; another rank may have got it. */
static int stopped_status(void)
{
    const int number = *mr_stop_flag();
    return 128 + (number ? number : SIGTERM);
}

static int finish(const mr_run_view *v, const settings *set, int ranks, const mr_train_result *r)
{
    mr_run_view_clear(v);
    if (r->end == MR_END_STOPPED) {
        fprintf(stderr, "stopped at step %lld, saved; resume with: %sminrnn train --out %s --resume\n",
                (long long)r->step, ranks > 1 ? "mpirun -n N " : "", set->out);
        return stopped_status();
    }
    if (!set->common.quiet) print_hints(set, v->recipe, r);
    int code = MR_EXIT_DONE;
    if (set->common.json) code = print_json(r);
    else print_result(set, v->recipe, r);
    return r->whole == MR_WHOLE_STOPPED ? stopped_status() : code;
}

/* The run of a crew, which is of one unless a launcher started this process. Sets *shared: all ranks know of its
 * failure. */
static int train(mr_recipe *recipe, const mr_args *args, const settings *set, mr_crew *crew, mr_error *err, int *code,
                 int *shared)
{
    mr_train_result result = {.shared = 1};
    mr_run_view v;
    mr_train_watch watch = mr_run_view_start(&v, recipe, "", 1, set->common.quiet || crew->rank);
    watch.began = set->began;
    watch.crew = crew;
    int status = begin(recipe, args, set, crew, err);
    if (status == MR_ESTOPPED && mr_crew_lost(crew, -1, 0, set->out, err)) status = err->status, result.shared = 0;
    if (!status) status = mr_train(recipe, crew->ctx, set->out, set->resume, mr_stop_flag(), &watch, &result, err);
    if (!status && !crew->rank) *code = finish(&v, set, crew->size, &result);
    else if (!crew->rank) mr_run_view_clear(&v);
    *shared = result.shared && !crew->cut_off;
    return status;
}

static int run(mr_recipe *recipe, const mr_args *args, const settings *set)
{
    mr_common common = set->common;
    mr_ranked ranked;
    mr_join_options options = MR_JOIN_OPTIONS;
    mr_error err = {0};
    int code = MR_EXIT_DONE, shared = 1;
    common.dtype = recipe->train.dtype;
    common.tf32 = recipe->train.tf32;
    options.engine = mr_rank_engines[set->ranks];
    options.shard = set->shard;
    options.sequence_ranks = (int)set->sequence_ranks;
    char flags_text[MR_TEXT_MAX + 200];
    snprintf(flags_text, sizeof flags_text, "--shard = %s\n--sequence-ranks = %d\n--resume = %s\n--out = %s\n",
             set->shard ? "yes" : "no", options.sequence_ranks, set->resume ? "yes" : "no", set->out);
    int status = mr_ranked_begin(&ranked, &common, &options, &err);
    ranked.crew.flags = flags_text;
    if (!status) status = train(recipe, args, set, &ranked.crew, &err, &code, &shared);
    mr_recipe_free(recipe);
    if (status) mr_ranked_report(&ranked, "train", shared, &err);
    mr_ranked_end(&ranked, status && !shared);
    if (!status) return code;
    return status == MR_ESTOPPED ? stopped_status() : MR_EXIT_FAILED;
}

/* Flags that the recipe does not know are reported first: they were typed, and --out was only forgotten. */
static int without_out(const mr_args *args, const settings *set)
{
    mr_recipe recipe;
    mr_error err;
    if (!args->count && set->resume) return mr_misused("train", "--out DIR is missing: the folder of the run");
    if (!args->count)
        return mr_misused("train", "RECIPE and --out DIR are missing; `minrnn train --help` lists the recipes");
    if (mr_recipe_load(&recipe, args->given[0], &err)) return mr_report("train", &err);
    const int code = take_flags(&recipe, args, set);
    mr_recipe_free(&recipe);
    return code >= 0 ? code : mr_misused("train", "--out DIR is missing: the folder that the run goes into");
}

int mr_cmd_train(int argc, char **argv)
{
    settings set = {.began = mr_seconds()};
    mr_args args = {
        .command = "train",
        .flags = flags,
        .settings = &set,
        .open = 1,
        .help = mr_train_help,
        .max = 1,
        .usage =
            "usage: minrnn train RECIPE|FILE.ini --out DIR [--resume] [--key value …]\n\n"
            "Trains a model. DIR gets model.safetensors (the best), last.safetensors, "
            "state.safetensors (to resume from),\n"
            "log.jsonl, recipe.ini (complete) and curve.svg. Ctrl-C (or TERM, HUP) saves and says how to resume; USR1 "
            "saves and trains on.\n",
        .examples = "  minrnn train text --data book.txt --out runs/book\n"
                    "  minrnn train selective-copy --length 256 --tokens 8 --steps 2000 --out runs/copy\n"
                    "  minrnn train shakespeare --mixer minlstm --out runs/lstm --max-seconds 600 --resume\n"
                    "  mpirun -n 4 minrnn train text --data book.txt --accumulate 4 --out runs/four\n"
                    "  minrnn train text --data letters.txt --init runs/book --out runs/letters\n"
                    "  zcat *.gz | minrnn train text --data - --out runs/all\n"};
    mr_recipe recipe = {0};
    mr_rank_mute();
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    if (args.count && !mr_recipe_is_path(args.given[0]) && !mr_recipe_is_known(args.given[0]))
        return mr_unknown_name("train", "recipe", args.given[0], mr_recipe_names);
    if (!set.out[0]) return without_out(&args, &set);
    if (!set.resume && !args.count && mr_run_exists(set.out))
        return mr_misused(
            "train", "%.300s holds a run: add --resume to continue it, or name a recipe and another --out", set.out);
    if (!set.resume && !args.count) return mr_misused("train", "name a recipe; `minrnn train --help` lists them");
    code = load_recipe(&recipe, &args, &set);
    if (code >= 0) return code;
    mr_catch_signals();
    mr_catch_broken_pipe();
    return run(&recipe, &args, &set);
}
