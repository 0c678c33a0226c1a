/* Data sets in D4RL's format: written and read again, in all types that such files have, and cut into episodes. */
#include "assert_that.h"
#include "scratch.h"
#include "skip_because.h"

#include "control/d4rl.h"
#include "control/hdf5_file.h"

#ifdef MINRNN_WITH_HDF5
#include "hdf5_support.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

static void fill(mr_d4rl *set, size_t steps)
{
    mr_error err = {0};
    if (mr_d4rl_new(set, steps, SEEN, DONE, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < steps * SEEN; i++) set->observations[i] = (float)i / 3;
    for (size_t i = 0; i < steps * DONE; i++) set->actions[i] = (float)(i % 11) / 5 - 1;
    for (size_t i = 0; i < steps; i++) {
        set->rewards[i] = (float)i * 0.1F;
        set->terminals[i] = i % 7 == 6;
        set->timeouts[i] = i % 10 == 9;
    }
    strcpy(set->made_by, "D4RL-like, by a test");
}

static void load(const char *path, mr_d4rl *set)
{
    mr_error err = {0};
    if (mr_d4rl_load(path, set, &err)) fail_msg("%s", err.text);
}

static void assert_same(const mr_d4rl *a, const mr_d4rl *b)
{
    assert_int_equal(a->steps, b->steps);
    assert_int_equal(a->observed, b->observed);
    assert_int_equal(a->acted, b->acted);
    assert_memory_equal(a->observations, b->observations, a->steps * (size_t)a->observed * sizeof(float));
    assert_memory_equal(a->actions, b->actions, a->steps * (size_t)a->acted * sizeof(float));
    assert_memory_equal(a->rewards, b->rewards, a->steps * sizeof(float));
    assert_memory_equal(a->terminals, b->terminals, a->steps);
    assert_memory_equal(a->timeouts, b->timeouts, a->steps);
    assert_string_equal(a->made_by, b->made_by);
}

/* ---- there and back */

static void a_set_is_read_as_it_was_written(void **state)
{
    (void)state;
    mr_d4rl set, again;
    mr_error err = {0};
    char path[MR_TEXT_MAX], sha[MR_SHA256_TEXT];
    fill(&set, 50);
    in_folder("set.hdf5", path);
    for (int alone = 0; alone < 2; alone++) {
        mr_hdf5_alone = alone;
        if (mr_d4rl_write(&set, path, &err)) fail_msg("%s", err.text);
        load(path, &again);
        assert_same(&set, &again);
        assert_int_equal(mr_file_sha256(path, sha, &err), 0);
        assert_string_equal(again.sha256, sha);
        mr_d4rl_free(&again);
    }
    mr_d4rl_free(&set);
}

static void the_same_set_gives_the_same_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {"/", "observations", "terminals"};
    mr_d4rl set;
    char one[MR_TEXT_MAX], two[MR_TEXT_MAX], *bytes[2];
    size_t sizes[2];
    fill(&set, 500);
    in_folder("one.hdf5", one);
    in_folder("two.hdf5", two);
    assert_int_equal(mr_d4rl_write(&set, one, NULL) | mr_d4rl_write(&set, two, NULL), 0);
    assert_int_equal(mr_file_read(one, 1 << 20, &bytes[0], &sizes[0], NULL), 0);
    assert_int_equal(mr_file_read(two, 1 << 20, &bytes[1], &sizes[1], NULL), 0);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    mr_free(bytes[0]);
    mr_free(bytes[1]);
    hid_t file = H5Fopen(one, H5F_ACC_RDONLY, H5P_DEFAULT); /* no object has a time: they may be of the same second */
    for (int i = 0; i < 3; i++) {
        H5O_info_t info;
        assert_true(H5Oget_info_by_name(file, names[i], &info, H5P_DEFAULT) >= 0);
        assert_true(!info.ctime && !info.mtime && !info.atime && !info.btime);
    }
    H5Fclose(file);
    mr_d4rl_free(&set);
}

static void check_types(hid_t real, hid_t flag)
{
    mr_d4rl set;
    char path[MR_TEXT_MAX];
    hid_t file = start_file("types.hdf5", path);
    put_set(file, "", real, flag);
    H5Fclose(file);
    load(path, &set);
    assert_true(set.steps == STEPS && set.observed == SEEN && set.acted == DONE);
    for (int i = 0; i < STEPS * SEEN; i++) assert_true(set.observations[i] == (float)seen_at(i));
    for (int i = 0; i < STEPS * DONE; i++) assert_true(set.actions[i] == (float)done_at(i));
    for (int i = 0; i < STEPS; i++) {
        assert_true(set.rewards[i] == (float)reward_at(i));
        assert_true(set.terminals[i] == terminal_at(i) && set.timeouts[i] == timeout_at(i));
    }
    assert_string_equal(set.made_by, "");
    mr_d4rl_free(&set);
}

