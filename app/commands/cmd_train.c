/* minrnn train: recipes, progress, stopping. */
#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "train/recipes.h"
#include "train/train.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/run_view.h"
#include "commands/train_help.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

typedef struct settings {
    mr_common common;
    char out[MR_TEXT_MAX];
    int resume;
    double began; /* mr_seconds() when the command began */
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"out", MR_OPT_TEXT, offsetof(settings, out), "", 0, 0, NULL, "the run's folder", MR_OPT_PATH},
    {"resume", MR_OPT_BOOL, offsetof(settings, resume), "no", 0, 0, NULL,
     "go on with the run in --out, or start where there is none", 0},
    {0}};

/* ---- the command ---- */

/* The recipe of the run in --out. One that was named as well must at least be for the same task. */
static int load_run_recipe(mr_recipe *recipe, const char *named, const char *out, mr_error *err)
{
    mr_recipe other = {0};
    char *path = mr_path_join(out, "recipe.ini");
    int status = path ? mr_recipe_load_run(recipe, path, err) : mr_no_memory(err, "the recipe");
    mr_free(path);
    if (!status && named) status = mr_recipe_load(&other, named, err);
    if (!status && named && other.task->type != recipe->task->type)
        status = mr_fail(err, MR_ECONFIG, "%s: is a run of task %s, not %s; choose another --out", out,
                         recipe->task->type->name, other.task->type->name);
    mr_recipe_free(&other);
    if (status) mr_recipe_free(recipe);
    return status;
}

/* Which recipe: the one named, or that of the run to go on with. A flag on top of a run's own recipe must not change
 * what may not change; mr_train checks that against the state. Returns −1 to go on, otherwise the exit status. */
