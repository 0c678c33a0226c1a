/* HDF5 files that are damaged, or not what they should be: each gets one sentence that names the file and the array,
 * and none harms the process. */
#include "assert_that.h"
#include "scratch.h"
#include "skip_because.h"

#ifdef MINRNN_WITH_HDF5
#include "hdf5_support.h"

#include <math.h>
#include <signal.h>

static void assert_refused(const char *path, int status, const char *part)
{
    mr_d4rl set;
    mr_error err = {0};
    const int rc = mr_d4rl_load(path, &set, &err);
    if (rc != status) fail_msg("status %d (\"%s\") where \"%s\" is expected", rc, err.text, part);
    assert_says(&err, path);
    assert_says(&err, part);
    mr_d4rl_free(&set); /* nothing of it is left */
}

/* A set whose array `name` is what `put` puts there. */
static void check(const char *name, void (*put)(hid_t file, const char *name), int status, const char *part)
{
    char path[MR_TEXT_MAX];
    hid_t file = start_file("bad.hdf5", path);
    put_set(file, name, H5T_IEEE_F32LE, H5T_STD_U8LE);
    if (put) put(file, name);
    H5Fclose(file);
    assert_refused(path, status, part);
}

/* ---- arrays that are not there, or not in this file */

static void put_lost_link(hid_t file, const char *name)
{
    H5Lcreate_soft("/nowhere", file, name, H5P_DEFAULT, H5P_DEFAULT);
}

static void put_link_to_itself(hid_t file, const char *name)
{
    H5Lcreate_soft(name, file, name, H5P_DEFAULT, H5P_DEFAULT);
}

static void put_lost_external_link(hid_t file, const char *name)
{
    H5Lcreate_external("no such file.hdf5", "/rewards", file, name, H5P_DEFAULT, H5P_DEFAULT);
}

static void put_external_link(hid_t file, const char *name)
{
    char path[MR_TEXT_MAX];
    hid_t other = start_file("other.hdf5", path);
    put_set(other, "", H5T_IEEE_F32LE, H5T_STD_U8LE);
    H5Fclose(other);
    H5Lcreate_external(path, name, file, name, H5P_DEFAULT, H5P_DEFAULT);
}

static void put_external_array(hid_t file, const char *name)
{
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(creation, "/etc/passwd", 0, STEPS);
    put_array(file, name, H5T_STD_U8LE, -1, 1, (hsize_t[]){STEPS}, creation, NULL);
    H5Pclose(creation);
}

static void put_virtual_array(hid_t file, const char *name)
{
    const hsize_t dims[] = {STEPS};
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, dims, NULL);
    assert_true(H5Pset_virtual(creation, space, "other.hdf5", "rewards", space) >= 0);
    put_array(file, name, H5T_IEEE_F32LE, -1, 1, dims, creation, NULL);
    H5Sclose(space);
    H5Pclose(creation);
}

