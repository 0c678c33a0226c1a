/* D4RL-like data: where its episodes end, that its parts are what they are called, and that it can be stopped. */
#include "control/hdf5_file.h"
#include "control/make_d4rl.h"
#include "control/policy.h"
#include "scratch.h"
#include "skip_because.h"

#include <math.h>

static char policies[MR_TEXT_MAX];

static mr_d4rl_job job_of(const char *env, mr_d4rl_kind kind, size_t steps)
{
    const char *data = getenv("MINRNN_DATA");
    if (!mr_hdf5_version() || !mr_mujoco_version()) skip_because("data of control: built without HDF5 or MuJoCo");
    snprintf(policies, sizeof policies, "%s/rl/policies.h5", data ? data : "");
    if (!data || access(policies, R_OK)) skip_because("data of control: no policies.h5 in MINRNN_DATA/rl");
    return (mr_d4rl_job){.type = mr_env_type_find(env), .kind = kind, .policies = policies, .steps = steps, .seed = 3};
}

static mr_d4rl_made make(const char *env, mr_d4rl_kind kind, size_t steps)
{
    mr_d4rl_job job = job_of(env, kind, steps);
    mr_error err = {0};
    mr_d4rl_made made;
    if (mr_d4rl_make(&job, &made, &err)) fail_msg("%s", err.text);
    assert_int_equal(made.set.steps, steps);
    return made;
}

/* HalfCheetah never falls: its episodes have 1,000 steps, unless a part ends. */
static void parts_end_in_a_timeout(void **state)
{
    mr_d4rl_made both = make("halfcheetah", MR_D4RL_EXPERT, 2500), medium = make("halfcheetah", MR_D4RL_MEDIUM, 1250);
    const mr_d4rl *set = &both.set;
    (void)state;
    for (size_t t = 0; t < 2500; t++) {
        assert_int_equal(set->timeouts[t], t == 999 || t == 1249 || t == 2249 || t == 2499);
        assert_int_equal(set->terminals[t], 0);
    }
    assert_int_equal(set->episode_count, 4);
    assert_memory_equal(set->observations, medium.set.observations, sizeof(float) * 17 * 1250);
    assert_memory_equal(set->actions, medium.set.actions, sizeof(float) * 6 * 1250);
    assert_memory_equal(set->rewards, medium.set.rewards, sizeof(float) * 1250);
    assert_true(set->observations[0] != set->observations[(size_t)17 * 1250]); /* other first states */
    assert_int_equal(both.part_count, 2);
    assert_int_equal(medium.part_count, 1);
    assert_string_equal(both.parts[1].name, "expert");
    assert_int_equal(both.parts[1].first, 1250);
    for (int i = 0; i < 2; i++) { /* the episode that was cut does not count */
        assert_int_equal(both.parts[i].episodes, 1);
        assert_true(both.parts[i].mean == set->episodes[2 * i].reward && both.parts[i].deviation == 0);
    }
    assert_true(both.parts[1].mean > 1.5 * both.parts[0].mean);
    assert_int_equal(strncmp(set->made_by, "D4RL-like, by minrnn ", 21), 0);
    mr_d4rl_free(&both.set);
    mr_d4rl_free(&medium.set);
}

static void a_longer_set_begins_with_a_shorter_one(void **state)
{
    mr_d4rl_made shorter = make("hopper", MR_D4RL_MEDIUM, 2000), longer = make("hopper", MR_D4RL_MEDIUM, 6000);
    (void)state;
    assert_memory_equal(shorter.set.observations, longer.set.observations, sizeof(float) * 11 * 2000);
    mr_d4rl_free(&shorter.set);
    mr_d4rl_free(&longer.set);
}

static void falls_are_terminals(void **state)
{
    mr_d4rl_made made = make("hopper", MR_D4RL_MEDIUM, 3000);
    size_t falls = 0;
    (void)state;
    for (size_t i = 0; i < made.set.episode_count; i++) {
        const mr_episode *e = &made.set.episodes[i];
        const size_t last = e->first + e->length - 1;
        assert_int_equal(made.set.timeouts[last], e->length == MR_ENV_STEPS || !made.set.terminals[last]);
        falls += made.set.terminals[last];
        if (i) assert_true(made.set.observations[e->first * 11] > 1.24F); /* it starts upright */
    }
    assert_true(falls > 0);
    mr_d4rl_free(&made.set);
}

/* From what a step observed, its action leads to the next observation and earns its reward. Floats and the unknown
 * place on the track leave small differences. */
