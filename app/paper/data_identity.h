/* Identifies the data of a result by a short hash in its row, so that results of other data are not mistaken for it. */
#ifndef MR_APP_PAPER_DATA_IDENTITY_H
#define MR_APP_PAPER_DATA_IDENTITY_H

#include "paper/experiment.h"

enum { MR_DATA_IDENTITY = 17, MR_DATA_CACHE = 32 };
#define MR_DATA_GENERATED "generated" /* the identity where a task makes its data itself and reads none */

/* The identity of data with these SHA-256 sums, "" where no data is read; test: the same as `train`, or of what the
 * test read. Returns `out`. */
char *mr_data_identity(char out[MR_DATA_IDENTITY], const char *train, const char *test);

/* Identities by the settings of tasks, so that data is read once for all runs that share it. Zero-initialised, it is
 * empty. */
typedef struct mr_data_cache {
    struct {
        char key[MR_SHA256_TEXT], identity[MR_DATA_IDENTITY];
    } entries[MR_DATA_CACHE];
    size_t count;
} mr_data_cache;

/* The identity of the data as it is now for a run and its recipe, which is not open; reads the data to know. "" where
 * that cannot be read. */
void mr_data_identity_now(mr_data_cache *cache, const mr_planned *run, const mr_recipe *recipe,
                          char out[MR_DATA_IDENTITY]);

#endif
