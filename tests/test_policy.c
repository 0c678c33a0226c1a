/* The policies that make data: what they compute, files that are wrong, and episodes recorded from them. */
#include "control/hdf5_file.h"
#include "control/policy.h"
#include "control/record.h"
#include "core/mem.h"
#include "scratch.h"
#include "skip_because.h"

#include <math.h>

enum { LANES = MR_POLICY_LANES, OBSERVED = MR_ENV_MOST_OBSERVED, ACTED = MR_ENV_MOST_ACTED, WIDEST = 256 };

static const char *const algorithms[] = {"tqc", "sac", "trpo", "ppo", "ars", "a2c", NULL};

static char policies[MR_TEXT_MAX];

static void need_policies(void)
{
    const char *data = getenv("MINRNN_DATA");
    if (!mr_hdf5_version()) skip_because("policies: built without HDF5");
    snprintf(policies, sizeof policies, "%s/rl/policies.h5", data ? data : "");
    if (!data || access(policies, R_OK)) skip_because("policies: no policies.h5 in MINRNN_DATA/rl");
}

static mr_policy *open_policy(const mr_env_type *type, const char *algorithm)
{
    mr_error err = {0};
    mr_policy *policy;
    if (mr_policy_load(policies, type, algorithm, &policy, &err)) fail_msg("%s", err.text);
    return policy;
}

/* Observations that differ in every lane. */
static void look(double observations[LANES][OBSERVED])
{
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < OBSERVED; k++) observations[i][k] = 1.5 * sin(1 + i * 17 + k * 3);
}

/* ---- the same in plain doubles */

static float *array_of(mr_hdf5 *h, const char *group, const char *rest, size_t *rows, size_t *columns)
{
    char name[128];
    float *numbers = NULL;
    snprintf(name, sizeof name, "%s/%s", group, rest);
    if (mr_hdf5_has(h, name)) assert_int_equal(mr_hdf5_read_floats(h, name, &numbers, rows, columns, NULL), 0);
    return numbers;
}

static void product(mr_hdf5 *h, const char *group, const char *weight, const char *bias, const double *x, double *y)
{
    size_t rows = 0, columns = 0, one;
    float *w = array_of(h, group, weight, &rows, &columns), *b = array_of(h, group, bias, &rows, &one);
    for (size_t i = 0; i < rows; i++) {
        y[i] = b[i];
        for (size_t k = 0; k < columns; k++) y[i] += (double)w[i * columns + k] * x[k];
    }
    mr_free(w);
    mr_free(b);
}

static void normalise(mr_hdf5 *h, const char *group, const mr_env_type *type, double *x)
{
    double eps, most;
    size_t rows, columns;
    float *mean = array_of(h, group, "obs_mean", &rows, &columns),
          *var = array_of(h, group, "obs_var", &rows, &columns);
    if (!mean) return;
    assert_int_equal(mr_hdf5_attribute(h, group, "obs_eps", &eps, NULL), 0);
    assert_int_equal(mr_hdf5_attribute(h, group, "clip_obs", &most, NULL), 0);
    for (int k = 0; k < type->observed; k++) x[k] = fmax(-most, fmin(most, (x[k] - mean[k]) / sqrt(var[k] + eps)));
    mr_free(mean);
    mr_free(var);
}

/* The deviation of the policy's own noise; hidden: what goes into the last layer. */
static void deviations(mr_hdf5 *h, const char *group, const mr_env_type *type, const double *hidden, double *out)
{
    size_t rows, columns;
    float *fixed = array_of(h, group, "log_std", &rows, &columns), *w;
    for (int k = 0; k < type->acted; k++) out[k] = fixed ? exp(fixed[k]) : 0;
    if ((w = array_of(h, group, "log_std_weight", &rows, &columns))) {
        product(h, group, "log_std_weight", "log_std_bias", hidden, out);
        for (int k = 0; k < type->acted; k++) out[k] = exp(fmax(-20, fmin(2, out[k])));
    }
    mr_free(fixed);
    mr_free(w);
}

