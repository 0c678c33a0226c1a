/* Control: what a policy reads and is asked for, and that it acts as it would predict. */
#include "task_support.h"

#include "control/d4rl.h"
#include "control/hdf5_file.h"
#include "control/rollout.h"
#include "skip_because.h"

#include <math.h>
#include <sys/resource.h>

enum { EPISODES = 120, CONTEXT = 5, OBSERVED = 11, ACTED = 3, ROWS = 64 };

/* Episode i has 1 + i % 9 steps. Step s of the set has the reward s % 7 − 2, observations s + k / 100 and actions that
 * say s and k; numbers of which floats have all digits. */
static float seen_at(size_t step, int k) { return (float)step + (float)k / 64; }
static float done_at(size_t step, int k) { return (float)((int)((step * 5 + (size_t)k) % 64) - 32) / 32; }
static float reward_at(size_t step) { return (float)(step % 7) - 2; }

static size_t first_of(size_t episode)
{
    size_t first = 0;
    for (size_t i = 0; i < episode; i++) first += 1 + i % 9;
    return first;
}

static size_t episode_at(size_t step)
{
    size_t i = 0;
    while (first_of(i + 1) <= step) i++;
    return i;
}

static double wanted_at(size_t step)
{
    double sum = 0;
    for (size_t s = step; s < first_of(episode_at(step) + 1); s++) sum += reward_at(s);
    return sum;
}

static mr_task *make_task(const char *timestep, int batch)
{
    mr_d4rl set;
    mr_error err = {0};
    char path[MR_TEXT_MAX];
    in_folder("set.hdf5", path);
    if (mr_d4rl_new(&set, first_of(EPISODES), OBSERVED, ACTED, &err)) fail_msg("%s", err.text);
    for (size_t s = 0; s < set.steps; s++) {
        for (int k = 0; k < OBSERVED; k++) set.observations[s * OBSERVED + (size_t)k] = seen_at(s, k);
        for (int k = 0; k < ACTED; k++) set.actions[s * ACTED + (size_t)k] = done_at(s, k);
        set.rewards[s] = reward_at(s);
        set.terminals[s] = s + 1 == first_of(episode_at(s) + 1);
    }
    if (mr_d4rl_write(&set, path, &err)) fail_msg("%s", err.text);
    mr_d4rl_free(&set);
    const setting settings[] = {{"data", path}, {"timestep", timestep}, {NULL, NULL}};
    return open_task("control", batch, CONTEXT, settings);
}

static void has_hdf5(void)
{
    if (!mr_hdf5_version()) skip_because("built without HDF5");
}

/* ---- batches ---- */

static mr_batch reals_batch(const mr_task *task)
{
    mr_batch batch;
    assert_int_equal(mr_batch_new(&batch, &task->interface, task->batch, task->max_T), 0);
    memset(batch.values, 0x5A, (size_t)task->batch * (size_t)task->max_T * (size_t)task->interface.inputs * 4);
    memset(batch.mask, 0x5A, (size_t)task->batch * (size_t)task->max_T);
    return batch;
}

/* Checks token `t` of a row that starts with step `from`. */
static void check_token(const mr_task *task, const mr_batch *batch, int row, int t, size_t from)
{
    const int inputs = task->interface.inputs, kind = t % 3;
    const size_t step = from + (size_t)t / 3, at = (size_t)row * (size_t)batch->T + (size_t)t;
    const float *v = batch->values + at * (size_t)inputs;
    const float *flags = v + 1 + OBSERVED + ACTED;
    for (int k = 0; k < 3; k++) assert_true(flags[k] == (k == kind ? 1.0F : 0.0F));
    assert_true(v[0] == (kind == 0 ? (float)wanted_at(step) : 0.0F));
    for (int k = 0; k < OBSERVED; k++)
        assert_true(v[1 + k] == (kind == 1 ? seen_at(step, k) : (float)task->input_mean[1 + k]));
    for (int k = 0; k < ACTED; k++) assert_true(v[1 + OBSERVED + k] == (kind == 2 ? done_at(step, k) : 0.0F));
    assert_int_equal(batch->mask[at], kind == 1);
    for (int k = 0; kind == 1 && k < ACTED; k++)
        assert_true(batch->target_values[at * ACTED + (size_t)k] == done_at(step, k));
    if (inputs > 1 + OBSERVED + ACTED + 3) /* the time counts from the start of the episode, not of the window */
        assert_true(flags[3] == (float)((double)(step - first_of(episode_at(step))) / 1000));
}

