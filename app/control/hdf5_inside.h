/* What the parts of the HDF5 reader and writer share: the handle, the lock, and libhdf5's own words. */
#ifndef MR_APP_CONTROL_HDF5_INSIDE_H
#define MR_APP_CONTROL_HDF5_INSIDE_H

#include "control/hdf5_file.h"
#include "core/file.h"

#define H5_USE_110_API /* the same calls in 1.10, 1.12 and 1.14 */
#include <hdf5.h>

#include <sys/types.h>

struct mr_hdf5 {
    char *path;
    hid_t file, links; /* links: how to follow names to objects: never out of the file */
    uint64_t bytes;    /* of a file that is read */
    int wire;          /* to the process that reads the file; −1: none */
    pid_t reader;      /* 0: none; −1: it has ended */
    int died_of;       /* the signal that ended it; 0: none */
    int writing;
    mr_replace target; /* of a file that is written: it is built in memory, and goes there when it is finished */
};

/* 1: files are opened and read by this process itself; for tests, so that tools that watch a process see it all. */
extern int mr_hdf5_alone;

/* libhdf5 is not made for threads: every use of it is between these two. mr_hdf5_leave returns its argument. */
void mr_hdf5_enter(void);
int mr_hdf5_leave(int status);

/* Fails with "FILE: KIND NAME WHAT" and what libhdf5 said last: "f.h5: array rewards is damaged (…)". */
int mr_hdf5_refuse(const mr_hdf5 *h, const char *kind, const char *name, const char *what, mr_error *err);
/* The same without libhdf5's words. */
int mr_hdf5_refuse_plainly(const mr_hdf5 *h, const char *kind, const char *name, const char *what, mr_error *err);

mr_hdf5 *mr_hdf5_new(const char *path);           /* NULL: no memory */
void mr_hdf5_release(mr_hdf5 *h);                 /* while the lock is held; a file that was being written is dropped */
int mr_hdf5_open_here(mr_hdf5 *h, mr_error *err); /* in this process */

/* What follows is done by libhdf5 itself in the process that has the file open, while the lock is held. */
int mr_hdf5_is_there(mr_hdf5 *h, const char *name); /* an object that can be opened */
int mr_hdf5_is_named(mr_hdf5 *h, const char *name); /* as mr_hdf5_has */
int mr_hdf5_is_attribute(mr_hdf5 *h, const char *object, const char *name);
/* Opens an object; MR_EFORMAT: there is none of that name, or it is damaged, or the name is a link to nowhere. kind is
 * what to call it. */
int mr_hdf5_find(mr_hdf5 *h, const char *kind, const char *name, hid_t *object, mr_error *err);
/* A whole array as doubles, or as floats, in fresh memory. */
int mr_hdf5_take_array(mr_hdf5 *h, const char *name, int doubles, void **out, size_t *rows, size_t *columns,
                       mr_error *err);
int mr_hdf5_take_number(mr_hdf5 *h, const char *object, const char *name, double *out, mr_error *err);
int mr_hdf5_take_text(mr_hdf5 *h, const char *object, const char *name, char *out, size_t room, mr_error *err);

#endif
