/* The film strip: which steps it takes, and where it draws the body. */
#include "control/strip.h"
#include "core/mem.h"
#include "scratch.h"
#include "skip_because.h"

#include <math.h>

static mr_strip two_frames(void)
{
    mr_strip s = {.frames = 2, .every = 4, .count = {1, 2}};
    const double first[4] = {5, 0, 5, 1}, second[2][4] = {{7, .5, 8, .5}, {8, .5, 8, 1.5}};
    memcpy(s.parts[0][0], first, sizeof first);
    memcpy(s.parts[1], second, sizeof second);
    return s;
}

/* A metre is 70 pixels, the ground is at 150, and the middle of a body in the middle of its frame of 120. */
static void parts_stand_on_the_ground(void **state)
{
    static const char *const lines[] = {"<line x1=\"60.0\" y1=\"150.0\" x2=\"60.0\" y2=\"80.0\"/>\n",
                                        "<line x1=\"145.0\" y1=\"115.0\" x2=\"215.0\" y2=\"115.0\"/>\n",
                                        "<line x1=\"215.0\" y1=\"115.0\" x2=\"215.0\" y2=\"45.0\"/>\n",
                                        ">0.0 m</text>",
                                        ">2.5 m</text>",
                                        "viewBox=\"0 0 240 180\""};
    const mr_strip strip = two_frames();
    mr_error err = {0};
    char path[MR_TEXT_MAX], *text;
    size_t size;
    (void)state;
    in_folder("strip.svg", path);
    if (mr_strip_write(&strip, mr_env_type_find("hopper"), path, &err)) fail_msg("%s", err.text);
    assert_int_equal(mr_file_read(path, 1 << 20, &text, &size, &err), 0);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) assert_non_null(strstr(text, lines[i]));
    mr_free(text);
    assert_int_equal(mr_strip_check(path, &err), 0);
    assert_int_equal(mr_file_replace(path, "mine", 4, &err), 0);
    assert_int_equal(mr_strip_check(path, &err), MR_EDATA);
    assert_non_null(strstr(err.text, "is not a film strip"));
    assert_int_equal(mr_strip_check("/tmp", &err), MR_EDATA);
    assert_int_equal(mr_strip_check("/dev/null", &err), MR_EDATA);
}

static void frames_cover_the_episode(void **state)
{
    mr_env_model *model;
    mr_env *env;
    mr_error err = {0};
    mr_strip strip = {.every = 1};
    static double all[200][MR_STRIP_PARTS][4];
    double seen[MR_ENV_MOST_OBSERVED];
    const float action[MR_ENV_MOST_ACTED] = {.5F, -.5F, .5F};
    (void)state;
    if (!mr_mujoco_version()) skip_because("film strips: built without MuJoCo");
    if (mr_env_model_load(mr_env_type_find("hopper"), NULL, &model, &err)) skip_because("film strips: %s", err.text);
    assert_int_equal(mr_env_new(model, &env, &err), 0);
    mr_env_reset(env, 1, 1, seen);
    for (int step = 0; step < 200; step++) {
        mr_strip_film(&strip, env, step);
        mr_env_parts(env, all[step], MR_STRIP_PARTS);
        assert_int_equal(strip.frames, step / strip.every + 1);
        for (int i = 0; i < strip.frames; i++)
            assert_memory_equal(strip.parts[i], all[i * strip.every], 4 * sizeof **all);
        mr_env_step(env, action, seen);
    }
    assert_int_equal(strip.every, 32);
    assert_int_equal(strip.frames, 7);
    assert_int_equal(strip.count[6], 4);
    mr_env_free(env);
    mr_env_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_stand_on_the_ground),
                                       cmocka_unit_test(frames_cover_the_episode)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