/* The step that a row starts with, told by its first observation; checks the whole row. */
static size_t check_row(const mr_task *task, const mr_batch *batch, int row)
{
    const size_t inputs = (size_t)task->interface.inputs, at = (size_t)row * (size_t)batch->T;
    const size_t from = (size_t)batch->values[(at + 1) * inputs + 1];
    const size_t left = first_of(episode_at(from) + 1) - from, steps = left < CONTEXT ? left : CONTEXT;
    assert_int_equal(batch->length[row], 3 * steps);
    for (int t = 0; t < batch->length[row]; t++) check_token(task, batch, row, t, from);
    for (int t = batch->length[row]; t < batch->T; t++) assert_int_equal(batch->mask[at + (size_t)t], 0);
    return from;
}

static void windows_are_steps_of_one_episode(void **state)
{
    (void)state;
    has_hdf5();
    mr_task *task = make_task("no", ROWS);
    mr_batch batch = reals_batch(task);
    int *counts = mr_alloc(first_of(EPISODES), sizeof *counts), trained = 0;
    assert_int_equal(task->interface.inputs, 1 + OBSERVED + ACTED + 3);
    assert_int_equal(task->max_T, 3 * CONTEXT);
    for (uint32_t step = 1; step <= 400; step++) {
        int64_t counted = 0;
        task->type->train_batch(task, step, 0, &batch);
        for (int row = 0; row < batch.B; row++) {
            counts[check_row(task, &batch, row)]++;
            counted += batch.length[row] / 3;
        }
        assert_int_equal(batch.counted, counted);
    }
    double chi = 0;
    for (size_t s = 0; s < first_of(EPISODES); s++) trained += episode_at(s) % 50 != 49;
    for (size_t s = 0; s < first_of(EPISODES); s++) {
        const double expected = 400.0 * ROWS / trained;
        if (episode_at(s) % 50 == 49) assert_int_equal(counts[s], 0); /* held out */
        else chi += (counts[s] - expected) * (counts[s] - expected) / expected;
    }
    assert_true(fabs(chi - trained) < 5 * sqrt(2.0 * trained));
    mr_free(counts);
    mr_batch_free(&batch);
    mr_task_free(task);
}

static void validation_is_the_episodes_held_out(void **state)
{
    (void)state;
    has_hdf5();
    mr_task *task = make_task("no", 2);
    mr_batch batch = reals_batch(task);
    size_t expected = first_of(49), rows = 0;
    for (int i = 0; i < task->eval_batches; i++) {
        task->type->eval_batch(task, i, &batch);
        for (int row = 0; row < batch.B; row++, rows++) {
            const size_t from = check_row(task, &batch, row);
            assert_int_equal(from, expected);
            expected = from + CONTEXT < first_of(50) || from >= first_of(99) ? from + CONTEXT : first_of(99);
        }
    }
    assert_int_equal(rows, (49 % 9 + 1 + CONTEXT - 1) / CONTEXT + (99 % 9 + 1 + CONTEXT - 1) / CONTEXT);
    mr_batch_free(&batch);
    mr_task_free(task);
}

static void a_batch_is_a_function_of_its_place(void **state)
{
    (void)state;
    has_hdf5();
    mr_task *task = make_task("yes", ROWS);
    mr_batch a = reals_batch(task), b = reals_batch(task);
    const size_t numbers = (size_t)ROWS * (size_t)task->max_T * (size_t)task->interface.inputs;
    assert_int_equal(task->interface.inputs, 1 + OBSERVED + ACTED + 3 + MR_TIME_NUMBERS);
    task->type->train_batch(task, 7, 1, &a);
    for (int row = 0; row < ROWS; row++) check_row(task, &a, row);
    task->type->train_batch(task, 8, 1, &b);
    assert_memory_not_equal(a.values, b.values, numbers * sizeof(float));
    task->type->train_batch(task, 7, 0, &b);
    assert_memory_not_equal(a.values, b.values, numbers * sizeof(float));
    task->type->train_batch(task, 7, 1, &b);
    assert_memory_equal(a.values, b.values, numbers * sizeof(float));
    assert_memory_equal(a.length, b.length, ROWS * sizeof *a.length);
    mr_batch_free(&a);
    mr_batch_free(&b);
    mr_task_free(task);
}