static int load_recipe(mr_recipe *recipe, const mr_args *args, const settings *set)
{
    const char *named = args->count ? args->given[0] : NULL;
    mr_error err;
    int status;
    if (set->resume && (mr_run_has_state(set->out) || !named)) status = load_run_recipe(recipe, named, set->out, &err);
    else status = mr_recipe_load(recipe, named, &err);
    if (status) return mr_report("train", &err);
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
    if (code >= 0) mr_recipe_free(recipe);
    return code;
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

/* How much of the test set the best loss is of, where evaluations score a part of it. */
static void print_part(const mr_train_result *r)
{
    static const char *const reasons[] = {
        [MR_WHOLE_NO_TIME] = "--max-seconds left no time for the rest",
        [MR_WHOLE_STOPPED] = "it was stopped before the rest",
    };
    char scored[32], all[32];
    if (r->whole == MR_WHOLE_AT_END)
        printf(" (on all %s test %s)", grouped(all, r->test_size), r->in_tokens ? "tokens" : "batches");
    if (r->whole != MR_WHOLE_NO_TIME && r->whole != MR_WHOLE_STOPPED) return;
    printf(" (on %s of %s %s: %s)", grouped(scored, r->scored), grouped(all, r->test_size),
           r->in_tokens ? "tokens" : "batches", reasons[r->whole]);
}

static void print_result(const settings *set, const mr_train_result *r)
{
    static const char *const ends[] = {"", "no better evaluation for a while; ", "time is up; ", ""};
    printf("%sstep %lld; best at step %lld: test loss %.4f", ends[r->end], (long long)r->step, (long long)r->best_step,
           r->best_loss);
    if (isfinite(r->best_accuracy)) printf(", accuracy %.2f %%", 100 * r->best_accuracy);
    print_part(r);
    printf("\n%s/model.safetensors\n", set->out);
}

static void print_json(const mr_train_result *r)
{
    printf("{\"step\": %lld, \"best_step\": %lld, \"best_loss\": %.9g", (long long)r->step, (long long)r->best_step,
           r->best_loss);
    if (isfinite(r->best_accuracy)) printf(", \"best_accuracy\": %.9g", r->best_accuracy);
    printf(", \"scored\": %lld, \"test_size\": %lld, \"unit\": \"%s\"}\n", (long long)r->scored,
           (long long)r->test_size, r->in_tokens ? "tokens" : "batches");
}

/* What to do next, where a run ended by time or overfits. */
static void print_hints(const settings *set, const mr_recipe *recipe, const mr_train_result *r)
{
    const mr_overfit *o = &r->overfit;
    if (r->end == MR_END_SECONDS)
        fprintf(stderr, "to train longer: minrnn train --out %s --resume --max-seconds %.4g\n", set->out,
                2 * recipe->train.max_seconds);
    if (!o->found) return;
    fprintf(stderr,
            "hint: it overfits: since step %lld the test loss rose from %.4g to %.4g while the training loss fell from "
            "%.4g to %.4g; model.safetensors is the best point, step %lld; try fewer --steps, --patience, more "
            "--dropout or --weight-decay, or more data\n",
            (long long)o->best_step, o->best_loss, o->last_loss, o->train_at_best, o->train_at_end,
            (long long)r->best_step);
}

static int finish(const mr_run_view *v, const settings *set, const mr_train_result *r)
{
    mr_run_view_clear(v);
    if (r->end == MR_END_STOPPED) {
        fprintf(stderr, "stopped at step %lld, saved; resume with: minrnn train --out %s --resume\n",
                (long long)r->step, set->out);
        return 128 + (int)*mr_stop_flag();
    }
    if (!set->common.quiet) print_hints(set, v->recipe, r);
    if (set->common.json) print_json(r);
    else print_result(set, r);
    return r->whole == MR_WHOLE_STOPPED ? 128 + (int)*mr_stop_flag() : MR_EXIT_DONE;
}

static int train(mr_recipe *recipe, const settings *set, mr_error *err, int *code)
{
    mr_context *ctx = NULL;
    mr_train_result result;
    mr_run_view v;
    mr_train_watch watch = mr_run_view_start(&v, recipe, "", 1, set->common.quiet);
    mr_common common = set->common;
    watch.began = set->began;
    common.dtype = recipe->train.dtype;
    common.tf32 = recipe->train.tf32;
    int status = mr_open_context(&common, &ctx, err);
    if (!status) status = mr_recipe_open(recipe, err);
    if (!status) status = mr_train(recipe, ctx, set->out, set->resume, mr_stop_flag(), &watch, &result, err);
    if (!status) *code = finish(&v, set, &result);
    else mr_run_view_clear(&v);
    mr_context_free(ctx);
    return status;
}

int mr_cmd_train(int argc, char **argv)
{
    settings set = {.began = mr_seconds()};
    mr_args args = {.command = "train",
                    .flags = flags,
                    .settings = &set,
                    .open = 1,
                    .help = mr_train_help,
                    .max = 1,
                    .usage = "usage: minrnn train RECIPE|FILE.ini --out DIR [--resume] [--key value …]\n\n"
                             "Trains a model. DIR gets model.safetensors (the best), last.safetensors, "
                             "state.safetensors (to go on from),\n"
                             "log.jsonl, recipe.ini (complete) and curve.svg. Ctrl-C saves and says how to go on.\n",
                    .examples = "  minrnn train text --data book.txt --out runs/book\n"
                                "  minrnn train selective-copy --length 256 --tokens 8 --steps 2000 --out runs/copy\n"
                                "  minrnn train shakespeare --mixer minlstm --out runs/lstm --max-seconds 600\n"
                                "  minrnn train --out runs/lstm --resume\n"};
    mr_recipe recipe;
    mr_error err;
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    if (!set.out[0]) return mr_misused("train", "say where the run goes: --out DIR");
    if (!set.resume && !args.count) return mr_misused("train", "say which recipe; `minrnn train --help` lists them");
    if (args.count && !mr_recipe_is_path(args.given[0]) && !mr_recipe_is_known(args.given[0]))
        return mr_unknown_name("train", "recipe", args.given[0], mr_recipe_names);
    code = load_recipe(&recipe, &args, &set);
    if (code >= 0) return code;
    mr_catch_signals();
    int status = train(&recipe, &set, &err, &code);
    mr_recipe_free(&recipe);
    return status ? mr_report("train", &err) : code;
}
