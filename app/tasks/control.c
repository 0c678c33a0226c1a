/* Control: a policy learned from recorded episodes, as in Decision Transformer. It reads the return that is still
 * wanted, the observation and the action of each step, and predicts the action from all that came before it. */
#include "control/d4rl.h"
#include "control/hdf5_file.h"
#include "control/rollout.h"
#include "core/mem.h"
#include "core/rng.h"
#include "tasks/data.h"
#include "tasks/task.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct settings {
    int env, set, timestep;
    double return_scale, target;
    int64_t episodes, play_seed;
    char data[MR_TEXT_MAX], assets[MR_TEXT_MAX];
} settings;

static const char *const envs[] = {"hopper", "halfcheetah", "walker2d", NULL}; /* in the order of mr_env_types */
static const char *const sets[] = {"medium", "medium-replay", "medium-expert", NULL};
static const char *const published[] = {"medium", "medium_replay", "medium_expert"}; /* as D4RL's files spell them */

enum {
    HELD_OUT = 50,      /* one episode of so many is for validation */
    MOST_WINDOWS = 4096 /* of validation */
};
#define LEAST_DEVIATION 1e-6 /* of an observation's number: what never changes is not blown up */

/* The data, and where its windows may start. */
typedef struct control {
    mr_d4rl set;
    mr_tokens tokens;
    double mean[MR_TOKEN_MOST], scale[MR_TOKEN_MOST];
    float *wanted;        /* [steps] the sum of rewards from here to the end of the episode */
    uint32_t *episode_of; /* [steps] */
    uint32_t *starts;     /* the steps of all episodes that are trained on … */
    size_t start_count;
    uint32_t *windows; /* … and the first steps of the windows that are scored */
    size_t window_count;
} control;

static const mr_env_type *env_of(const mr_task *task) { return &mr_env_types[((const settings *)task->settings)->env]; }

/* ---- batches ---- */

/* Fills a row of the batch with the steps from `from` on, at most task->context of them. */
static int put_window(const mr_task *task, uint32_t from, int row, mr_batch *batch)
{
    const control *c = task->data;
    const mr_d4rl *d = &c->set;
    const mr_episode *e = &d->episodes[c->episode_of[from]];
    const size_t inputs = (size_t)mr_tokens_inputs(&c->tokens), acted = (size_t)d->acted,
                 observed = (size_t)d->observed;
    const size_t left = e->first + e->length - from, first = (size_t)row * (size_t)batch->T;
    const size_t n = left < (size_t)task->context ? left : (size_t)task->context;
    memset(batch->mask + first, 0, (size_t)batch->T);
    memset(batch->values + first * inputs, 0, (size_t)batch->T * inputs * sizeof(float));
    memset(batch->target_values + first * acted, 0, (size_t)batch->T * acted * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        const size_t step = from + i, at = first + MR_TOKENS_A_STEP * i;
        const int64_t time = (int64_t)(step - e->first);
        float *values = batch->values + at * inputs;
        const float *action = d->actions + step * acted;
        mr_token_put(&c->tokens, MR_TOKEN_RETURN, &c->wanted[step], time, values);
        mr_token_put(&c->tokens, MR_TOKEN_OBSERVATION, d->observations + step * observed, time, values + inputs);
        mr_token_put(&c->tokens, MR_TOKEN_ACTION, action, time, values + 2 * inputs);
        batch->mask[at + 1] = 1; /* the action is predicted where the observation was read */
        memcpy(batch->target_values + (at + 1) * acted, action, acted * sizeof(float));
    }
    mr_batch_lengths(batch)[row] = (int32_t)(MR_TOKENS_A_STEP * n);
    return (int)n;
}

static void start_batch(const mr_task *task, int rows, mr_batch *batch)
{
    batch->B = rows;
    batch->T = task->max_T;
    batch->length = mr_batch_lengths(batch);
    batch->counted = 0;
}

/* Every step of the training episodes is as likely to be the first of a window. */
static void train_batch(const mr_task *task, uint32_t step, uint32_t micro, mr_batch *batch)
{
    const control *c = task->data;
    start_batch(task, task->batch, batch);
    for (int row = 0; row < batch->B; row++) {
        mr_rng rng = mr_rng_at(task->seed, MR_STREAM_TRAIN + micro, step, (uint32_t)row);
        batch->counted += put_window(task, c->starts[mr_rng_below(&rng, (uint32_t)c->start_count)], row, batch);
    }
}