static void observations_are_scaled_by_training_steps(void **state)
{
    (void)state;
    has_hdf5();
    mr_task *task = make_task("no", ROWS);
    double sum = 0, squares = 0, n = 0;
    for (size_t s = 0; s < first_of(EPISODES); s++)
        if (episode_at(s) % 50 != 49) n++, sum += seen_at(s, 4), squares += seen_at(s, 4) * seen_at(s, 4);
    const double mean = sum / n, deviation = sqrt(squares / n - mean * mean);
    assert_true(fabs(task->input_mean[5] - mean) < 1e-6 * mean);
    assert_true(fabs(task->input_scale[5] - deviation) < 1e-5 * deviation);
    assert_true(task->input_scale[0] == 1000 && task->input_mean[0] == 0);
    for (int k = 1 + OBSERVED; k < task->interface.inputs; k++)
        assert_true(task->input_scale[k] == 1 && task->input_mean[k] == 0);
    mr_task_free(task);
}

/* There is nothing else to train on, or to score. */
static void one_episode_is_trained_on_and_scored(void **state)
{
    mr_d4rl set;
    mr_batch batch;
    char path[MR_TEXT_MAX];
    (void)state;
    has_hdf5();
    in_folder("one.hdf5", path);
    assert_int_equal(mr_d4rl_new(&set, 4, OBSERVED, ACTED, NULL), 0);
    for (size_t s = 0; s < 4; s++) set.observations[s * OBSERVED] = (float)s;
    set.terminals[3] = 1;
    assert_int_equal(mr_d4rl_write(&set, path, NULL), 0);
    mr_d4rl_free(&set);
    const setting settings[] = {{"data", path}, {NULL, NULL}};
    mr_task *task = open_task("control", 2, CONTEXT, settings);
    batch = reals_batch(task);
    assert_int_equal(task->eval_batches, 1);
    task->type->eval_batch(task, 0, &batch);
    assert_int_equal(batch.counted, 4);
    task->type->train_batch(task, 1, 0, &batch);
    assert_true(batch.counted >= 2);
    assert_true(fabs(task->input_mean[1] - 1.5) < 1e-6);
    mr_batch_free(&batch);
    mr_task_free(task);
}

static void returns_that_no_float_holds_are_refused(void **state)
{
    mr_d4rl set;
    char path[MR_TEXT_MAX];
    (void)state;
    has_hdf5();
    in_folder("huge.hdf5", path);
    assert_int_equal(mr_d4rl_new(&set, 4, OBSERVED, ACTED, NULL), 0);
    set.terminals[1] = 1;
    set.rewards[2] = set.rewards[3] = 3e38F;
    assert_int_equal(mr_d4rl_write(&set, path, NULL), 0);
    mr_d4rl_free(&set);
    const setting settings[] = {{"data", path}, {NULL, NULL}};
    refused(new_task("control", 2, CONTEXT, settings), MR_EDATA, "huge.hdf5: the rewards of episode 1 add up to more");
}

/* ---- acting ---- */

static mr_net *new_policy(mr_context *ctx, const char *mixer, const char *inputs, const char *outputs, const char *seed)
{
    static const double mean[MR_TOKEN_MOST] = {0, 1.2, 0.1};
    double scale[MR_TOKEN_MOST];
    const char *settings[] = {"mixer",  mixer,  "dim",  "16",    "layers",  "2",     "input", "reals",
                              "inputs", inputs, "head", "token", "outputs", outputs, "loss",  "mse",
                              "output", "tanh", "seed", seed,    "horizon", "60",    NULL};
    mr_net *net;
    mr_error err = {0};
    for (int i = 0; i < MR_TOKEN_MOST; i++) scale[i] = i ? 1 : 5; /* so that the return decides what it does */
    if (mr_net_create(ctx, settings, &net, &err)) fail_msg("%s", err.text);
    if (mr_net_set_scaler(net, mean, scale, NULL, NULL, &err)) fail_msg("%s", err.text);
    return net;
}

/* The action after so many tokens, computed over all of them at once. */
static void predict(mr_net *net, const float *rows, int tokens, float *action)
{
    mr_batch batch = MR_BATCH;
    mr_error err = {0};
    float *scores = mr_alloc((size_t)tokens * ACTED, sizeof *scores);
    batch.B = 1, batch.T = tokens, batch.values = (float *)rows;
    if (mr_net_forward(net, &batch, scores, (size_t)tokens * ACTED, &err)) fail_msg("%s", err.text);
    memcpy(action, scores + (size_t)(tokens - 1) * ACTED, ACTED * sizeof *action);
    mr_free(scores);
}

