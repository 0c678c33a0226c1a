/* Episodes side by side: the net steps all streams together, then all simulations step on their threads. A simulation
 * takes megabytes, so there are not more of them than MR_ROLLOUT_AT_ONCE: further episodes follow in waves. */
#include "control/rollout.h"

#include "core/clock.h"
#include "core/mem.h"
#include "core/pool.h"

#include <math.h>
#include <string.h>

/* One episode. */
typedef struct actor {
    mr_env *env;
    mr_stream *stream;
    int index, over;
    double wanted, earned;
    int length;
    float observation[MR_ENV_MOST_OBSERVED], action[MR_ENV_MOST_ACTED];
} actor;

typedef struct stage {
    const mr_rollout_options *options;
    const mr_env_type *type;
    mr_tokens tokens;
    int places; /* episodes at once */
    actor *actors, **active;
    mr_stream **streams; /* of the active ones */
    float *rows;         /* [active, inputs] */
    float *actions;      /* [active, acted] */
    int count;           /* of active ones */
    mr_pool *pool;
} stage;

static void observe(const stage *s, actor *a, const double *seen)
{
    for (int i = 0; i < s->type->observed; i++) a->observation[i] = (float)seen[i];
}

/* ---- simulations, on many threads ---- */

static void start_one(void *arg, int task, int slot)
{
    stage *s = arg;
    actor *a = &s->actors[task];
    double seen[MR_ENV_MOST_OBSERVED];
    (void)slot;
    a->wanted = s->options->target;
    mr_env_reset(a->env, s->options->seed, (uint64_t)a->index, seen);
    observe(s, a, seen);
}

static void step_one(void *arg, int task, int slot)
{
    stage *s = arg;
    actor *a = s->active[task];
    double seen[MR_ENV_MOST_OBSERVED];
    (void)slot;
    const mr_env_result result = mr_env_step(a->env, a->action, seen);
    observe(s, a, seen);
    a->earned += result.reward;
    a->wanted -= result.reward;
    a->length++;
    a->over = result.terminal || a->length == MR_ENV_STEPS;
}

/* ---- the net ---- */

static int feed(stage *s, mr_token kind, float *scores, mr_error *err)
{
    const size_t inputs = (size_t)mr_tokens_inputs(&s->tokens);
    for (int i = 0; i < s->count; i++) {
        const actor *a = s->active[i];
        const float wanted = (float)a->wanted;
        const float *numbers[] = {&wanted, a->observation, a->action};
        mr_token_put(&s->tokens, kind, numbers[kind], a->length, s->rows + (size_t)i * inputs);
    }
    return mr_stream_step_many(s->streams, s->count, NULL, s->rows, scores,
                               scores ? (size_t)s->count * (size_t)s->type->acted : 0, err);
}

static int act(stage *s, mr_error *err)
{
    const size_t acted = (size_t)s->type->acted;
    int status = feed(s, MR_TOKEN_RETURN, NULL, err);
    if (!status) status = feed(s, MR_TOKEN_OBSERVATION, s->actions, err);
    for (int i = 0; !status && i < s->count; i++)
        for (size_t k = 0; k < acted; k++)
            s->active[i]->action[k] = fminf(fmaxf(s->actions[(size_t)i * acted + k], -1), 1);
    return status ? status : feed(s, MR_TOKEN_ACTION, NULL, err);
}

static void leave_out_finished(stage *s)
{
    int kept = 0;
    for (int i = 0; i < s->count; i++)
        if (!s->active[i]->over) s->active[kept++] = s->active[i];
    s->count = kept;
    for (int i = 0; i < kept; i++) s->streams[i] = s->active[i]->stream;
}

/* Puts the episodes from `first` on into their places. */
static void begin_wave(stage *s, int first)
{
    const int left = s->options->episodes - first;
    s->count = left < s->places ? left : s->places;
    for (int i = 0; i < s->count; i++) {
        actor *a = s->active[i] = &s->actors[i];
        *a = (actor){.env = a->env, .stream = a->stream, .index = first + i};
        s->streams[i] = a->stream;
        mr_stream_reset(a->stream);
    }
    mr_pool_run(s->pool, start_one, s, s->count);
}

