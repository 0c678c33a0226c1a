/* Data sets from policies: parts of stages, each stage a policy's episodes in the order of their numbers until it has
 * its steps. Episodes are recorded in parallel, more than needed, and put together in order. */
#include "control/make_d4rl.h"

#include "control/d4rl_plans.h"
#include "control/record.h"
#include "core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const mr_d4rl_kinds[] = {"medium", "medium-replay", "medium-expert", NULL};

/* The upper half of the number of an episode says which part and stage it belongs to. */
enum { MEDIUM_KEY = 1, EXPERT_KEY = 2, REPLAY_KEY = 16 };

typedef struct maker {
    const mr_d4rl_job *job;
    mr_env_model *model;
    mr_pool *pool;
    int threads;
    mr_d4rl *set;
    size_t at; /* steps of the set that are filled */
} maker;

static const mr_d4rl_plans *plans_of(const mr_env_type *type) { return &mr_d4rl_all_plans[type - mr_env_types]; }

size_t mr_d4rl_usual_steps(const mr_env_type *type, mr_d4rl_kind kind)
{
    const mr_d4rl_plans *p = plans_of(type);
    if (kind == MR_D4RL_REPLAY) return p->replay.steps;
    return p->medium.steps + (kind == MR_D4RL_EXPERT ? p->expert.steps : 0);
}

/* Adds an episode, or as much of it as fits before `end`. */
static void add_episode(maker *m, const mr_recording *e, size_t end)
{
    mr_d4rl *set = m->set;
    const size_t observed = (size_t)set->observed, acted = (size_t)set->acted, room = end - m->at;
    const size_t length = e->length < room ? e->length : room, last = m->at + length - 1;
    memcpy(set->observations + m->at * observed, e->observations, length * observed * sizeof(float));
    memcpy(set->actions + m->at * acted, e->actions, length * acted * sizeof(float));
    memcpy(set->rewards + m->at, e->rewards, length * sizeof(float));
    if (length == e->length && e->terminal) set->terminals[last] = 1;
    else set->timeouts[last] = 1;
    m->at += length;
}

static int report(void *arg, size_t steps)
{
    const maker *m = arg;
    const size_t done = m->at + steps, total = m->set->steps;
    return m->job->progress ? m->job->progress(m->job->arg, done < total ? done : total, total) : 0;
}

/* How many episodes will be needed for so many steps, from those so far; rather a few too many. */
static int guess(size_t steps, size_t past_steps, size_t past_episodes)
{
    enum { MOST = 1 << 16 };
    const double length = past_episodes ? (double)past_steps / (double)past_episodes : MR_ENV_STEPS;
    return (int)fmin(ceil(1.03 * (double)steps / length), MOST);
}

/* Fills up to `until` with whole episodes; the last may go on beyond it, up to `end`. */
static int fill_by(maker *m, mr_actor actor, uint64_t first, size_t until, size_t end, mr_error *err)
{
    const size_t start = m->at;
    size_t episodes = 0;
    int status = 0;
    /* not before the first policy is read: a process that is copied while threads start may get their locks */
    if (!m->pool && !(m->pool = mr_pool_new(m->threads, NULL))) return mr_no_memory(err, "threads");
    while (!status && m->at < until) {
        mr_record_job job = {.model = m->model,
                             .actor = actor,
                             .seed = m->job->seed,
                             .first = first + episodes,
                             .count = guess(until - m->at, m->at - start, episodes),
                             .pool = m->pool,
                             .threads = m->threads,
                             .progress = report,
                             .arg = m};
        mr_recording *list = mr_alloc((size_t)job.count, sizeof *list);
        if (!list) return mr_no_memory(err, "recorded episodes");
        status = mr_record(&job, list, err);
        for (int i = 0; !status && i < job.count && m->at < until; i++) add_episode(m, &list[i], end);
        episodes += (size_t)job.count;
        mr_recordings_free(list, job.count);
    }
    return status;
}

static int fill_stage(maker *m, const mr_d4rl_stage *stage, uint64_t key, size_t until, size_t end, mr_error *err)
{
    mr_policy *policy;
    int status = mr_policy_load(m->job->policies, m->job->type, stage->algorithm, &policy, err);
    if (status) return status;
    status = fill_by(m, (mr_actor){policy, stage->own, stage->added}, key << 32, until, end, err);
    mr_policy_free(policy);
    return status;
}

