/* HDF5 files, as D4RL's are: arrays and attributes by name, checked before they are used. Without libhdf5 (no_hdf5.c)
 * opening and creating fail and say what to install. */
#ifndef MR_APP_CONTROL_HDF5_FILE_H
#define MR_APP_CONTROL_HDF5_FILE_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

/* The version of libhdf5 that is in this build, or NULL. */
const char *mr_hdf5_version(void);

typedef struct mr_hdf5 mr_hdf5;

/* Opens a file for reading. One thread at a time may use libhdf5; these functions take care of it. MR_EIO: no such
 * file; MR_EFORMAT: it is not HDF5, or damaged; MR_ECONFIG: built without libhdf5. */
int mr_hdf5_open(const char *path, mr_hdf5 **out, mr_error *err);
/* Starts a new file under a temporary name; mr_hdf5_finish puts it in the place of `path`. */
int mr_hdf5_create(const char *path, mr_hdf5 **out, mr_error *err);
int mr_hdf5_finish(mr_hdf5 *h, mr_error *err); /* closes it and frees h, also on failure */
void mr_hdf5_close(mr_hdf5 *h);                /* of a file that was not finished: removes it; NULL is fine */

/* 1: there is an object (array or group) or an attribute of that name, or the file is too damaged to say so: reading it
 * then says why. `name` may be a path, "/hopper/sac/layer0". */
int mr_hdf5_has(mr_hdf5 *h, const char *name);
int mr_hdf5_has_attribute(mr_hdf5 *h, const char *object, const char *name);

/* Reads a whole array of 1 or 2 dimensions of whole or real numbers (or HDF5's booleans) as doubles, floats or bytes
 * (0 or 1), into fresh memory, which the caller frees with mr_free. rows, columns: what it has; columns is 1 for one
 * dimension. Refused: strings, more than two dimensions, an array too large for the memory of this machine. NaN is not
 * looked for here. MR_EFORMAT names the file and the array. */
int mr_hdf5_read_doubles(mr_hdf5 *h, const char *name, double **out, size_t *rows, size_t *columns, mr_error *err);
int mr_hdf5_read_floats(mr_hdf5 *h, const char *name, float **out, size_t *rows, size_t *columns, mr_error *err);
int mr_hdf5_read_flags(mr_hdf5 *h, const char *name, uint8_t **out, size_t *rows, mr_error *err);
/* An attribute of an object ("/" is the file itself). */
int mr_hdf5_attribute(mr_hdf5 *h, const char *object, const char *name, double *out, mr_error *err);
int mr_hdf5_attribute_text(mr_hdf5 *h, const char *object, const char *name, char *out, size_t room, mr_error *err);

/* Writes into a file that was created: floats [rows, columns] (columns 0: one dimension), flags as HDF5 booleans the
 * way h5py reads and writes them, texts and numbers as attributes of the file. */
int mr_hdf5_write_floats(mr_hdf5 *h, const char *name, const float *from, size_t rows, size_t columns, mr_error *err);
int mr_hdf5_write_flags(mr_hdf5 *h, const char *name, const uint8_t *from, size_t rows, mr_error *err);
int mr_hdf5_write_text(mr_hdf5 *h, const char *name, const char *text, mr_error *err);

#endif