static void put_group(hid_t file, const char *name)
{
    H5Gclose(H5Gcreate2(file, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
}

static void what_is_not_there_is_named(void **state)
{
    (void)state;
    static const char *const arrays[] = {"observations", "actions", "rewards", "terminals"};
    for (int i = 0; i < 4; i++) {
        check(arrays[i], NULL, MR_EFORMAT, arrays[i]);
        check(arrays[i], NULL, MR_EFORMAT, "is not in the file");
    }
    check("rewards", put_lost_link, MR_EFORMAT, "array rewards is a link that leads nowhere");
    check("rewards", put_link_to_itself, MR_EFORMAT, "rewards");
    check("rewards", put_lost_external_link, MR_EFORMAT, "array rewards is a link that leads nowhere, or into another");
    check("rewards", put_external_link, MR_EFORMAT, "array rewards is a link that leads nowhere, or into another file");
    check("terminals", put_external_array, MR_EFORMAT, "array terminals is kept in other files");
    check("rewards", put_virtual_array, MR_EFORMAT, "array rewards is kept in other files");
    check("actions", put_group, MR_EFORMAT, "object actions is not an array");
    check("timeouts", put_lost_link, MR_EFORMAT, "array timeouts is a link that leads nowhere");
}

/* ---- arrays of other types and shapes */

static const double zeros[STEPS * 100];

static void put_3_dimensions(hid_t file, const char *name)
{
    put_array(file, name, H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, 3, (hsize_t[]){STEPS, 3, 1}, H5P_DEFAULT, zeros);
}

static void put_scalar(hid_t file, const char *name)
{
    hid_t space = H5Screate(H5S_SCALAR);
    H5Dclose(H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Sclose(space);
}

static void put_strings(hid_t file, const char *name)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    put_array(file, name, type, -1, 1, (hsize_t[]){STEPS}, H5P_DEFAULT, NULL);
    H5Tclose(type);
}

static void put_pairs(hid_t file, const char *name)
{
    hid_t type = H5Tcreate(H5T_COMPOUND, 8);
    H5Tinsert(type, "a", 0, H5T_IEEE_F32LE);
    H5Tinsert(type, "b", 4, H5T_IEEE_F32LE);
    put_array(file, name, type, -1, 1, (hsize_t[]){STEPS}, H5P_DEFAULT, NULL);
    H5Tclose(type);
}

static void put_shorter(hid_t file, const char *name)
{
    put_array(file, name, H5T_IEEE_F32LE, H5T_NATIVE_DOUBLE, 1, (hsize_t[]){STEPS - 1}, H5P_DEFAULT, zeros);
}

static void put_longer_flags(hid_t file, const char *name)
{
    put_array(file, name, H5T_STD_U8LE, H5T_NATIVE_DOUBLE, 1, (hsize_t[]){STEPS + 1}, H5P_DEFAULT, zeros);
}

static void put_nothing(hid_t file, const char *name)
{
    put_array(file, name, H5T_IEEE_F32LE, -1, 2, (hsize_t[]){0, 3}, H5P_DEFAULT, NULL);
}

static void put_no_columns(hid_t file, const char *name)
{
    put_array(file, name, H5T_IEEE_F32LE, -1, 2, (hsize_t[]){STEPS, 0}, H5P_DEFAULT, NULL);
}

static void put_2_columns(hid_t file, const char *name) { put_doubles(file, name, H5T_IEEE_F32LE, 2, zeros); }

static void other_types_and_shapes_are_refused(void **state)
{
    (void)state;
    check("observations", put_3_dimensions, MR_EFORMAT, "array observations has 3 dimensions; it must have 1 or 2");
    check("rewards", put_scalar, MR_EFORMAT, "array rewards has 0 dimensions");
    check("rewards", put_strings, MR_EFORMAT, "array rewards holds neither plain numbers nor booleans");
    check("rewards", put_pairs, MR_EFORMAT, "array rewards holds neither plain numbers nor booleans");
    check("rewards", put_shorter, MR_EFORMAT, "array rewards has 11 steps, but observations has 12");
    check("terminals", put_longer_flags, MR_EFORMAT, "array terminals has 13 steps, but observations has 12");
    check("timeouts", put_longer_flags, MR_EFORMAT, "array timeouts has 13 steps, but observations has 12");
    check("observations", put_nothing, MR_EFORMAT, "array observations is empty");
    check("actions", put_nothing, MR_EFORMAT, "array actions is empty");
    check("actions", put_no_columns, MR_EFORMAT, "array actions is empty");
    check("rewards", put_2_columns, MR_EFORMAT, "array rewards has 2 columns; it must have 1");
    check("terminals", put_2_columns, MR_EFORMAT, "array terminals has 2 columns; it must have one");
}

/* ---- numbers */

static double bad_number;

static void put_bad_number(hid_t file, const char *name) /* in step 7, the last column */
{
    const int columns = !strcmp(name, "observations") ? SEEN : !strcmp(name, "actions") ? DONE : 0;
    double numbers[STEPS * SEEN] = {0};
    numbers[columns ? 8 * columns - 1 : 7] = bad_number;
    put_doubles(file, name, H5T_IEEE_F64LE, columns, numbers);
}

static void check_number(const char *name, double number, int status, const char *part)
{
    bad_number = number;
    check(name, put_bad_number, status, part);
}

static void numbers_that_cannot_be_are_refused(void **state)
{
    (void)state;
    check_number("observations", NAN, MR_EDATA, "observations[7, 2] is ");
    check_number("observations", INFINITY, MR_EDATA, "observations[7, 2] is inf; it must be finite");
    check_number("observations", -1e300, MR_EDATA, "observations[7, 2] is -inf"); /* as a float */
    check_number("actions", NAN, MR_EDATA, "actions[7, 1] is ");
    check_number("rewards", -INFINITY, MR_EDATA, "rewards[7, 0] is -inf");
    check_number("terminals", 2, MR_EFORMAT, "terminals[7] is 2; it must be 0 or 1");
    check_number("terminals", -1, MR_EFORMAT, "terminals[7] is -1");
    check_number("timeouts", 0.5, MR_EFORMAT, "timeouts[7] is 0.5");
    check_number("timeouts", NAN, MR_EFORMAT, "timeouts[7] is ");
}

/* ---- sizes that the file does not have */

static void put_claim(hid_t file, const char *name) /* 2^60 numbers, none of which was written */
{
    put_array(file, name, H5T_IEEE_F32LE, -1, 1, (hsize_t[]){(hsize_t)1 << 60}, H5P_DEFAULT, NULL);
}

static void put_claim_in_chunks(hid_t file, const char *name) /* 2^31 numbers, whose bytes this machine might have */
{
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 1, (hsize_t[]){4096});
    H5Pset_deflate(creation, 1);
    put_array(file, name, H5T_IEEE_F32LE, -1, 1, (hsize_t[]){(hsize_t)1 << 31}, creation, NULL);
    H5Pclose(creation);
}

static void put_huge_chunks(hid_t file, const char *name) /* 12 numbers in a chunk of 2 GiB */
{
    const hsize_t dims[] = {STEPS}, most[] = {H5S_UNLIMITED};
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, dims, most);
    H5Pset_chunk(creation, 1, (hsize_t[]){(hsize_t)1 << 29});
    H5Dclose(H5Dcreate2(file, name, H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
    H5Sclose(space);
    H5Pclose(creation);
}

static void put_unknown_filter(hid_t file, const char *name)
{
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(creation, 1, (hsize_t[]){STEPS});
    H5Pset_filter(creation, 300, H5Z_FLAG_OPTIONAL, 0, NULL);
    put_array(file, name, H5T_IEEE_F32LE, -1, 1, (hsize_t[]){STEPS}, creation, NULL);
    H5Pclose(creation);
}

static void sizes_are_checked_before_memory_is_taken(void **state)
{
    (void)state;
    check("rewards", put_claim, MR_EFORMAT, "array rewards claims to have 1152921504606846976 × 1 numbers");
    check("terminals", put_claim_in_chunks, MR_EFORMAT, "array terminals claims to have 2147483648 × 1 numbers");
    check("rewards", put_huge_chunks, MR_EFORMAT, "array rewards claims to have 12 × 1 numbers");
    check("rewards", put_unknown_filter, MR_EFORMAT, "array rewards is compressed by filter 300");
}

/* ---- attributes */

static void put_long_text(hid_t file, const char *name)
{
    static char text[200];
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    (void)name;
    memset(text, 'x', sizeof text - 1);
    H5Tset_size(type, sizeof text);
    hid_t attribute = H5Acreate2(file, "made_by", type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, type, text) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
}

static void put_numbers_as_text(hid_t file, const char *name)
{
    hid_t space = H5Screate_simple(1, (hsize_t[]){2}, NULL);
    (void)name;
    hid_t attribute = H5Acreate2(file, "made_by", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, H5T_NATIVE_DOUBLE, zeros) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
}

static void attributes_are_checked(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], text[8];
    double number;
    mr_hdf5 *h;
    mr_error err = {0};
    check("", put_long_text, MR_EFORMAT, "attribute made_by is longer than 63 bytes");
    check("", put_numbers_as_text, MR_EFORMAT, "attribute made_by must be one value");
    in_folder("bad.hdf5", path);
    assert_int_equal(mr_hdf5_open(path, &h, &err), 0);
    assert_int_equal(mr_hdf5_attribute(h, "/", "absent", &number, &err), MR_EFORMAT);
    assert_says(&err, "bad.hdf5: / has no attribute absent");
    assert_int_equal(mr_hdf5_attribute(h, "/absent/group", "scale", &number, &err), MR_EFORMAT);
    assert_int_equal(mr_hdf5_attribute_text(h, "rewards", "absent", text, sizeof text, &err), MR_EFORMAT);
    assert_true(mr_hdf5_has(h, "rewards") && mr_hdf5_has(h, "/") && !mr_hdf5_has(h, "absent") &&
                !mr_hdf5_has(h, "a/b"));
    assert_true(mr_hdf5_has_attribute(h, "/", "made_by") && !mr_hdf5_has_attribute(h, "rewards", "made_by"));
    mr_hdf5_close(h);
}

/* ---- bytes */

static void what_is_no_hdf5_file_is_refused(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    assert_refused(folder, MR_EIO, "is a directory");
    in_folder("absent.hdf5", path);
    assert_refused(path, MR_EIO, "No such file or directory");
    write_file("empty.hdf5", "", 0, path);
    assert_refused(path, MR_EFORMAT, "not an HDF5 file");
    write_file("text.hdf5", "observations", 12, path);
    assert_refused(path, MR_EFORMAT, "not an HDF5 file");
}

/* A file of ours, and one with chunks and checksums, each with a good set. */
static size_t make_good(int which, char **bytes)
{
    char path[MR_TEXT_MAX];
    size_t size;
    hid_t file = start_file("good.hdf5", path), creation = H5Pcreate(H5P_DATASET_CREATE);
    put_set(file, which ? "rewards" : "", H5T_IEEE_F32LE, H5T_STD_U8LE);
    H5Pset_chunk(creation, 1, (hsize_t[]){5});
    H5Pset_deflate(creation, 6);
    if (which) put_array(file, "rewards", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, (hsize_t[]){STEPS}, creation, zeros);
    H5Pclose(creation);
    H5Fclose(file);
    assert_int_equal(mr_file_read(path, 1 << 20, bytes, &size, NULL), 0);
    return size;
}

static void check_bytes(const char *bytes, size_t size)
{
    mr_d4rl set;
    mr_error err = {0};
    char path[MR_TEXT_MAX];
    write_file("hostile.hdf5", bytes, size, path);
    const int rc = mr_d4rl_load(path, &set, &err);
    if (rc) assert_says(&err, path);
    else assert_true(set.steps > 0 && set.episode_count > 0);
    mr_d4rl_free(&set);
}

static void truncated_files_are_refused(void **state)
{
    (void)state;
    char *bytes, path[MR_TEXT_MAX];
    for (int which = 0; which < 2; which++) {
        const size_t size = make_good(which, &bytes);
        for (size_t length = 0; length < size; length += size / 37) {
            write_file("short.hdf5", bytes, length, path);
            assert_refused(path, MR_EFORMAT, "not an HDF5 file, or it is damaged or not complete");
        }
        mr_free(bytes);
    }
}

/* libhdf5 may die of these files; the test does not. */
static void flipped_bytes_do_no_harm(void **state)
{
    (void)state;
    char *bytes;
    mr_hdf5_alone = 0;
    for (int which = 0; which < 2; which++) {
        const size_t size = make_good(which, &bytes);
        for (size_t i = 0; i < 100; i++) {
            const size_t at = (i * 2654435761U + 17) % (i < 50 ? size : 2048);
            const char before = bytes[at];
            bytes[at] = (char)(i % 3 == 0 ? ~before : i % 3 == 1 ? before ^ (1 << i % 8) : 0x7f);
            check_bytes(bytes, size);
            bytes[at] = before;
        }
        mr_free(bytes);
    }
    mr_hdf5_alone = 1;
}

/* A reader of a file with a good set, in a process of its own. */
static mr_hdf5 *open_in_a_process(const char *name)
{
    char path[MR_TEXT_MAX];
    mr_hdf5 *h;
    hid_t file = start_file(name, path);
    put_set(file, "", H5T_IEEE_F32LE, H5T_STD_U8LE);
    H5Fclose(file);
    mr_hdf5_alone = 0;
    assert_int_equal(mr_hdf5_open(path, &h, NULL), 0);
    mr_hdf5_alone = 1;
    assert_true(mr_hdf5_has(h, "rewards"));
    assert_true(h->reader > 0);
    return h;
}

static void the_death_of_the_reader_is_an_error(void **state)
{
    (void)state;
    float *numbers;
    size_t rows, columns;
    mr_error err = {0};
    mr_hdf5 *h = open_in_a_process("dead.hdf5");
    assert_int_equal(kill(h->reader, SIGSEGV), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mr_hdf5_read_floats(h, "rewards", &numbers, &rows, &columns, &err), MR_EFORMAT);
        assert_says(&err, "dead.hdf5: is damaged: libhdf5 failed while it read it (");
        assert_says(&err, strsignal(SIGSEGV));
        assert_true(!numbers && !rows && !columns);
    }
    assert_true(mr_hdf5_has(h, "absent") && mr_hdf5_has_attribute(h, "/", "absent")); /* so that they are read */
    mr_hdf5_close(h);
}