static void a_step_leads_to_the_next(void **state)
{
    mr_d4rl_made made = make("hopper", MR_D4RL_MEDIUM, 3000);
    const mr_d4rl *set = &made.set;
    mr_env_model *model;
    mr_env *env;
    int compared = 0;
    (void)state;
    assert_int_equal(mr_env_model_load(mr_env_type_find("hopper"), NULL, &model, NULL), 0);
    assert_int_equal(mr_env_new(model, &env, NULL), 0);
    for (size_t t = 0; t + 1 < set->steps; t++) {
        const float *from = set->observations + t * 11, *to = from + 11;
        double positions[MR_ENV_MOST_JOINTS] = {0}, velocities[MR_ENV_MOST_JOINTS], seen[MR_ENV_MOST_OBSERVED];
        int known = !set->terminals[t] && !set->timeouts[t];
        for (int i = 0; i < 5; i++) positions[i + 1] = (double)from[i];
        for (int i = 0; i < 6; i++) velocities[i] = (double)from[5 + i], known &= fabs(velocities[i]) < 10;
        if (!known) continue;
        mr_env_set_state(env, positions, velocities, seen);
        const mr_env_result r = mr_env_step(env, set->actions + t * 3, seen);
        compared++;
        assert_true(fabs(r.reward - (double)set->rewards[t]) < 1e-3);
        for (int i = 0; i < 11; i++) assert_true(fabs(seen[i] - (double)to[i]) < 1e-2);
    }
    assert_true(compared > 2500);
    mr_env_free(env);
    mr_env_model_free(model);
    mr_d4rl_free(&made.set);
}

/* What was added to the first action of a set, in deviations. */
static void first_noise(uint64_t seed, double noise[6])
{
    mr_d4rl_job job = job_of("halfcheetah", MR_D4RL_MEDIUM, 50);
    mr_d4rl_made made;
    mr_policy *policy;
    double seen[MR_POLICY_LANES][MR_ENV_MOST_OBSERVED] = {{0}};
    float draws[MR_POLICY_LANES][MR_ENV_MOST_ACTED] = {{0}}, actions[MR_POLICY_LANES][MR_ENV_MOST_ACTED];
    job.seed = seed;
    assert_int_equal(mr_d4rl_make(&job, &made, NULL), 0);
    assert_int_equal(mr_policy_load(policies, job.type, "ppo", &policy, NULL), 0);
    for (int i = 0; i < 17; i++) seen[0][i] = (double)made.set.observations[i];
    mr_policy_act(policy, seen, 0, draws, actions);
    for (int i = 0; i < 6; i++) noise[i] = ((double)made.set.actions[i] - (double)actions[0][i]) / .1;
    mr_policy_free(policy);
    mr_d4rl_free(&made.set);
}

static void another_seed_has_other_noise(void **state)
{
    double a[6], b[6];
    int other = 0;
    (void)state;
    first_noise(3, a);
    first_noise(4, b);
    for (int i = 0; i < 6; i++) other += fabs(a[i] - b[i]) > .01;
    assert_true(other >= 3); /* some may have been cut at ±1 */
}

static void replay_becomes_better(void **state)
{
    mr_d4rl_made made = make("halfcheetah", MR_D4RL_REPLAY, 10000);
    (void)state;
    assert_int_equal(made.set.episode_count, 10);
    assert_true(made.set.episodes[0].reward < 500);
    double best = 0; /* now and then one falls onto its back */
    for (int i = 6; i < 10; i++) best = fmax(best, made.set.episodes[i].reward);
    assert_true(best > 4000);
    for (int i = 0; i < 10; i++) /* each starts elsewhere, whoever acts */
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(made.set.observations + (size_t)i * 1000 * 17,
                                    made.set.observations + (size_t)k * 1000 * 17, 17 * sizeof(float));
    mr_d4rl_free(&made.set);
}

static int stop_later(void *arg, size_t done, size_t total)
{
    int *calls = arg;
    assert_true(done <= total && total == 1000000);
    return ++*calls == 3;
}

static void it_can_be_stopped(void **state)
{
    mr_d4rl_job job = job_of("hopper", MR_D4RL_MEDIUM, 0);
    mr_d4rl_made made;
    int calls = 0;
    (void)state;
    job.progress = stop_later;
    job.arg = &calls;
    job.threads = 1;
    assert_int_equal(mr_d4rl_make(&job, &made, NULL), MR_ESTOPPED);
    assert_null(made.set.observations);
    assert_int_equal(calls, 3);
}

static void sets_have_the_sizes_of_d4rl(void **state)
{
    const mr_env_type *hopper = mr_env_type_find("hopper"), *walker = mr_env_type_find("walker2d");
    (void)state;
    assert_int_equal(mr_d4rl_usual_steps(hopper, MR_D4RL_MEDIUM), 1000000);
    assert_int_equal(mr_d4rl_usual_steps(hopper, MR_D4RL_REPLAY), 402000);
    assert_int_equal(mr_d4rl_usual_steps(walker, MR_D4RL_REPLAY), 302000);
    assert_int_equal(mr_d4rl_usual_steps(mr_env_type_find("halfcheetah"), MR_D4RL_REPLAY), 202000);
    assert_int_equal(mr_d4rl_usual_steps(walker, MR_D4RL_EXPERT), 2000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_end_in_a_timeout),
                                       cmocka_unit_test(a_longer_set_begins_with_a_shorter_one),
                                       cmocka_unit_test(falls_are_terminals),
                                       cmocka_unit_test(a_step_leads_to_the_next),
                                       cmocka_unit_test(another_seed_has_other_noise),
                                       cmocka_unit_test(replay_becomes_better),
                                       cmocka_unit_test(it_can_be_stopped),
                                       cmocka_unit_test(sets_have_the_sizes_of_d4rl)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