static void all_types_are_read(void **state)
{
    (void)state;
    const hid_t real[] = {H5T_IEEE_F32LE, H5T_IEEE_F64LE, H5T_IEEE_F64BE, H5T_IEEE_F32BE};
    const hid_t flag[] = {H5T_STD_U8LE, H5T_IEEE_F32LE, H5T_STD_I64BE, H5T_IEEE_F64LE};
    for (int i = 0; i < 4; i++) check_types(real[i], flag[i]);
}

/* In chunks, compressed, and with an array that was never written: it is all zeros. */
static void compressed_arrays_are_read(void **state)
{
    (void)state;
    mr_d4rl set;
    char path[MR_TEXT_MAX];
    double numbers[STEPS * SEEN];
    for (int i = 0; i < STEPS * SEEN; i++) numbers[i] = seen_at(i);
    hid_t file = start_file("packed.hdf5", path), creation = H5Pcreate(H5P_DATASET_CREATE);
    put_set(file, "observations", H5T_IEEE_F32LE, H5T_STD_U8LE);
    H5Ldelete(file, "timeouts", H5P_DEFAULT);
    H5Pset_chunk(creation, 2, (hsize_t[]){5, 2});
    assert_true(H5Pset_shuffle(creation) >= 0 && H5Pset_deflate(creation, 6) >= 0 && H5Pset_fletcher32(creation) >= 0);
    put_array(file, "observations", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 2, (hsize_t[]){STEPS, SEEN}, creation, numbers);
    H5Pset_chunk(creation, 2, (hsize_t[]){5, 1});
    put_array(file, "timeouts", H5T_STD_U8LE, -1, 2, (hsize_t[]){STEPS, 1}, creation, NULL);
    H5Pclose(creation);
    H5Fclose(file);
    load(path, &set);
    for (int i = 0; i < STEPS * SEEN; i++) assert_true(set.observations[i] == (float)numbers[i]);
    for (int i = 0; i < STEPS; i++) assert_int_equal(set.timeouts[i], 0);
    mr_d4rl_free(&set);
}

/* ---- episodes */

static void assert_episode(const mr_d4rl *set, size_t i, size_t first, size_t length)
{
    double reward = 0;
    for (size_t s = first; s < first + length; s++) reward += set->rewards[s];
    assert_int_equal(set->episodes[i].first, first);
    assert_int_equal(set->episodes[i].length, length);
    assert_that(set->episodes[i].reward, ==, reward);
}

static void episodes_end_by_failing_and_by_the_clock(void **state)
{
    (void)state;
    mr_d4rl set;
    char path[MR_TEXT_MAX];
    hid_t file = start_file("cut.hdf5", path);
    put_set(file, "", H5T_IEEE_F32LE, H5T_STD_U8LE);
    H5Fclose(file);
    load(path, &set);
    assert_int_equal(set.episode_count, 3);
    assert_episode(&set, 0, 0, 5);
    assert_episode(&set, 1, 5, 3);
    assert_episode(&set, 2, 8, 4); /* cut off */
    set.terminals[STEPS - 1] = set.timeouts[STEPS - 1] = 1;
    assert_int_equal(mr_d4rl_cut(&set, NULL), 0);
    assert_int_equal(set.episode_count, 3);
    set.timeouts[4] = 1; /* and it failed in the same step */
    assert_int_equal(mr_d4rl_cut(&set, NULL), 0);
    assert_int_equal(set.episode_count, 3);
    mr_d4rl_free(&set);
}

static void without_timeouts_episodes_have_1000_steps(void **state)
{
    (void)state;
    mr_d4rl set, again;
    char path[MR_TEXT_MAX];
    fill(&set, 4100);
    memset(set.terminals, 0, set.steps);
    memset(set.timeouts, 0, set.steps);
    set.terminals[1499] = set.terminals[2499] = 1; /* the second of them in step 1,000 of its episode */
    in_folder("long.hdf5", path);
    assert_int_equal(mr_d4rl_write(&set, path, NULL), 0);
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    assert_true(H5Ldelete(file, "timeouts", H5P_DEFAULT) >= 0);
    H5Fclose(file);
    load(path, &again);
    assert_int_equal(again.episode_count, 5);
    assert_episode(&again, 0, 0, 1000);
    assert_episode(&again, 1, 1000, 500);
    assert_episode(&again, 2, 1500, 1000);
    assert_episode(&again, 3, 2500, 1000);
    assert_episode(&again, 4, 3500, 600);
    assert_true(again.timeouts[999] && !again.timeouts[1499] && !again.timeouts[2499] && again.timeouts[3499]);
    mr_d4rl_free(&again);
    mr_d4rl_free(&set);
}

