/* Data sets that are published elsewhere: where they come from, where they are on this machine, and whether they are
 * complete. */
#ifndef MR_APP_TASKS_DATA_H
#define MR_APP_TASKS_DATA_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

/* A file of a data set that is published as an archive. */
typedef struct mr_data_member {
    const char *file;   /* its place in MINRNN_DATA or in the cache folder; in the archive it has the same last name */
    const char *sha256; /* or NULL: none is known */
} mr_data_member;

typedef struct mr_data_set {
    const char *name;   /* as in `minrnn data get NAME` */
    const char *file;   /* its name in MINRNN_DATA or in the cache folder */
    const char *url;    /* the canonical source */
    const char *sha256; /* of what is there, lower-case hexadecimal, and … */
    uint64_t bytes;     /* … its size; NULL and 0 where none is known */
    const char *about;
    /* of an archive (a tar file, by gzip): the files in it that are wanted, NULL-terminated; `file` then names the
     * archive itself, which is not kept */
    const mr_data_member *members;
    const char *instead; /* a file that serves for all members, where it is found; or NULL */
} mr_data_set;

const mr_data_set *mr_data_sets(void);                 /* ends with a row whose name is NULL */
const mr_data_set *mr_data_set_find(const char *name); /* or NULL */

/* Where the file is: in $MINRNN_DATA, else in the cache folder ($XDG_CACHE_HOME/minrnn or ~/.cache/minrnn). *path is
 * freed by mr_free. MR_EDATA when it is in neither. Of an archive: the first of its members, when all are there. */
int mr_data_find(const char *name, char **path, mr_error *err);

/* The same for one member of an archive, or for what is made from them. */
int mr_data_find_member(const char *name, const char *file, char **path, mr_error *err);

/* A file in $MINRNN_DATA or in the cache folder, of no set in the list; NULL: it is in neither. Freed by mr_free. */
char *mr_data_locate(const char *file);

/* The path of a file in the cache folder, which is made if needed; NULL where that is impossible. Freed by mr_free. */
char *mr_data_cache(const char *file);

/* Finds it, reads it and checks its size and SHA-256; *bytes is freed by mr_free. */
int mr_data_load(const char *name, char **bytes, size_t *size, mr_error *err);

/* Called now and then during a download; anything but 0 stops it (MR_ESTOPPED). */
typedef int mr_data_progress(void *arg, uint64_t done, uint64_t total);

/* Makes sure that the file is there and complete: downloads it into the cache folder unless it is found already.
 * progress may be NULL. *path is freed by mr_free. */
int mr_data_get(const char *name, mr_data_progress *progress, void *arg, char **path, mr_error *err);

/* The same for a set that need not be in the list. */
int mr_data_get_set(const mr_data_set *set, mr_data_progress *progress, void *arg, char **path, mr_error *err);

/* The download alone: from set->url to `path`, which is replaced only by a file of the right size and SHA-256 (where
 * these are known). */
int mr_data_download(const mr_data_set *set, const char *path, mr_data_progress *progress, void *arg, mr_error *err);

#endif
