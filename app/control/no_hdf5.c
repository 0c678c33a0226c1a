/* In place of hdf5_file.c in a build without libhdf5: says what to install. */
#include "control/hdf5_file.h"

const char *mr_hdf5_version(void) { return NULL; }

static int lacking(mr_hdf5 **out, mr_error *err)
{
    *out = 0;
    return mr_fail(
        err, MR_ECONFIG,
        "this minrnn was built without HDF5, which D4RL's files need; run `scripts/bootstrap.sh control` (or "
        "install libhdf5-dev) and build again");
}

int mr_hdf5_open(const char *path, mr_hdf5 **out, mr_error *err) { return (void)path, lacking(out, err); }
int mr_hdf5_create(const char *path, mr_hdf5 **out, mr_error *err) { return (void)path, lacking(out, err); }

/* The rest is never reached: there is no open file. */
int mr_hdf5_finish(mr_hdf5 *h, mr_error *err) { return lacking(&h, err); }
void mr_hdf5_close(mr_hdf5 *h) { (void)h; }
int mr_hdf5_has(mr_hdf5 *h, const char *name) { return (void)h, (void)name, 0; }
int mr_hdf5_has_attribute(mr_hdf5 *h, const char *object, const char *name)
{
    return (void)h, (void)object, (void)name, 0;
}

int mr_hdf5_read_doubles(mr_hdf5 *h, const char *name, double **out, size_t *rows, size_t *columns, mr_error *err)
{
    return (void)name, *out = NULL, *rows = *columns = 0, lacking(&h, err);
}

int mr_hdf5_read_floats(mr_hdf5 *h, const char *name, float **out, size_t *rows, size_t *columns, mr_error *err)
{
    return (void)name, *out = NULL, *rows = *columns = 0, lacking(&h, err);
}

int mr_hdf5_read_flags(mr_hdf5 *h, const char *name, uint8_t **out, size_t *rows, mr_error *err)
{
    return (void)name, *out = NULL, *rows = 0, lacking(&h, err);
}

int mr_hdf5_attribute(mr_hdf5 *h, const char *object, const char *name, double *out, mr_error *err)
{
    return (void)object, (void)name, *out = 0, lacking(&h, err);
}

int mr_hdf5_attribute_text(mr_hdf5 *h, const char *object, const char *name, char *out, size_t room, mr_error *err)
{
    return (void)object, (void)name, (void)(room ? *out = 0 : 0), lacking(&h, err);
}

int mr_hdf5_write_floats(mr_hdf5 *h, const char *name, const float *from, size_t rows, size_t columns, mr_error *err)
{
    return (void)name, (void)from, (void)rows, (void)columns, lacking(&h, err);
}

int mr_hdf5_write_flags(mr_hdf5 *h, const char *name, const uint8_t *from, size_t rows, mr_error *err)
{
    return (void)name, (void)from, (void)rows, lacking(&h, err);
}

int mr_hdf5_write_text(mr_hdf5 *h, const char *name, const char *text, mr_error *err)
{
    return (void)name, (void)text, lacking(&h, err);
}