static void eval_batch(const mr_task *task, int index, mr_batch *batch)
{
    const control *c = task->data;
    const size_t first = (size_t)index * (size_t)task->batch, left = c->window_count - first;
    start_batch(task, left < (size_t)task->batch ? (int)left : task->batch, batch);
    for (int row = 0; row < batch->B; row++)
        batch->counted += put_window(task, c->windows[first + (size_t)row], row, batch);
}

/* ---- the data ---- */

/* The file that the recipe names, or D4RL's own, or one like it. */
static int find_data(const mr_task *task, char **path, mr_error *err)
{
    const settings *s = task->settings;
    char name[96], like[96];
    mr_hdf5 *none;
    *path = NULL;
    if (!mr_hdf5_version()) return mr_hdf5_open("", &none, err); /* says what to install */
    if (s->data[0]) {
        *path = mr_alloc(strlen(s->data) + 1, 1);
        return *path ? (void)strcpy(*path, s->data), 0 : mr_no_memory(err, s->data);
    }
    snprintf(name, sizeof name, "d4rl/%s_%s-v2.hdf5", envs[s->env], published[s->set]);
    *path = mr_data_locate(name);
    snprintf(like, sizeof like, "d4rl-like/%s-%s.hdf5", envs[s->env], sets[s->set]);
    if (!*path) *path = mr_data_locate(like);
    if (*path) return 0;
    return mr_fail(
        err, MR_ENODATA,
        "no data for %s, %s: `minrnn data make d4rl-like %s %s` makes some, or set MINRNN_DATA to the folder "
        "that has D4RL's %s",
        env_of(task)->title, sets[s->set], envs[s->env], sets[s->set], name);
}

/* Files do not name their environment, and two have the same sizes; but their episodes begin at other heights. */
static int starts_as(const mr_d4rl *d, const mr_env_type *type)
{
    size_t near = 0;
    for (size_t i = 0; i < d->episode_count; i++)
        near += fabs((double)d->observations[d->episodes[i].first * (size_t)d->observed] - type->height) < 0.15;
    return d->episode_count >= 3 && 10 * near >= 9 * d->episode_count;
}

static int check_env(const mr_env_type *type, const mr_d4rl *d, const char *path, mr_error *err)
{
    if (d->observed != type->observed || d->acted != type->acted)
        return mr_fail(err, MR_EDATA, "%s: has observations of %d and actions of %d numbers; %s has %d and %d", path,
                       d->observed, d->acted, type->title, type->observed, type->acted);
    for (const mr_env_type *other = mr_env_types; other->name; other++)
        if (other->observed == type->observed && other->height != type->height && starts_as(d, other))
            return mr_fail(err, MR_EDATA, "%s: its episodes begin as those of %s, not of %s; give that one's data",
                           path, other->title, type->title);
    return 0;
}

/* Is it this environment's? Actions are cut to ±1. */
static int check_actions(const mr_task *task, mr_d4rl *d, const char *path, mr_error *err)
{
    int status = check_env(env_of(task), d, path, err);
    if (status) return status;
    for (size_t i = 0; i < d->steps * (size_t)d->acted; i++) /* as the simulator does */
        d->actions[i] = fminf(fmaxf(d->actions[i], -1), 1);
    if (d->steps > INT32_MAX) return mr_fail(err, MR_EDATA, "%s: has more than 2³¹ steps", path);
    return 0;
}

/* Is the episode kept for validation? Where there are few, the last one is; a single one is trained on and scored. */
static int is_held_out(const mr_d4rl *d, size_t episode)
{
    if (d->episode_count < HELD_OUT) return episode + 1 == d->episode_count;
    return episode % HELD_OUT == HELD_OUT - 1;
}

/* The return that is wanted at each step. */
static int find_wanted(control *c, const char *path, mr_error *err)
{
    const mr_d4rl *d = &c->set;
    for (size_t i = 0; i < d->episode_count; i++) {
        const mr_episode *e = &d->episodes[i];
        double wanted = 0;
        for (size_t k = e->length; k--;) {
            wanted += d->rewards[e->first + k];
            c->wanted[e->first + k] = (float)wanted;
            c->episode_of[e->first + k] = (uint32_t)i;
            if (isfinite(c->wanted[e->first + k])) continue;
            return mr_fail(err, MR_EDATA, "%s: the rewards of episode %zu add up to more than a float holds", path, i);
        }
    }
    return 0;
}

