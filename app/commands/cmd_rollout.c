/* minrnn rollout: a policy acts in its environment. */
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/json_out.h"
#include "control/rollout.h"
#include "control/strip.h"
#include "core/mem.h"
#include "train/session.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

typedef struct settings {
    mr_common common;
    char env[MR_TEXT_MAX], assets[MR_TEXT_MAX], strip[MR_TEXT_MAX];
    int64_t episodes;
    double target;
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"env", MR_OPT_TEXT, offsetof(settings, env), "", 0, 0, NULL,
     "hopper, halfcheetah or walker2d; by default the one it was trained for", 0},
    {"episodes", MR_OPT_INT, offsetof(settings, episodes), "10", 1, 100000, NULL, "how many", 0},
    {"target", MR_OPT_REAL, offsetof(settings, target), "0", -1e9, 1e9, NULL,
     "the return to ask for; 0: that of the model's recipe, or 3600 (hopper), 12000 (halfcheetah), 5000 (walker2d)", 0},
    {"assets", MR_OPT_TEXT, offsetof(settings, assets), "", 0, 0, NULL,
     "the folder with Gymnasium's XML files; else that of the recipe, or looked for in MINRNN_DATA and in gymnasium",
     0},
    {"strip", MR_OPT_TEXT, offsetof(settings, strip), "", 0, 0, NULL,
     "write a film strip of the first episode to this SVG file", 0},
    {0}};

static void on_tick(void *user, int done, int all)
{
    (void)user;
    if (done % 10 == 0 || done == all) fprintf(stderr, "\rstep %d of %d\033[K", done, all);
    fflush(stderr);
}

/* A setting of the task that the model was trained for, as text; "" where there is none. */
static const char *of_task(const mr_session *s, const char *key, char text[MR_TEXT_MAX])
{
    const mr_task *task = s->recipe.task;
    const mr_option *o = task && !strcmp(task->type->name, "control") ? mr_option_find(task->type->options, key) : NULL;
    text[0] = 0;
    if (o) mr_option_print(o, task->settings, text);
    return text;
}

/* The environment that is asked for, or that of the model's task; NULL after an error. Numbers that fit are not enough:
 * HalfCheetah and Walker2d have as many. */
static const mr_env_type *choose_env(const mr_session *s, const settings *set, const char *model, mr_error *err)
{
    char text[MR_TEXT_MAX];
    const mr_env_type *own = mr_env_type_find(of_task(s, "env", text)), *type = own;
    if (set->env[0]) type = mr_env_type_find(set->env);
    if (!type && set->env[0])
        mr_fail(err, MR_EINVAL, "--env %.80s: there are hopper, halfcheetah and walker2d", set->env);
    else if (!type)
        mr_fail(err, MR_EINVAL, "%.300s was not trained for control; name the environment with --env", model);
    else if (own && own != type)
        mr_fail(err, MR_EINVAL, "--env %s: %.300s is no policy for %s: it was trained for %s", type->name, model,
                type->title, own->title);
    else return type;
    return NULL;
}

/* The return to ask for: of the command line, of the model's recipe, or that of Decision Transformer. */
static double choose_target(const mr_session *s, const settings *set, const mr_env_type *type)
{
    char text[MR_TEXT_MAX];
    double own = 0;
    if (set->target != 0) return set->target;
    if (!mr_real_read(of_task(s, "target", text), &own) || own == 0) return type->target;
    return own;
}

static int print_json(const mr_env_type *type, const settings *set, const mr_rollout *r, double target, mr_error *err)
{
    mr_json_out out;
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_field_text(w, "env", type->name);
    mr_json_field_whole(w, "episodes", set->episodes);
    mr_json_field_real(w, "target", target, 9);
    mr_json_field_whole(w, "seed", set->common.seed);
    mr_json_field_real(w, "return_mean", r->mean, 9);
    mr_json_field_real(w, "return_std", r->std, 9);
    mr_json_field_real(w, "score", mr_env_score(type, r->mean), 9);
    mr_json_field_whole(w, "steps", r->steps);
    mr_json_field_real(w, "steps_per_second", (double)r->steps / r->seconds, 4);
    mr_json_write_key(w, "returns");
    mr_json_write_open(w, '[');
    for (int64_t i = 0; i < set->episodes; i++) mr_json_write_real(w, r->rewards[i], 9);
    mr_json_write_close(w, ']');
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", err);
}

