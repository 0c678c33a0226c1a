/* The simulations of control: against recorded transitions of Gymnasium, and what their header promises. */
#include "control/env.h"
#include "control/hdf5_file.h"
#include "core/mem.h"
#include "scratch.h"
#include "skip_because.h"

#include <math.h>

enum { MOST_OBSERVED = MR_ENV_MOST_OBSERVED, MOST_JOINTS = MR_ENV_MOST_JOINTS };

static int joints_of(const mr_env_type *type) { return (type->observed + 1) / 2; }

static mr_env_model *open_model(const char *name)
{
    mr_error err = {0};
    mr_env_model *model;
    if (!mr_mujoco_version()) skip_because("simulations: built without MuJoCo");
    int status = mr_env_model_load(mr_env_type_find(name), NULL, &model, &err);
    if (status == MR_ENODATA) skip_because("simulations: %s", err.text);
    if (status) fail_msg("%s: %s", name, err.text);
    return model;
}

static mr_env *open_env(const mr_env_model *model)
{
    mr_error err = {0};
    mr_env *env;
    if (mr_env_new(model, &env, &err)) fail_msg("%s", err.text);
    return env;
}

static void close_all(mr_env_model *model, mr_env *env)
{
    mr_env_free(env);
    mr_env_model_free(model);
}

/* ---- recorded transitions */

typedef struct recorded {
    size_t steps;
    double *observations, *next, *rewards;
    float *actions;
    uint8_t *terminals;
} recorded;

static void open_recorded(const mr_env_type *type, recorded *r)
{
    const char *data = getenv("MINRNN_DATA");
    char path[MR_TEXT_MAX];
    size_t rows, columns;
    mr_hdf5 *h;
    mr_error err = {0};
    if (!mr_hdf5_version()) skip_because("recorded transitions: built without HDF5");
    snprintf(path, sizeof path, "%s/rl/recorded_%s.hdf5", data ? data : "", type->name);
    if (!data || access(path, R_OK))
        skip_because("recorded transitions: no recorded_%s.hdf5 in MINRNN_DATA/rl", type->name);
    assert_int_equal(mr_hdf5_open(path, &h, &err), 0);
    assert_int_equal(mr_hdf5_read_doubles(h, "observations", &r->observations, &r->steps, &columns, &err), 0);
    assert_int_equal(columns, type->observed);
    assert_int_equal(mr_hdf5_read_doubles(h, "next_observations", &r->next, &rows, &columns, &err), 0);
    assert_true(rows == r->steps && columns == (size_t)type->observed);
    assert_int_equal(mr_hdf5_read_floats(h, "actions", &r->actions, &rows, &columns, &err), 0);
    assert_true(rows == r->steps && columns == (size_t)type->acted);
    assert_int_equal(mr_hdf5_read_doubles(h, "rewards", &r->rewards, &rows, &columns, &err), 0);
    assert_int_equal(mr_hdf5_read_flags(h, "terminals", &r->terminals, &rows, &err), 0);
    mr_hdf5_close(h);
}

static void close_recorded(recorded *r)
{
    mr_free(r->observations);
    mr_free(r->next);
    mr_free(r->rewards);
    mr_free(r->actions);
    mr_free(r->terminals);
}

typedef struct agreement {
    int compared, left_out, observations_differ, rewards_differ, terminals_differ;
    double worst;
} agreement;

/* Velocities are observed cut to ±10: a state with one that was cut is not known from its observation. */
static int known(const mr_env_type *type, const double *observation)
{
    if (!strcmp(type->name, "halfcheetah")) return 1;
    for (int i = joints_of(type) - 1; i < type->observed; i++)
        if (!(fabs(observation[i]) < 10)) return 0;
    return 1;
}

/* Puts the simulation into the state of a recorded step. One that is not known is reached by the step before it, which
 * has just been simulated. 0: there is none. */