/* One episode without streams: every action from the whole past. */
static int act_from_the_past(mr_net *net, mr_env *env, int number, double wanted, double *earned)
{
    mr_tokens tokens;
    assert_int_equal(mr_tokens_of_net(mr_env_type_find("hopper"), net, &tokens, NULL), 0);
    assert_true(tokens.blank[1] == 1.2F);
    float *rows = mr_alloc((size_t)3 * MR_ENV_STEPS * MR_TOKEN_MOST, sizeof *rows), observation[OBSERVED],
          action[ACTED];
    double seen[OBSERVED];
    const size_t inputs = (size_t)mr_tokens_inputs(&tokens);
    int step = 0;
    *earned = 0;
    mr_env_reset(env, 5, (uint64_t)number, seen);
    for (mr_env_result r = {0}; step < MR_ENV_STEPS && !r.terminal; step++) {
        float *row = rows + (size_t)step * 3 * inputs, ask = (float)wanted;
        for (int k = 0; k < OBSERVED; k++) observation[k] = (float)seen[k];
        mr_token_put(&tokens, MR_TOKEN_RETURN, &ask, step, row);
        mr_token_put(&tokens, MR_TOKEN_OBSERVATION, observation, step, row + inputs);
        predict(net, rows, 3 * step + 2, action);
        mr_token_put(&tokens, MR_TOKEN_ACTION, action, step, row + 2 * inputs);
        r = mr_env_step(env, action, seen);
        wanted -= r.reward, *earned += r.reward;
    }
    mr_free(rows);
    return step;
}

static mr_env_model *model;
static mr_context *ctx;

static int open_simulation(void **state)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_error err = {0};
    (void)state;
    model = NULL;
    options.device = "cpu";
    assert_int_equal(mr_context_new(&options, &ctx, &err), 0);
    return 0;
}

static int close_simulation(void **state)
{
    (void)state;
    mr_context_free(ctx);
    mr_env_model_free(model);
    return 0;
}

static void needs_env(const char *name)
{
    mr_error err = {0};
    if (!mr_mujoco_version()) skip_because("built without MuJoCo");
    if (mr_env_model_load(mr_env_type_find(name), NULL, &model, &err)) skip_because("%s", err.text);
}

static mr_rollout roll_out(mr_net *net, const mr_rollout_options *options)
{
    mr_rollout r;
    mr_error err = {0};
    if (mr_rollout_run(net, model, options, &r, &err)) fail_msg("%s", err.text);
    return r;
}

/* Is an episode of a rollout what comes out when every action is computed from the whole past? */
static void check_episode(mr_net *net, const mr_rollout *r, int number)
{
    mr_env *env;
    double earned;
    assert_int_equal(mr_env_new(model, &env, NULL), 0);
    assert_int_equal(act_from_the_past(net, env, number, 20, &earned), r->lengths[number]);
    assert_true(r->lengths[number] > 5 && fabs(earned - r->rewards[number]) < 1e-4 * fabs(earned));
    mr_env_free(env);
}

static void acting_is_predicting(void **state)
{
    static const char *const policies[][2] = {
        {"mingru", "18"}, {"minlstm", "18"}, {"mamba", "18"}, {"attention", "18"}, {"mingru", "27"}};
    (void)state;
    needs_env("hopper");
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        mr_net *net = new_policy(ctx, policies[p][0], policies[p][1], "3", "3");
        mr_rollout r = roll_out(net, &(mr_rollout_options){.episodes = 3, .seed = 5, .target = 20, .threads = 2});
        double squares = 0;
        for (int i = 0; i < 3; i++) check_episode(net, &r, i);
        for (int i = 0; i < 3; i++) squares += (r.rewards[i] - r.mean) * (r.rewards[i] - r.mean);
        assert_true(fabs(r.mean - (r.rewards[0] + r.rewards[1] + r.rewards[2]) / 3) < 1e-9);
        assert_true(squares > 0 && fabs(r.std - sqrt(squares / 2)) < 1e-9);
        assert_int_equal(r.steps, r.lengths[0] + r.lengths[1] + r.lengths[2]);
        mr_rollout_free(&r);
        mr_net_free(net);
    }
}

typedef struct watched {
    int filmed, ticks, done;
} watched;