static void expected(mr_hdf5 *h, const mr_env_type *type, const char *algorithm, const double *observation,
                     double noise, const float *draws, double *action)
{
    char group[64], name[128], weight[64], bias[64], activation[16];
    double x[WIDEST] = {0}, y[WIDEST] = {0}, deviation[ACTED];
    snprintf(group, sizeof group, "/%s/%s", type->name, algorithm);
    memcpy(x, observation, (size_t)type->observed * sizeof *x);
    normalise(h, group, type, x);
    for (int n = 0;; n++) {
        snprintf(name, sizeof name, "%s/layer%d", group, n);
        if (!mr_hdf5_has(h, name)) break;
        assert_int_equal(mr_hdf5_attribute_text(h, name, "activation", activation, sizeof activation, NULL), 0);
        snprintf(weight, sizeof weight, "layer%d/weight", n);
        snprintf(bias, sizeof bias, "layer%d/bias", n);
        product(h, group, weight, bias, x, y);
        snprintf(name, sizeof name, "%s/layer%d", group, n + 1);
        if (!mr_hdf5_has(h, name)) {
            deviations(h, group, type, x, deviation);
            for (int k = 0; k < type->acted; k++) y[k] += noise * deviation[k] * draws[k];
        }
        for (int k = 0; k < WIDEST; k++)
            x[k] = !strcmp(activation, "relu")   ? fmax(y[k], 0)
                   : !strcmp(activation, "tanh") ? tanh(y[k])
                                                 : fmax(-1, fmin(1, y[k]));
    }
    memcpy(action, x, (size_t)type->acted * sizeof *x);
}

static void check_policy(mr_hdf5 *h, const mr_env_type *type, const char *algorithm, double noise)
{
    mr_policy *policy = open_policy(type, algorithm);
    double observations[LANES][OBSERVED];
    float draws[LANES][ACTED], actions[LANES][ACTED];
    look(observations);
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < ACTED; k++) draws[i][k] = (float)cos(i * 5 + k);
    mr_policy_act(policy, observations, noise, draws, actions);
    for (int i = 0; i < LANES; i++) {
        double wanted[ACTED];
        expected(h, type, algorithm, observations[i], noise, draws[i], wanted);
        for (int k = 0; k < type->acted; k++)
            if (!(fabs(actions[i][k] - wanted[k]) <= 1e-4))
                fail_msg("%s %s lane %d action %d: %g, not %g", type->name, algorithm, i, k, actions[i][k], wanted[k]);
    }
    mr_policy_free(policy);
}

static void policies_act_as_their_files_say(void **state)
{
    mr_hdf5 *h;
    int count = 0;
    (void)state;
    need_policies();
    assert_int_equal(mr_hdf5_open(policies, &h, NULL), 0);
    for (const mr_env_type *type = mr_env_types; type->name; type++)
        for (int i = 0; algorithms[i]; i++) {
            if (!strcmp(type->name, "walker2d") && !strcmp(algorithms[i], "ppo")) continue; /* it reads the time, too */
            check_policy(h, type, algorithms[i], 0);
            check_policy(h, type, algorithms[i], 1);
            check_policy(h, type, algorithms[i], .3);
            count++;
        }
    mr_hdf5_close(h);
    assert_int_equal(count, 17);
}

static void lanes_do_not_depend_on_each_other(void **state)
{
    double observations[LANES][OBSERVED];
    float draws[LANES][ACTED] = {{0}}, actions[LANES][ACTED], alone[LANES][ACTED];
    (void)state;
    need_policies();
    mr_policy *policy = open_policy(mr_env_types, "tqc");
    look(observations);
    mr_policy_act(policy, observations, 0, draws, actions);
    for (int i = 0; i < LANES; i++) {
        double other[LANES][OBSERVED] = {{0}};
        const int place = LANES - 1 - i;
        memcpy(other[place], observations[i], sizeof other[0]);
        mr_policy_act(policy, other, 0, draws, alone);
        assert_memory_equal(alone[place], actions[i], 3 * sizeof(float));
    }
    mr_policy_free(policy);
}

/* ---- files that are wrong */

static void refuses(const char *path, const char *env, const char *algorithm, int status, const char *part)
{
    mr_error err = {0};
    mr_policy *policy = NULL;
    assert_int_equal(mr_policy_load(path, mr_env_type_find(env), algorithm, &policy, &err), status);
    assert_null(policy);
    assert_says(&err, part);
}

/* Puts `to` in every place where the file has `from`. */
static void replace_all(char *data, size_t size, const void *from, const void *to, size_t length)
{
    int found = 0;
    for (size_t i = 0; i + length <= size; i++)
        if (!memcmp(data + i, from, length)) memcpy(data + i, to, length), found++;
    assert_true(found > 0);
}