static int enter(mr_env *env, const mr_env_type *type, const recorded *r, size_t t)
{
    const size_t observed = (size_t)type->observed;
    const double *from = r->observations + t * observed, *velocities = from + joints_of(type) - 1;
    double positions[MOST_JOINTS] = {0}, seen[MOST_OBSERVED];
    if (!known(type, from)) return t && !memcmp(from, r->next + (t - 1) * observed, observed * sizeof *from);
    memcpy(positions + 1, from, (size_t)(joints_of(type) - 1) * sizeof *from);
    mr_env_set_state(env, positions, velocities, seen);
    for (size_t i = 0; i < observed; i++) assert_true(seen[i] == from[i]);
    return 1;
}

static agreement compare(const mr_env_model *model, const recorded *r)
{
    const mr_env_type *type = mr_env_model_type(model);
    const size_t observed = (size_t)type->observed, acted = (size_t)type->acted;
    mr_env *env = open_env(model);
    agreement a = {0};
    for (size_t t = 0; t < r->steps; t++) {
        const double *to = r->next + t * observed;
        double seen[MOST_OBSERVED];
        int far = 0;
        if (!enter(env, type, r, t)) {
            a.left_out++;
            continue;
        }
        mr_env_result result = mr_env_step(env, r->actions + t * acted, seen);
        for (size_t i = 0; i < observed; i++)
            far |= !(fabs(seen[i] - to[i]) <= 1e-9), a.worst = fmax(a.worst, fabs(seen[i] - to[i]));
        a.compared++;
        a.observations_differ += far;
        a.rewards_differ += !(fabs(result.reward - r->rewards[t]) <= 1e-6);
        a.terminals_differ += result.terminal != r->terminals[t];
    }
    mr_env_free(env);
    return a;
}

static void each_recorded_step_agrees(void **state)
{
    (void)state;
    for (const mr_env_type *type = mr_env_types; type->name; type++) {
        recorded r = {0};
        mr_env_model *model = open_model(type->name);
        open_recorded(type, &r);
        agreement a = compare(model, &r);
        print_message("%s: %d steps compared, %d left out (a velocity beyond ±10), worst %g\n", type->title, a.compared,
                      a.left_out, a.worst);
        assert_int_equal(a.compared + a.left_out, 2000);
        assert_int_equal(a.left_out, 0);
        assert_int_equal(a.observations_differ, 0);
        assert_int_equal(a.rewards_differ, 0);
        assert_int_equal(a.terminals_differ, 0);
        close_recorded(&r);
        mr_env_model_free(model);
    }
}

/* A copy of the model's file with one piece of its text replaced. */
static void change_model(const mr_env_type *type, const char *from, const char *to)
{
    const char *data = getenv("MINRNN_DATA");
    char path[MR_TEXT_MAX], copy[MR_TEXT_MAX], *text, *at;
    size_t size;
    if (!data) skip_because("a wrong model: MINRNN_DATA is not set");
    snprintf(path, sizeof path, "%s/rl/%s", data, type->file);
    if (mr_file_read(path, 1 << 20, &text, &size, NULL))
        skip_because("a wrong model: no %s in MINRNN_DATA/rl", type->file);
    at = strstr(text, from);
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    write_file(type->file, text, size, copy);
    mr_free(text);
}

static void one_wrong_number_in_the_physics_is_noticed(void **state)
{
    static const struct {
        const char *name, *from, *to;
    } wrong[] = {{"hopper", "gear=\"200.0\"", "gear=\"201.0\""},
                 {"hopper", "friction=\"2.0\"", "friction=\"1.9\""},
                 {"halfcheetah", "friction=\".4", "friction=\".5"},
                 {"walker2d", "damping=\".1\"", "damping=\".2\""}};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const mr_env_type *type = mr_env_type_find(wrong[i].name);
        recorded r = {0};
        mr_error err = {0};
        mr_env_model *model = open_model(type->name), *changed;
        open_recorded(type, &r);
        change_model(type, wrong[i].from, wrong[i].to);
        if (mr_env_model_load(type, folder, &changed, &err)) fail_msg("%s", err.text);
        agreement a = compare(changed, &r);
        print_message("%s with %s: %d of %d steps differ\n", type->title, wrong[i].to, a.observations_differ,
                      a.compared);
        assert_true(a.observations_differ > a.compared / 10);
        assert_string_not_equal(mr_env_model_identity(model), mr_env_model_identity(changed));
        close_recorded(&r);
        mr_env_model_free(changed);
        mr_env_model_free(model);
    }
}

