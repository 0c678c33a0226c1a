/* Data sets that are published elsewhere: where they come from, where they lie on this machine, and whether they
 * are whole. */
#ifndef MR_TASKS_DATA_H
#define MR_TASKS_DATA_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mr_data_set {
    const char *name;   /* as in `minrnn data get NAME` */
    const char *file;   /* its name in MINRNN_DATA or in the cache folder */
    const char *url;    /* the canonical source */
    const char *sha256; /* lower-case hexadecimal */
    uint64_t bytes;
    const char *about;
} mr_data_set;

const mr_data_set *mr_data_sets(void);                 /* ends with a row whose name is NULL */
const mr_data_set *mr_data_set_find(const char *name); /* or NULL */

/* Where the file lies: in $MINRNN_DATA, else in the cache folder ($XDG_CACHE_HOME/minrnn or ~/.cache/minrnn). *path is
 * freed by mr_free. MR_EDATA when it is in neither. */
int mr_data_find(const char *name, char **path, mr_error *err);

/* Finds it, reads it and checks its size and SHA-256; *bytes is freed by mr_free. */
int mr_data_load(const char *name, char **bytes, size_t *size, mr_error *err);

/* Called now and then during a download; anything but 0 stops it (MR_ESTOPPED). */
typedef int mr_data_progress(void *arg, uint64_t done, uint64_t total);

/* Makes sure that the file is there and whole: downloads it into the cache folder unless it is found already.
 * progress may be NULL. *path is freed by mr_free. */
int mr_data_get(const char *name, mr_data_progress *progress, void *arg, char **path, mr_error *err);

/* The download alone: from set->url to `path`, which is replaced only by a file of the right size and SHA-256. */
int mr_data_download(const mr_data_set *set, const char *path, mr_data_progress *progress, void *arg, mr_error *err);

#endif
