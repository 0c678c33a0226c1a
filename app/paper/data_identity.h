/* Identifies the data of a result, and the model that it started from, by a short hash in its row, so that results of
 * other data are not mistaken for it. */
#ifndef MR_APP_PAPER_DATA_IDENTITY_H
#define MR_APP_PAPER_DATA_IDENTITY_H

#include "core/sha256.h"
#include "paper/experiment.h"
#include "tasks/test_set.h"

enum { MR_DATA_IDENTITY = 17, MR_DATA_CACHE = 64 };
#define MR_DATA_GENERATED "generated" /* the identity where a task makes its data itself and reads none */

/* The SHA-256 sums of what a run was made from, "" where there is none: its training data, what its test reads (the
 * same or other data), and the model of `init`. */
typedef struct mr_data_sums {
    char train[MR_SHA256_TEXT], test[MR_SHA256_TEXT], init[MR_SHA256_TEXT];
} mr_data_sums;

/* Returns `out`. */
char *mr_data_identity(char out[MR_DATA_IDENTITY], const mr_data_sums *sums);

/* Of the model that a recipe starts from; "" where it names none. 0: that cannot be read, and the sum is "". */
int mr_data_sum_init(const mr_recipe *recipe, char sum[MR_SHA256_TEXT]);

/* What a run would be made from and scored on now; "" where that cannot be read. */
typedef struct mr_data_now {
    char data[MR_DATA_IDENTITY], test_set[MR_TEST_SET_IDENTITY];
} mr_data_now;

/* The same by the settings of tasks, so that data is read once for all runs that share it. Zero-initialised, it is
 * empty. */
typedef struct mr_data_cache {
    struct {
        char key[MR_SHA256_TEXT];
        mr_data_now now;
    } entries[MR_DATA_CACHE];
    size_t count;
} mr_data_cache;

/* For a run and its recipe, which is not open; reads the data and the test set to find out. */
mr_data_now mr_data_identity_now(mr_data_cache *cache, const mr_planned *run, const mr_recipe *recipe);

#endif