/* ---- episodes */

/* Some steps with actions that depend on the step alone; returns a sum that changes with any bit of them. */
static double play(mr_env *env, const mr_env_type *type, uint64_t seed, uint64_t episode)
{
    double seen[MOST_OBSERVED], sum = 0;
    mr_env_reset(env, seed, episode, seen);
    for (int t = 0; t < 50; t++) {
        float action[MR_ENV_MOST_ACTED];
        for (int i = 0; i < type->acted; i++) action[i] = (float)sin(t * (i + 1));
        mr_env_result result = mr_env_step(env, action, seen);
        sum = sum * .99 + result.reward;
        for (int i = 0; i < type->observed; i++) sum = sum * .99 + seen[i];
    }
    assert_true(isfinite(sum));
    return sum;
}

static void an_episode_depends_on_its_seed_and_number_alone(void **state)
{
    (void)state;
    for (const mr_env_type *type = mr_env_types; type->name; type++) {
        mr_env_model *model = open_model(type->name);
        mr_env *a = open_env(model), *b = open_env(model);
        const double first = play(a, type, 1, 7);
        assert_true(play(a, type, 1, 8) != first);
        assert_true(play(b, type, 2, 7) != first);
        assert_true(play(a, type, 1, 7 + (1ULL << 32)) != first);
        assert_true(play(b, type, 1, 7) == first);
        assert_true(play(a, type, 1, 7) == first);
        mr_env_free(b);
        close_all(model, a);
    }
}

static void first_states_are_spread_as_they_should(void **state)
{
    (void)state;
    for (const mr_env_type *type = mr_env_types; type->name; type++) {
        enum { EPISODES = 500 };
        mr_env_model *model = open_model(type->name);
        mr_env *env = open_env(model);
        const int cheetah = !strcmp(type->name, "halfcheetah"), positions = joints_of(type) - 1;
        const double spread = cheetah ? .1 : 5e-3;
        double widest = 0, lowest = 0, highest = 0, squares = 0, seen[MOST_OBSERVED];
        for (int e = 0; e < EPISODES; e++) {
            mr_env_reset(env, 3, (uint64_t)e, seen);
            if (!cheetah) seen[0] -= 1.25; /* the height of the XML */
            for (int i = 0; i < positions; i++)
                lowest = fmin(lowest, seen[i]), highest = fmax(highest, seen[i]), widest = fmax(-lowest, highest);
            for (int i = positions; i < type->observed; i++) {
                squares += seen[i] * seen[i];
                if (!cheetah) assert_true(fabs(seen[i]) <= spread);
            }
        }
        const double deviation = sqrt(squares / EPISODES / (positions + 1)), uniform = spread / sqrt(3);
        assert_true(widest <= spread + 1e-12 && fmin(-lowest, highest) > .99 * spread);
        assert_true(fabs(deviation / (cheetah ? spread : uniform) - 1) < .05);
        close_all(model, env);
    }
}

static int falls(const char *name, int number, double position, double velocity)
{
    mr_env_model *model = open_model(name);
    mr_env *env = open_env(model);
    double positions[MOST_JOINTS] = {0}, velocities[MOST_JOINTS] = {0}, seen[MOST_OBSERVED];
    const float action[MR_ENV_MOST_ACTED] = {0};
    positions[1] = strcmp(name, "halfcheetah") ? 1.25 : 0;
    if (number == 1 && !strcmp(name, "hopper")) positions[3] = -1.5, positions[4] = -2.5; /* the leg off the floor */
    if (velocity) velocities[number] = velocity;
    else positions[number] = position;
    mr_env_set_state(env, positions, velocities, seen);
    mr_env_result result = mr_env_step(env, action, seen);
    assert_true(isfinite(result.reward));
    if (!velocity && strcmp(name, "halfcheetah")) assert_true(result.reward > -5); /* the 1 is also paid on a fall */
    close_all(model, env);
    return result.terminal;
}

