/* HDF5 files for tests, by libhdf5 itself: a set of offline reinforcement learning, with an array left out. */
#ifndef MR_TESTS_HDF5_SUPPORT_H
#define MR_TESTS_HDF5_SUPPORT_H

#include "control/d4rl.h"
#include "control/hdf5_inside.h"
#include "core/mem.h"
#include "scratch.h"

enum { STEPS = 12, SEEN = 3, DONE = 2 };

static inline hid_t start_file(const char *name, char path[MR_TEXT_MAX])
{
    in_folder(name, path);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(file >= 0);
    return file;
}

/* An array of `count` dimensions; from NULL: nothing is written into it. creation: H5P_DEFAULT, or how it is made. */
static inline void put_array(hid_t file, const char *name, hid_t stored, hid_t given, int count, const hsize_t *dims,
                             hid_t creation, const void *from)
{
    hid_t space = H5Screate_simple(count, dims, NULL);
    hid_t set = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    assert_true(set >= 0);
    if (from) assert_true(H5Dwrite(set, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, from) >= 0);
    H5Dclose(set);
    H5Sclose(space);
}

/* [STEPS, columns]; 0 columns: one dimension. */
static inline void put_doubles(hid_t file, const char *name, hid_t stored, int columns, const double *from)
{
    const hsize_t dims[2] = {STEPS, (hsize_t)columns};
    put_array(file, name, stored, H5T_NATIVE_DOUBLE, columns ? 2 : 1, dims, H5P_DEFAULT, from);
}

static inline double seen_at(int i) { return i / 8.0 - 1; }
static inline double done_at(int i) { return i % 9 / 4.0 - 1; }
static inline double reward_at(int i) { return i - 2.5; }
static inline int terminal_at(int i) { return i == 4; }
static inline int timeout_at(int i) { return i == 7; }

/* A good set, of which `without` is left out; types of real numbers and of flags. */
static inline void put_set(hid_t file, const char *without, hid_t real, hid_t flag)
{
    double seen[STEPS * SEEN], done[STEPS * DONE], rewards[STEPS], terminals[STEPS], timeouts[STEPS];
    for (int i = 0; i < STEPS * SEEN; i++) seen[i] = seen_at(i);
    for (int i = 0; i < STEPS * DONE; i++) done[i] = done_at(i);
    for (int i = 0; i < STEPS; i++) {
        rewards[i] = reward_at(i);
        terminals[i] = terminal_at(i);
        timeouts[i] = timeout_at(i);
    }
    if (strcmp(without, "observations")) put_doubles(file, "observations", real, SEEN, seen);
    if (strcmp(without, "actions")) put_doubles(file, "actions", real, DONE, done);
    if (strcmp(without, "rewards")) put_doubles(file, "rewards", real, 0, rewards);
    if (strcmp(without, "terminals")) put_doubles(file, "terminals", flag, 0, terminals);
    if (strcmp(without, "timeouts")) put_doubles(file, "timeouts", flag, 0, timeouts);
}

#endif