static void find_windows(const mr_task *task, control *c)
{
    const mr_d4rl *d = &c->set;
    for (size_t i = 0; i < d->episode_count; i++) {
        const mr_episode *e = &d->episodes[i];
        if (!is_held_out(d, i) || d->episode_count == 1)
            for (size_t k = 0; k < e->length; k++) c->starts[c->start_count++] = (uint32_t)(e->first + k);
        for (size_t k = 0; is_held_out(d, i) && k < e->length && c->window_count < MOST_WINDOWS;
             k += (size_t)task->context)
            c->windows[c->window_count++] = (uint32_t)(e->first + k);
    }
}

/* Means and deviations of what is observed in training. */
static void find_scaler(const settings *s, const mr_env_type *type, control *c)
{
    double mean[MR_ENV_MOST_OBSERVED], deviation[MR_ENV_MOST_OBSERVED];
    const size_t observed = (size_t)c->set.observed;
    for (size_t k = 0; k < observed; k++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < c->start_count; i++) sum += c->set.observations[c->starts[i] * observed + k];
        mean[k] = sum / (double)c->start_count;
        for (size_t i = 0; i < c->start_count; i++) {
            const double x = c->set.observations[c->starts[i] * observed + k] - mean[k];
            squares += x * x;
        }
        deviation[k] = sqrt(squares / (double)c->start_count) + LEAST_DEVIATION;
    }
    c->tokens = mr_tokens_of(type, s->timestep, mean);
    mr_tokens_scaler(&c->tokens, mean, deviation, s->return_scale, c->mean, c->scale);
}

static int make_control(mr_task *task, const char *path, mr_error *err)
{
    control *c = task->data;
    int status = mr_d4rl_load(path, &c->set, err);
    if (!status) status = check_actions(task, &c->set, path, err);
    if (status) return status;
    c->wanted = mr_alloc(c->set.steps, sizeof *c->wanted);
    c->episode_of = mr_alloc(c->set.steps, sizeof *c->episode_of);
    c->starts = mr_alloc(c->set.steps, sizeof *c->starts);
    c->windows = mr_alloc(MOST_WINDOWS, sizeof *c->windows);
    if (!c->wanted || !c->episode_of || !c->starts || !c->windows) return mr_no_memory(err, path);
    status = find_wanted(c, path, err);
    if (status) return status;
    find_windows(task, c);
    find_scaler(task->settings, env_of(task), c);
    return 0;
}

static double data_score(const mr_task *task)
{
    const mr_d4rl *d = &((const control *)task->data)->set;
    double sum = 0;
    for (size_t i = 0; i < d->episode_count; i++) sum += d->episodes[i].reward;
    return mr_env_score(env_of(task), sum / (double)d->episode_count);
}

static int open_task(mr_task *task, mr_error *err)
{
    char *path = NULL;
    if (task->context < 1 || task->context > MR_ENV_STEPS)
        return mr_fail(err, MR_EINVAL, "--context: %d steps; control takes 1 to %d", task->context, MR_ENV_STEPS);
    control *c = task->data = mr_alloc(1, sizeof *c);
    if (!c) return mr_no_memory(err, "the data");
    memset(c, 0, sizeof *c);
    int status = find_data(task, &path, err);
    if (!status) status = make_control(task, path, err);
    if (!status) {
        memcpy(task->data_sha256, c->set.sha256, sizeof task->data_sha256);
        snprintf(task->note, sizeof task->note, "%zu steps in %zu episodes, score %.1f; %.32s", c->set.steps,
                 c->set.episode_count, data_score(task), c->set.made_by[0] ? c->set.made_by : "not made by minrnn");
        task->interface = (mr_interface){.input = MR_INPUT_REALS,
                                         .inputs = mr_tokens_inputs(&c->tokens),
                                         .head = MR_HEAD_TOKEN,
                                         .loss = MR_LOSS_MSE,
                                         .outputs = c->set.acted};
        task->max_T = MR_TOKENS_A_STEP * task->context;
        task->eval_batches = ((int)c->window_count + task->batch - 1) / task->batch;
        task->input_mean = c->mean, task->input_scale = c->scale;
    }
    mr_free(path);
    return status;
}

static void close_task(mr_task *task)
{
    control *c = task->data;
    if (!c) return;
    mr_d4rl_free(&c->set);
    mr_free(c->wanted);
    mr_free(c->episode_of);
    mr_free(c->starts);
    mr_free(c->windows);
    mr_free(c);
}

/* ---- acting ---- */

static mr_rollout_options rollout_of(const mr_task *task, int threads, mr_task_tick *tick, void *user)
{
    const settings *s = task->settings;
    return (mr_rollout_options){.episodes = (int)s->episodes,
                                .seed = (uint64_t)s->play_seed,
                                .target = s->target ? s->target : env_of(task)->target,
                                .threads = threads,
                                .stop = task->stop,
                                .tick = tick,
                                .user = user};
}