static void wrong_policies_are_refused(void **state)
{
    char path[MR_TEXT_MAX], *data;
    size_t size, rows, columns;
    float *weight, nan[4] = {NAN, NAN, NAN, NAN};
    mr_hdf5 *h;
    (void)state;
    need_policies();
    refuses("no/such.h5", "hopper", "sac", MR_EIO, "no/such.h5");
    refuses(policies, "hopper", "dqn", MR_EDATA, "no policy /hopper/dqn");
    refuses(policies, "walker2d", "ppo", MR_EDATA, "/walker2d/ppo/obs_mean has 18 numbers, not 17");
    assert_int_equal(mr_file_read(policies, 1 << 24, &data, &size, NULL), 0);
    write_file("short.h5", data, size / 2, path);
    refuses(path, "hopper", "sac", MR_EFORMAT, "short.h5");
    assert_int_equal(mr_hdf5_open(policies, &h, NULL), 0);
    assert_int_equal(mr_hdf5_read_floats(h, "/hopper/ars/layer0/weight", &weight, &rows, &columns, NULL), 0);
    mr_hdf5_close(h);
    replace_all(data, size, weight, nan, sizeof nan);
    write_file("nan.h5", data, size, path);
    refuses(path, "hopper", "ars", MR_EDATA, "/hopper/ars/layer0/weight has a number that is not finite");
    replace_all(data, size, "clip", "clop", 4);
    replace_all(data, size, nan, weight, sizeof nan);
    write_file("clop.h5", data, size, path);
    refuses(path, "hopper", "ars", MR_EFORMAT, "clip_obs");
    mr_free(weight);
    mr_free(data);
}

/* ---- episodes */

static mr_recording *record(const char *env, const char *algorithm, double own, double added, int threads, int count)
{
    const mr_env_type *type = mr_env_type_find(env);
    mr_error err = {0};
    mr_env_model *model;
    if (!mr_mujoco_version()) skip_because("episodes: built without MuJoCo");
    if (mr_env_model_load(type, NULL, &model, &err)) fail_msg("%s", err.text);
    mr_policy *policy = open_policy(type, algorithm);
    mr_pool *pool = mr_pool_new(threads, NULL);
    mr_recording *list = mr_alloc((size_t)count, sizeof *list);
    mr_record_job job = {.model = model,
                         .actor = {policy, own, added},
                         .seed = 5,
                         .first = 10,
                         .count = count,
                         .pool = pool,
                         .threads = threads};
    if (mr_record(&job, list, &err)) fail_msg("%s", err.text);
    mr_pool_free(pool);
    mr_policy_free(policy);
    mr_env_model_free(model);
    return list;
}

static void episodes_are_the_same_on_any_number_of_threads(void **state)
{
    enum { COUNT = 20 };
    (void)state;
    need_policies();
    mr_recording *one = record("hopper", "ppo", 1, .5, 1, COUNT), *three = record("hopper", "ppo", 1, .5, 3, COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(one[i].length, three[i].length);
        assert_int_equal(one[i].terminal, three[i].terminal);
        assert_memory_equal(one[i].observations, three[i].observations, one[i].length * 15 * sizeof(float));
        assert_true(!i || one[i].observations[0] != one[i - 1].observations[0]);
        for (size_t k = 0; k < one[i].length * 3; k++) assert_true(fabsf(one[i].actions[k]) <= 1);
    }
    mr_recordings_free(one, COUNT);
    mr_recordings_free(three, COUNT);
}

static void strong_policies_are_strong_here(void **state)
{
    static const struct {
        const char *env, *algorithm;
        double score;
    } strong[] = {{"hopper", "trpo", 100}, {"halfcheetah", "tqc", 90}, {"walker2d", "sac", 70}};
    enum { COUNT = 4 };
    (void)state;
    need_policies();
    for (int n = 0; n < 3; n++) {
        mr_recording *list = record(strong[n].env, strong[n].algorithm, 0, 0, 1, COUNT);
        double sum = 0;
        for (int i = 0; i < COUNT; i++)
            for (size_t t = 0; t < list[i].length; t++) sum += list[i].rewards[t];
        const double score = mr_env_score(mr_env_type_find(strong[n].env), sum / COUNT);
        print_message("%s %s: score %.1f\n", strong[n].env, strong[n].algorithm, score);
        assert_true(score > strong[n].score);
        mr_recordings_free(list, COUNT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(policies_act_as_their_files_say), cmocka_unit_test(lanes_do_not_depend_on_each_other),
        cmocka_unit_test(wrong_policies_are_refused), cmocka_unit_test(episodes_are_the_same_on_any_number_of_threads),
        cmocka_unit_test(strong_policies_are_strong_here)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