static void a_reader_that_is_stuck_is_replaced(void **state)
{
    (void)state;
    float *numbers;
    size_t rows, columns;
    mr_hdf5 *h = open_in_a_process("stuck.hdf5");
    const pid_t first = h->reader;
    assert_int_equal(kill(first, SIGSTOP), 0);
    assert_int_equal(mr_hdf5_read_floats(h, "rewards", &numbers, &rows, &columns, NULL), 0);
    assert_int_equal(rows, STEPS);
    assert_true(h->reader > 0 && h->reader != first);
    assert_int_equal(kill(first, 0), -1); /* it is gone */
    mr_free(numbers);
    mr_hdf5_close(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(other_types_and_shapes_are_refused),
        cmocka_unit_test(numbers_that_cannot_be_are_refused),
        cmocka_unit_test(sizes_are_checked_before_memory_is_taken),
        cmocka_unit_test(attributes_are_checked),
        cmocka_unit_test(what_is_no_hdf5_file_is_refused),
        cmocka_unit_test(truncated_files_are_refused),
        cmocka_unit_test(flipped_bytes_do_no_harm),
        cmocka_unit_test(the_death_of_the_reader_is_an_error),
        cmocka_unit_test(a_reader_that_is_stuck_is_replaced),
    };
    mr_hdf5_alone = 1; /* where nothing else is said, so that sanitizers see what is done */
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
#else
static void hostile_files_are_skipped(void **state)
{
    (void)state;
    skip_because("hostile HDF5 files: built without HDF5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hostile_files_are_skipped)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
#endif