static int play(const mr_task *task, mr_net *net, int threads, mr_task_tick *tick, void *user, mr_play *out,
                mr_error *err)
{
    const settings *s = task->settings;
    const mr_rollout_options options = rollout_of(task, threads, tick, user);
    mr_env_model *model;
    mr_rollout result = {0};
    int status = mr_env_model_load(env_of(task), s->assets[0] ? s->assets : NULL, &model, err);
    if (status) return status;
    status = mr_rollout_run(net, model, &options, &result, err);
    if (!status)
        *out = (mr_play){.score = mr_env_score(env_of(task), result.mean),
                         .mean = result.mean,
                         .std = result.std,
                         .data_made = ((const control *)task->data)->set.made_by[0] != 0,
                         .data_score = data_score(task),
                         .episodes = s->episodes,
                         .steps = result.steps,
                         .seconds = result.seconds};
    mr_rollout_free(&result);
    mr_env_model_free(model);
    return status;
}

static int play_identity(const mr_task *task, char identity[17], int64_t *episodes, mr_error *err)
{
    const settings *s = task->settings;
    const mr_rollout_options o = rollout_of(task, 0, NULL, NULL);
    char text[160], sha[MR_SHA256_TEXT];
    mr_env_model *model;
    int status = mr_env_model_load(env_of(task), s->assets[0] ? s->assets : NULL, &model, err);
    if (status) return status;
    const int size = snprintf(text, sizeof text, "%s %d %llu %.17g", mr_env_model_identity(model), o.episodes,
                              (unsigned long long)o.seed, o.target);
    mr_sha256_of(text, (size_t)size, sha);
    snprintf(identity, 17, "%.16s", sha);
    *episodes = o.episodes;
    mr_env_model_free(model);
    return 0;
}

/* ---- options ---- */

#define FIELD(name) offsetof(settings, name)

static const mr_option options[] = {
    {.key = "env",
     .type = MR_OPT_CHOICE,
     .offset = FIELD(env),
     .fallback = "hopper",
     .choices = envs,
     .help = "what is controlled"},
    {.key = "set",
     .type = MR_OPT_CHOICE,
     .offset = FIELD(set),
     .fallback = "medium",
     .choices = sets,
     .help = "which recorded episodes: of a mediocre policy, of all that it was before, or half of an expert"},
    {.key = "data",
     .type = MR_OPT_TEXT,
     .offset = FIELD(data),
     .fallback = "",
     .help = "an HDF5 file in D4RL's format, instead of the one found in MINRNN_DATA or made by `minrnn data make`",
     .flags = MR_OPT_PATH},
    {.key = "assets",
     .type = MR_OPT_TEXT,
     .offset = FIELD(assets),
     .fallback = "",
     .help = "the folder with Gymnasium's XML files; without it they are looked for in MINRNN_DATA and in gymnasium",
     .flags = MR_OPT_PATH},
    {.key = "timestep",
     .type = MR_OPT_BOOL,
     .offset = FIELD(timestep),
     .fallback = "no",
     .help = "tell the policy how much of the episode is over"},
    {.key = "return-scale",
     .type = MR_OPT_REAL,
     .offset = FIELD(return_scale),
     .fallback = "1000",
     .min = 1e-6,
     .max = 1e9,
     .help = "the model reads returns in this unit"},
    {.key = "target",
     .type = MR_OPT_REAL,
     .offset = FIELD(target),
     .fallback = "0",
     .min = -1e9,
     .max = 1e9,
     .help = "the return that is asked for when the policy is scored; 0: 3600 (hopper), 12000 (halfcheetah), 5000"},
    {.key = "episodes",
     .type = MR_OPT_INT,
     .offset = FIELD(episodes),
     .fallback = "100",
     .min = 1,
     .max = 100000,
     .help = "episodes that a policy is scored on"},
    {.key = "play-seed",
     .type = MR_OPT_INT,
     .offset = FIELD(play_seed),
     .fallback = "1",
     .min = 0,
     .max = 1e15,
     .help = "decides on the first states of those episodes"},
    {.key = NULL}};

const mr_task_type mr_task_control = {
    .name = "control",
    .summary = "walking and hopping in MuJoCo, learned from recorded episodes (D4RL), as in Decision Transformer",
    .options = options,
    .settings_size = sizeof(settings),
    .best_is_last = 1,
    .scored = "validation",
    .open = open_task,
    .close = close_task,
    .train_batch = train_batch,
    .eval_batch = eval_batch,
    .play = play,
    .play_identity = play_identity,
};