static int fill_part(maker *m, const mr_d4rl_plan *plan, const mr_d4rl_part *part, uint64_t key, mr_error *err)
{
    const size_t end = part->first + part->steps;
    double share = 0;
    int status = 0, count = 0;
    while (count < MR_D4RL_MOST_STAGES && plan->stages[count].share > 0) count++;
    for (int i = 0; !status && i < count; i++) {
        share += plan->stages[i].share;
        const size_t until = i == count - 1 ? end : part->first + (size_t)(share * (double)part->steps);
        status = fill_stage(m, &plan->stages[i], key + (uint64_t)i, until, end, err);
    }
    return status;
}

/* ---- what was made */

/* 1: the episode ended by itself, or by the clock, and not because the part did. */
static int complete(const mr_d4rl *set, const mr_episode *e)
{
    return e->length == MR_ENV_STEPS || set->terminals[e->first + e->length - 1];
}

static void measure(const mr_d4rl *set, mr_d4rl_part *part)
{
    double sum = 0, squares = 0;
    for (int pass = 0; pass < 2; pass++) {
        size_t count = 0;
        for (size_t i = 0; i < set->episode_count; i++) {
            const mr_episode *e = &set->episodes[i];
            if (e->first < part->first || e->first >= part->first + part->steps || !complete(set, e)) continue;
            count++;
            if (!pass) sum += e->reward;
            else squares += (e->reward - part->mean) * (e->reward - part->mean);
        }
        part->episodes = count;
        part->mean = count ? sum / (double)count : 0;
        part->deviation = count ? sqrt(squares / (double)count) : 0;
    }
}

static mr_d4rl_part part_of(const mr_d4rl_plan *plan, const char *name, size_t first, size_t steps)
{
    return (mr_d4rl_part){.name = name,
                          .first = first,
                          .steps = steps,
                          .published_steps = plan->steps,
                          .published_mean = plan->mean,
                          .published_deviation = plan->deviation};
}

static int fill(maker *m, mr_d4rl_made *made, mr_error *err)
{
    const mr_d4rl_plans *plans = plans_of(m->job->type);
    const mr_d4rl_kind kind = m->job->kind;
    const size_t steps = made->set.steps, half = kind == MR_D4RL_EXPERT ? steps / 2 : steps;
    const mr_d4rl_plan *plan = kind == MR_D4RL_REPLAY ? &plans->replay : &plans->medium;
    const char *name = mr_d4rl_kinds[kind == MR_D4RL_REPLAY ? MR_D4RL_REPLAY : MR_D4RL_MEDIUM];
    made->parts[0] = part_of(plan, name, 0, half);
    made->parts[1] = part_of(&plans->expert, "expert", half, steps - half);
    made->part_count = kind == MR_D4RL_EXPERT ? 2 : 1;
    int status = fill_part(m, plan, &made->parts[0], kind == MR_D4RL_REPLAY ? REPLAY_KEY : MEDIUM_KEY, err);
    if (!status && made->part_count == 2) status = fill_part(m, &plans->expert, &made->parts[1], EXPERT_KEY, err);
    if (!status) status = mr_d4rl_cut(&made->set, err);
    for (int i = 0; !status && i < made->part_count; i++) measure(&made->set, &made->parts[i]);
    return status;
}

int mr_d4rl_make(const mr_d4rl_job *job, mr_d4rl_made *made, mr_error *err)
{
    maker m = {.job = job, .threads = job->threads ? job->threads : mr_processors(), .set = &made->set};
    const size_t steps = job->steps ? job->steps : mr_d4rl_usual_steps(job->type, job->kind);
    *made = (mr_d4rl_made){0};
    int status = mr_env_model_load(job->type, job->assets, &m.model, err);
    if (!status) status = mr_d4rl_new(&made->set, steps, job->type->observed, job->type->acted, err);
    if (!status) status = fill(&m, made, err);
    if (!status) snprintf(made->set.made_by, sizeof made->set.made_by, "D4RL-like, by minrnn %s", mr_version());
    mr_pool_free(m.pool);
    mr_env_model_free(m.model);
    if (status) mr_d4rl_free(&made->set);
    return status;
}