static void they_fall_where_gymnasium_says(void **state)
{
    (void)state;
    assert_false(falls("hopper", 1, 1.25, 0));
    assert_true(falls("hopper", 1, .69, 0));
    assert_false(falls("hopper", 1, .72, 0));
    assert_true(falls("hopper", 2, .21, 0));
    assert_true(falls("hopper", 2, -.21, 0));
    assert_false(falls("hopper", 2, .15, 0));
    assert_true(falls("hopper", 5, 0, 200));  /* a state beyond ±100 … */
    assert_false(falls("hopper", 5, 0, 110)); /* … after the step */
    assert_false(falls("walker2d", 1, 1.25, 0));
    assert_true(falls("walker2d", 1, .75, 0));
    assert_true(falls("walker2d", 1, 2.1, 0));
    assert_false(falls("walker2d", 1, 1.95, 0));
    assert_true(falls("walker2d", 2, 1.05, 0));
    assert_false(falls("walker2d", 2, -.9, 0));
    assert_false(falls("halfcheetah", 2, 3.1, 0));
    assert_false(falls("halfcheetah", 1, 5, 0));
}

static void numbers_that_explode_end_the_episode(void **state)
{
    (void)state;
    for (const mr_env_type *type = mr_env_types; type->name; type++) {
        mr_env_model *model = open_model(type->name);
        mr_env *env = open_env(model);
        double positions[MOST_JOINTS] = {0}, velocities[MOST_JOINTS] = {0, 0, 1e14}, seen[MOST_OBSERVED];
        float action[MR_ENV_MOST_ACTED] = {NAN, 0, 0, 0, 0, 0};
        char here[MR_TEXT_MAX];
        assert_non_null(getcwd(here, sizeof here));
        assert_int_equal(chdir(folder), 0); /* where MuJoCo would write its log */
        const double calm = play(env, type, 1, 1);
        mr_env_set_state(env, positions, velocities, seen);
        mr_env_result result = mr_env_step(env, (float[MR_ENV_MOST_ACTED]){0}, seen);
        assert_true(result.terminal && result.reward == 0);
        mr_env_reset(env, 1, 1, seen);
        result = mr_env_step(env, action, seen);
        assert_true(result.terminal && result.reward == 0);
        for (int i = 0; i < type->observed; i++) assert_true(isfinite(seen[i]));
        assert_true(play(env, type, 1, 1) == calm);
        assert_int_not_equal(access("MUJOCO_LOG.TXT", F_OK), 0);
        assert_int_equal(chdir(here), 0);
        close_all(model, env);
    }
}

/* ---- drawing */

static void parts_hang_together(void **state)
{
    static const struct {
        const char *name;
        int parts;
    } bodies[] = {{"hopper", 4}, {"walker2d", 7}, {"halfcheetah", 8}};
    (void)state;
    for (size_t b = 0; b < 3; b++) {
        mr_env_model *model = open_model(bodies[b].name);
        mr_env *env = open_env(model);
        double parts[16][4], positions[MOST_JOINTS] = {5, 1.25}, velocities[MOST_JOINTS] = {0}, seen[MOST_OBSERVED];
        mr_env_set_state(env, positions, velocities, seen);
        assert_int_equal(mr_env_parts(env, parts, 16), bodies[b].parts);
        for (int i = 0; i < bodies[b].parts; i++)
            for (int k = 0; k < 4; k++)
                assert_true(k % 2 ? parts[i][k] > -.1 && parts[i][k] < 2.5 : fabs(parts[i][k] - 5) < 1);
        assert_int_equal(mr_env_parts(env, parts, 2), 2);
        play(env, mr_env_model_type(model), 1, 1);
        const double drawn = play(env, mr_env_model_type(model), 1, 1);
        mr_env_parts(env, parts, 16);
        assert_true(play(env, mr_env_model_type(model), 1, 1) == drawn);
        close_all(model, env);
    }
}

/* ---- files */