static void recorded_files_are_read(void **state)
{
    (void)state;
    static const char *const names[] = {"hopper", "halfcheetah", "walker2d"};
    static const int observed[] = {11, 17, 17}, acted[] = {3, 6, 6};
    const char *data = getenv("MINRNN_DATA");
    char path[MR_TEXT_MAX];
    mr_d4rl set;
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/rl/recorded_%s.hdf5", data ? data : "", names[i]);
        if (!data || !mr_path_exists(path)) skip_because("set MINRNN_DATA to the folder that has rl/recorded_*.hdf5");
        load(path, &set);
        assert_true(set.steps == 2000 && set.observed == observed[i] && set.acted == acted[i]);
        assert_true(set.episode_count == 2 && set.episodes[0].length == 1000 && set.episodes[0].reward > 3000);
        mr_d4rl_free(&set);
    }
}

/* ---- writing */

static void check_old_file(const char *path)
{
    char *data, name[MR_TEXT_MAX + 8];
    size_t size;
    assert_int_equal(mr_file_read(path, 100, &data, &size, NULL), 0);
    assert_string_equal(data, "old");
    mr_free(data);
    snprintf(name, sizeof name, "%s.tmp", path);
    assert_false(mr_path_exists(name));
}

static void a_full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    struct rlimit before, small;
    mr_d4rl set;
    mr_error err = {0};
    char path[MR_TEXT_MAX];
    fill(&set, 5000);
    write_file("full.hdf5", "old", 3, path);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const int rc = mr_d4rl_write(&set, path, &err);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    assert_int_equal(rc, MR_EIO);
    assert_says(&err, "too large");
    check_old_file(path);
    mr_d4rl_free(&set);
}

static void a_file_that_is_not_finished_is_removed(void **state)
{
    (void)state;
    mr_hdf5 *h;
    mr_error err = {0};
    char path[MR_TEXT_MAX];
    write_file("dropped.hdf5", "old", 3, path);
    assert_int_equal(mr_hdf5_create(path, &h, &err), 0);
    assert_int_equal(mr_hdf5_write_text(h, "made_by", "nobody", &err), 0);
    assert_int_equal(mr_hdf5_write_text(h, "made_by", "twice", &err), MR_EFORMAT);
    assert_says(&err, "made_by");
    mr_hdf5_close(h);
    check_old_file(path);
    assert_int_equal(mr_hdf5_create("/nowhere/at/all.hdf5", &h, &err), MR_EIO);
    assert_says(&err, "/nowhere/at/all.hdf5: cannot be created: No such file or directory");
    assert_null(h);
}

static void *read_and_write(void *which)
{
    mr_d4rl set = {0}, again = {0};
    char path[MR_TEXT_MAX], name[32];
    int wrong = 0;
    snprintf(name, sizeof name, "thread%d.hdf5", *(int *)which);
    in_folder(name, path);
    for (int i = 0; i < 10 && !wrong; i++) {
        wrong = mr_d4rl_new(&set, 1000, SEEN, DONE, NULL);
        if (!wrong) set.observations[i] = (float)(*(int *)which + 1);
        wrong = wrong || mr_d4rl_write(&set, path, NULL) || mr_d4rl_load(path, &again, NULL) ||
                memcmp(set.observations, again.observations, sizeof(float) * SEEN * 1000);
        mr_d4rl_free(&set);
        mr_d4rl_free(&again);
    }
    return wrong ? which : NULL;
}

static void threads_do_not_disturb_each_other(void **state)
{
    (void)state;
    pthread_t threads[4];
    static int which[4] = {0, 1, 2, 3};
    mr_hdf5_alone = 0;
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, read_and_write, &which[i]), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    mr_hdf5_alone = 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_is_read_as_it_was_written),
        cmocka_unit_test(the_same_set_gives_the_same_bytes),
        cmocka_unit_test(all_types_are_read),
        cmocka_unit_test(compressed_arrays_are_read),
        cmocka_unit_test(episodes_end_by_failing_and_by_the_clock),
        cmocka_unit_test(without_timeouts_episodes_have_1000_steps),
        cmocka_unit_test(recorded_files_are_read),
        cmocka_unit_test(a_full_disk_keeps_the_old_file),
        cmocka_unit_test(a_file_that_is_not_finished_is_removed),
        cmocka_unit_test(threads_do_not_disturb_each_other),
    };
    mr_hdf5_alone = 1;
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
#else
static void without_hdf5_it_says_what_to_install(void **state)
{
    (void)state;
    mr_d4rl set;
    mr_error err = {0};
    assert_int_equal(mr_d4rl_load("any.hdf5", &set, &err), MR_ECONFIG);
    assert_says(&err, "scripts/bootstrap.sh control");
    assert_null(mr_hdf5_version());
    mr_d4rl_free(&set);
}

static void the_rest_is_skipped(void **state)
{
    (void)state;
    skip_because("data sets of control: built without HDF5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(without_hdf5_it_says_what_to_install),
                                       cmocka_unit_test(the_rest_is_skipped)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
#endif