static void print_text(const mr_env_type *type, const settings *set, const mr_rollout *r, double target)
{
    double low = r->rewards[0], high = r->rewards[0];
    for (int64_t i = 1; i < set->episodes; i++) {
        if (r->rewards[i] < low) low = r->rewards[i];
        if (r->rewards[i] > high) high = r->rewards[i];
    }
    printf("%s, %lld episode%s, target %.0f: return %.1f ± %.1f (%.1f … %.1f), score %.1f\n", type->title,
           (long long)set->episodes, set->episodes > 1 ? "s" : "", target, r->mean, r->std, low, high,
           mr_env_score(type, r->mean));
    printf("%lld steps in %.1f s: %.0f steps/s\n", (long long)r->steps, r->seconds, (double)r->steps / r->seconds);
}

static int roll_out(mr_session *s, const settings *set, const char *given, mr_error *err)
{
    mr_env_model *model = NULL;
    mr_rollout r = {0};
    mr_strip strip = {.every = 1};
    char text[MR_TEXT_MAX];
    const mr_env_type *type = choose_env(s, set, given, err);
    if (!type) return err->status;
    const double target = choose_target(s, set, type);
    if (s->recipe.task) mr_session_find_data(s, given); /* and the folder of assets */
    const char *assets = set->assets[0] ? set->assets : of_task(s, "assets", text);
    const int shown = !set->common.quiet && isatty(STDERR_FILENO);
    const mr_rollout_options options = {.episodes = (int)set->episodes,
                                        .seed = (uint64_t)set->common.seed,
                                        .target = target,
                                        .threads = (int)set->common.threads,
                                        .stop = mr_stop_flag(),
                                        .tick = shown ? on_tick : NULL,
                                        .film = set->strip[0] ? mr_strip_film : NULL,
                                        .film_user = &strip};
    int status = set->strip[0] ? mr_strip_check(set->strip, err) : 0;
    if (!status) status = mr_env_model_load(type, assets[0] ? assets : NULL, &model, err);
    if (!status) status = mr_rollout_run(s->net, model, &options, &r, err);
    if (shown) fprintf(stderr, "\r\033[K");
    if (!status && set->common.json) status = print_json(type, set, &r, target, err);
    else if (!status) print_text(type, set, &r, target);
    if (!status && set->strip[0]) status = mr_strip_write(&strip, type, set->strip, err);
    mr_rollout_free(&r);
    mr_env_model_free(model);
    return status;
}

int mr_cmd_rollout(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {
        .command = "rollout",
        .flags = flags,
        .settings = &set,
        .operands = "MODEL",
        .min = 1,
        .max = 1,
        .usage = "usage: minrnn rollout MODEL [--episodes N] [--target R] [--strip FILE.svg] [--json]\n\n"
                 "Lets a policy act in its environment (MuJoCo): the mean and spread of its returns, and D4RL's score\n"
                 "(0: random, 100: an expert). MODEL is a model file or the folder of a run of an rl-… recipe.\n",
        .examples = "  minrnn rollout runs/hopper --episodes 100\n"
                    "  minrnn rollout runs/hopper --target 1800 --strip hopper.svg\n"};
    mr_context *ctx = NULL;
    mr_session session;
    mr_error err;
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    mr_catch_signals();
    int status = mr_open_context(&set.common, &ctx, &err);
    if (!status) {
        status = mr_session_open(&session, args.given[0], ctx, &err);
        if (!status) status = roll_out(&session, &set, args.given[0], &err);
        mr_session_close(&session);
    }
    mr_context_free(ctx);
    if (status == MR_ESTOPPED) return 128 + (int)*mr_stop_flag();
    return status ? mr_report("rollout", &err) : MR_EXIT_DONE;
}
