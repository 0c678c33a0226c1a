/* Each thread runs as many simulations side by side as the policy serves at once; one that has ended takes the next
 * episode. */
#include "control/record.h"

#include "core/mem.h"
#include "core/rng.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

enum { LANES = MR_POLICY_LANES, TICKS = 16 /* steps of a thread between two looks at the progress */ };

typedef struct lane {
    mr_env *env;
    mr_recording *episode; /* NULL: none is left for this one */
    size_t length;
    mr_rng noise;
    float *observations, *actions, *rewards; /* room for a whole episode */
} lane;

typedef struct work {
    const mr_record_job *job;
    mr_recording *out;
    atomic_int next, status;
    atomic_size_t steps;
    atomic_flag watched;
} work;

/* All the arrays of an episode in one piece. */
static int make_room(size_t length, const mr_env_type *type, float **observations, float **actions, float **rewards)
{
    const size_t observed = (size_t)type->observed, acted = (size_t)type->acted;
    *observations = mr_alloc(length * (observed + acted + 1), sizeof **observations);
    if (!*observations) return MR_ENOMEM;
    *actions = *observations + length * observed;
    *rewards = *actions + length * acted;
    return 0;
}

static int open_lane(lane *l, const mr_env_model *model)
{
    int status = mr_env_new(model, &l->env, NULL);
    return status ? status
                  : make_room(MR_ENV_STEPS, mr_env_model_type(model), &l->observations, &l->actions, &l->rewards);
}

static void close_lane(lane *l)
{
    mr_env_free(l->env);
    mr_free(l->observations);
}

/* Starts the next episode, where there is one. */
static void start(work *w, lane *l, double *observation)
{
    const int index = atomic_fetch_add(&w->next, 1);
    const uint64_t number = w->job->first + (uint64_t)index;
    l->episode = index < w->job->count ? &w->out[index] : NULL;
    if (!l->episode) return;
    l->length = 0;
    l->noise = mr_rng_at(w->job->seed, MR_STREAM_ACT, (uint32_t)number, (uint32_t)(number >> 32));
    mr_env_reset(l->env, w->job->seed, number, observation);
}

static int keep(lane *l, const mr_env_type *type, int terminal)
{
    mr_recording *e = l->episode;
    const size_t observed = (size_t)type->observed, acted = (size_t)type->acted;
    int status = make_room(l->length, type, &e->observations, &e->actions, &e->rewards);
    if (status) return status;
    memcpy(e->observations, l->observations, l->length * observed * sizeof(float));
    memcpy(e->actions, l->actions, l->length * acted * sizeof(float));
    memcpy(e->rewards, l->rewards, l->length * sizeof(float));
    e->length = l->length;
    e->terminal = terminal;
    return 0;
}

/* One step; *ended says whether it was the last of its episode. */
static int step(lane *l, const mr_env_type *type, double *observation, float *action, double added, int *ended)
{
    const size_t t = l->length++, observed = (size_t)type->observed, acted = (size_t)type->acted;
    for (size_t i = 0; i < observed; i++) l->observations[t * observed + i] = (float)observation[i];
    for (size_t i = 0; i < acted; i++) {
        if (added > 0) action[i] += (float)(added * mr_rng_normal(&l->noise));
        action[i] = fminf(fmaxf(action[i], -1), 1);
        l->actions[t * acted + i] = action[i];
    }
    const mr_env_result result = mr_env_step(l->env, action, observation);
    l->rewards[t] = (float)result.reward;
    *ended = result.terminal || l->length == MR_ENV_STEPS;
    return *ended ? keep(l, type, result.terminal) : 0;
}

static void watch(work *w)
{
    if (!w->job->progress || atomic_flag_test_and_set(&w->watched)) return;
    if (w->job->progress(w->job->arg, atomic_load(&w->steps))) atomic_store(&w->status, MR_ESTOPPED);
    atomic_flag_clear(&w->watched);
}

/* One step of all lanes that are at work; returns how many there were. */
static int tick(work *w, lane *list, double observations[LANES][MR_ENV_MOST_OBSERVED])
{
    const mr_actor *actor = &w->job->actor;
    const mr_env_type *type = mr_env_model_type(w->job->model);
    float draws[LANES][MR_ENV_MOST_ACTED] = {{0}}, actions[LANES][MR_ENV_MOST_ACTED];
    int at_work = 0;
    for (int i = 0; actor->own > 0 && i < LANES; i++)
        for (int k = 0; list[i].episode && k < type->acted; k++) draws[i][k] = (float)mr_rng_normal(&list[i].noise);
    mr_policy_act(actor->policy, observations, actor->own, draws, actions);
    for (int i = 0; i < LANES; i++) {
        int ended = 0;
        if (!list[i].episode) continue;
        at_work++;
        if (step(&list[i], type, observations[i], actions[i], actor->added, &ended))
            atomic_store(&w->status, MR_ENOMEM);
        if (ended) start(w, &list[i], observations[i]);
    }
    atomic_fetch_add(&w->steps, (size_t)at_work);
    return at_work;
}

static void run(void *arg, int task, int slot)
{
    work *w = arg;
    lane list[LANES] = {{0}};
    double observations[LANES][MR_ENV_MOST_OBSERVED] = {{0}};
    int at_work = 0;
    (void)task, (void)slot;
    for (int i = 0; i < LANES && !atomic_load(&w->status); i++) {
        if (open_lane(&list[i], w->job->model)) atomic_store(&w->status, MR_ENOMEM);
        else start(w, &list[i], observations[i]);
        at_work += list[i].episode != NULL;
    }
    for (int n = 1; at_work && !atomic_load(&w->status); n++) {
        at_work = tick(w, list, observations);
        if (n % TICKS == 0) watch(w);
    }
    for (int i = 0; i < LANES; i++) close_lane(&list[i]);
}

int mr_record(const mr_record_job *job, mr_recording *out, mr_error *err)
{
    work w = {.job = job, .out = out, .watched = ATOMIC_FLAG_INIT};
    mr_pool_run(job->pool, run, &w, job->threads);
    const int status = atomic_load(&w.status);
    if (status == MR_ENOMEM) return mr_no_memory(err, "recorded episodes");
    return status ? mr_fail(err, status, "stopped on request") : 0;
}

void mr_recordings_free(mr_recording *list, int count)
{
    for (int i = 0; list && i < count; i++) mr_free(list[i].observations);
    mr_free(list);
}