static void see_film(void *user, const mr_env *env, int step)
{
    watched *w = user;
    (void)env;
    assert_int_equal(step, w->filmed++);
}

static void see_tick(void *user, int done, int all)
{
    watched *w = user;
    assert_true(done > w->done && done <= all);
    assert_int_equal(all % MR_ENV_STEPS, 0);
    w->done = done;
    w->ticks++;
}

static long peak_megabytes(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
#if defined(__APPLE__)
    return usage.ru_maxrss >> 20;
#else
    return usage.ru_maxrss >> 10;
#endif
}

/* A simulation takes megabytes. */
static void many_episodes_follow_in_waves(void **state)
{
    enum { MANY = 8 * MR_ROLLOUT_AT_ONCE + 2 };
    mr_rollout_options o = {.episodes = 3, .seed = 5, .target = 20};
    watched w = {0};
    (void)state;
    needs_env("hopper");
    mr_net *net = new_policy(ctx, "minlstm", "18", "3", "58"); /* its episodes have 16 to 27 steps */
    mr_rollout few = roll_out(net, &o);
    o.episodes = MR_ROLLOUT_AT_ONCE;
    mr_rollout wave = roll_out(net, &o);
    const long before = peak_megabytes();
    o.episodes = MANY, o.film = see_film, o.film_user = &w, o.tick = see_tick, o.user = &w;
    mr_rollout many = roll_out(net, &o);
    assert_true(peak_megabytes() < 2 * before + 500); /* all at once took eight times as much */
    for (int i = 0; i < 3; i++)                       /* batches of another size may be summed in another order */
        assert_true(fabs(few.rewards[i] - many.rewards[i]) < 1e-2 * fabs(few.rewards[i]));
    assert_memory_equal(wave.rewards, many.rewards, sizeof(double) * MR_ROLLOUT_AT_ONCE);
    assert_int_equal(w.filmed, many.lengths[0]);
    assert_true(w.ticks > 8 * 5 && w.done > 8 * MR_ENV_STEPS);
    int longest = 0; /* others ended before it, so it has moved among the streams */
    for (int i = 0; i < MR_ROLLOUT_AT_ONCE; i++)
        if (wave.lengths[i] > wave.lengths[longest]) longest = i;
    check_episode(net, &many, longest);
    check_episode(net, &many, MR_ROLLOUT_AT_ONCE);
    check_episode(net, &many, MANY - 1);
    mr_rollout_free(&few);
    mr_rollout_free(&wave);
    mr_rollout_free(&many);
    mr_net_free(net);
}

static void the_clock_ends_an_episode(void **state)
{
    (void)state;
    needs_env("halfcheetah"); /* never falls */
    mr_net *net = new_policy(ctx, "mingru", "27", "6", "3");
    mr_rollout r = roll_out(net, &(mr_rollout_options){.episodes = 1, .seed = 5, .target = 20});
    assert_int_equal(r.lengths[0], 1000);
    assert_true(r.std == 0);
    mr_rollout_free(&r);
    mr_net_free(net);
}

static void scores_are_those_of_d4rl(void **state)
{
    (void)state;
    assert_true(fabs(mr_env_score(mr_env_type_find("hopper"), 3234.3) - 100) < 1e-9);
    assert_true(fabs(mr_env_score(mr_env_type_find("halfcheetah"), -280.178953)) < 1e-9);
    assert_true(fabs(mr_env_score(mr_env_type_find("walker2d"), (4592.3 + 1.629008) / 2) - 50) < 1e-9);
    assert_null(mr_env_type_find("ant"));
    assert_true(mr_env_type_find("hopper")->target == 3600); /* Decision Transformer's */
    assert_true(mr_env_type_find("halfcheetah")->target == 12000);
    assert_true(mr_env_type_find("walker2d")->target == 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_are_those_of_d4rl),
        cmocka_unit_test_setup_teardown(windows_are_steps_of_one_episode, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(validation_is_the_episodes_held_out, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_batch_is_a_function_of_its_place, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(observations_are_scaled_by_training_steps, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(one_episode_is_trained_on_and_scored, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(returns_that_no_float_holds_are_refused, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(acting_is_predicting, open_simulation, close_simulation),
        cmocka_unit_test_setup_teardown(many_episodes_follow_in_waves, open_simulation, close_simulation),
        cmocka_unit_test_setup_teardown(the_clock_ends_an_episode, open_simulation, close_simulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