static void refuses(const char *name, int status, const char *part)
{
    mr_error err = {0};
    mr_env_model *model = NULL;
    assert_int_equal(mr_env_model_load(mr_env_type_find(name), folder, &model, &err), status);
    assert_null(model);
    assert_says(&err, part);
}

static void bad_model_files_are_refused(void **state)
{
    char path[MR_TEXT_MAX];
    (void)state;
    if (!mr_mujoco_version()) {
        refuses("hopper", MR_ECONFIG, "built without MuJoCo");
        return;
    }
    in_folder("hopper.xml", path);
    remove(path);
    refuses("hopper", MR_ENODATA, "hopper.xml");
    write_file("hopper.xml", "", 0, path);
    refuses("hopper", MR_EFORMAT, "hopper.xml");
    write_file("hopper.xml", "<mujoco><body></mujoco>", 23, path);
    refuses("hopper", MR_EFORMAT, "hopper.xml: XML");
    write_file("hopper.xml", "<mujoco/>", 9, path);
    refuses("hopper", MR_EDATA, "not the model of Hopper");
    mr_env_model_free(open_model("walker2d"));
    change_model(mr_env_type_find("walker2d"), "<mujoco", "<mujoco");
    char from[MR_TEXT_MAX];
    in_folder("walker2d.xml", from);
    assert_int_equal(rename(from, path), 0);
    refuses("hopper", MR_EDATA, "9 positions, 9 velocities and 6 motors instead of 6, 6 and 3");
}

static void the_files_of_an_installed_gymnasium_are_found(void **state)
{
    const char *data = getenv("MINRNN_DATA");
    char kept[MR_TEXT_MAX], path[MR_TEXT_MAX];
    mr_error err = {0};
    mr_env_model *model = open_model("hopper");
    (void)state;
    if (!data) skip_because("a gymnasium: MINRNN_DATA is not set");
    snprintf(kept, sizeof kept, "%s", data);
    change_model(mr_env_type_find("hopper"), "<mujoco", "<mujoco");
    in_folder("env/lib/python3.99/site-packages/gymnasium/envs/mujoco/assets", path);
    assert_int_equal(mr_make_directory(path, &err), 0);
    in_folder("hopper.xml", path);
    char to[MR_TEXT_MAX];
    in_folder("env/lib/python3.99/site-packages/gymnasium/envs/mujoco/assets/hopper.xml", to);
    assert_int_equal(rename(path, to), 0);
    in_folder("env", path);
    setenv("VIRTUAL_ENV", path, 1);
    setenv("MINRNN_DATA", folder, 1);
    mr_env_model *found;
    assert_int_equal(mr_env_model_load(mr_env_type_find("hopper"), NULL, &found, &err), 0);
    assert_string_equal(mr_env_model_identity(model), mr_env_model_identity(found));
    setenv("MINRNN_DATA", kept, 1);
    unsetenv("VIRTUAL_ENV");
    mr_env_model_free(found);
    mr_env_model_free(model);
}

static void scores_are_d4rls(void **state)
{
    (void)state;
    for (const mr_env_type *type = mr_env_types; type->name; type++) {
        assert_true(fabs(mr_env_score(type, type->random)) < 1e-12);
        assert_true(fabs(mr_env_score(type, type->expert) - 100) < 1e-12);
        assert_ptr_equal(mr_env_type_find(type->name), type);
    }
    assert_null(mr_env_type_find("ant"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_recorded_step_agrees),
                                       cmocka_unit_test(one_wrong_number_in_the_physics_is_noticed),
                                       cmocka_unit_test(an_episode_depends_on_its_seed_and_number_alone),
                                       cmocka_unit_test(first_states_are_spread_as_they_should),
                                       cmocka_unit_test(they_fall_where_gymnasium_says),
                                       cmocka_unit_test(numbers_that_explode_end_the_episode),
                                       cmocka_unit_test(parts_hang_together),
                                       cmocka_unit_test(bad_model_files_are_refused),
                                       cmocka_unit_test(the_files_of_an_installed_gymnasium_are_found),
                                       cmocka_unit_test(scores_are_d4rls)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