static int run_wave(stage *s, int first, mr_error *err)
{
    const mr_rollout_options *o = s->options;
    const int before = first / s->places * MR_ENV_STEPS, all = (o->episodes + s->places - 1) / s->places * MR_ENV_STEPS;
    begin_wave(s, first);
    for (int step = 0; s->count; step++) {
        if (o->stop && *o->stop) return mr_fail(err, MR_ESTOPPED, "stopped while the policy acted");
        if (o->film && !first && !s->actors[0].over) o->film(o->film_user, s->actors[0].env, step);
        int status = act(s, err);
        if (status) return status;
        mr_pool_run(s->pool, step_one, s, s->count);
        leave_out_finished(s);
        if (o->tick) o->tick(o->user, before + step + 1, all);
    }
    return 0;
}

static int run(stage *s, mr_rollout *out, mr_error *err)
{
    int status = 0;
    for (int first = 0; !status && first < s->options->episodes; first += s->places) {
        status = run_wave(s, first, err);
        for (int i = 0; !status && i < s->places && first + i < s->options->episodes; i++) {
            out->rewards[first + i] = s->actors[i].earned;
            out->lengths[first + i] = s->actors[i].length;
        }
    }
    return status;
}

/* ---- what it needs ---- */

static int make_actors(stage *s, mr_net *net, const mr_env_model *model, mr_error *err)
{
    int status = mr_net_reserve_streams(net, s->places, err);
    for (int i = 0; !status && i < s->places; i++) {
        status = mr_env_new(model, &s->actors[i].env, err);
        if (!status) status = mr_stream_new(net, &s->actors[i].stream, err);
    }
    return status;
}

static int make_stage(stage *s, mr_net *net, const mr_env_model *model, mr_error *err)
{
    const size_t n = (size_t)s->places;
    int status = mr_tokens_of_net(s->type, net, &s->tokens, err);
    if (status) return status;
    s->actors = mr_alloc(n, sizeof *s->actors);
    s->active = mr_alloc(n, sizeof *s->active);
    s->streams = mr_alloc(n, sizeof(mr_stream *));
    s->rows = mr_alloc(n * (size_t)mr_tokens_inputs(&s->tokens), sizeof *s->rows);
    s->actions = mr_alloc(n * (size_t)s->type->acted, sizeof *s->actions);
    const int threads = s->options->threads ? s->options->threads : mr_processors();
    s->pool = mr_pool_new(threads < s->places ? threads : s->places, NULL);
    if (!s->actors || !s->active || !s->streams || !s->rows || !s->actions || !s->pool)
        return mr_no_memory(err, "the episodes");
    memset(s->actors, 0, n * sizeof *s->actors);
    return make_actors(s, net, model, err);
}

static void free_stage(stage *s)
{
    for (int i = 0; s->actors && i < s->places; i++) {
        mr_stream_free(s->actors[i].stream);
        mr_env_free(s->actors[i].env);
    }
    mr_pool_free(s->pool);
    mr_free(s->actors);
    mr_free(s->active);
    mr_free((void *)s->streams);
    mr_free(s->rows);
    mr_free(s->actions);
}

static int make_result(int episodes, mr_rollout *out, mr_error *err)
{
    out->rewards = mr_alloc((size_t)episodes, sizeof *out->rewards);
    out->lengths = mr_alloc((size_t)episodes, sizeof *out->lengths);
    return out->rewards && out->lengths ? 0 : mr_no_memory(err, "the episodes");
}

static void sum_up(int episodes, mr_rollout *out)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < episodes; i++) sum += out->rewards[i], out->steps += out->lengths[i];
    out->mean = sum / episodes;
    for (int i = 0; i < episodes; i++) squares += (out->rewards[i] - out->mean) * (out->rewards[i] - out->mean);
    out->std = episodes > 1 ? sqrt(squares / (episodes - 1)) : 0;
}

int mr_rollout_run(mr_net *net, const mr_env_model *model, const mr_rollout_options *options, mr_rollout *out,
                   mr_error *err)
{
    const int n = options->episodes;
    stage s = {.options = options,
               .type = mr_env_model_type(model),
               .places = n < MR_ROLLOUT_AT_ONCE ? n : MR_ROLLOUT_AT_ONCE};
    const double began = mr_seconds();
    *out = (mr_rollout){0};
    int status = make_stage(&s, net, model, err);
    if (!status) status = make_result(n, out, err);
    if (!status) status = run(&s, out, err);
    if (!status) sum_up(n, out);
    free_stage(&s);
    out->seconds = mr_seconds() - began;
    if (status) mr_rollout_free(out);
    return status;
}

void mr_rollout_free(mr_rollout *r)
{
    mr_free(r->rewards);
    mr_free(r->lengths);
    *r = (mr_rollout){0};
}
