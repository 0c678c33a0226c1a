/* Attributes of HDF5 files: one number, or one text of fixed or any length, as h5py writes them. */
#include "control/hdf5_inside.h"

#include "core/mem.h"

#include <string.h>

enum { LONGEST = 4096 }; /* bytes of a text of fixed length, or of numbers */

typedef struct attribute {
    hid_t object, id, type, space; /* −1: not open */
} attribute;

static void close_attribute(attribute *a)
{
    if (a->space >= 0) H5Sclose(a->space);
    if (a->type >= 0) H5Tclose(a->type);
    if (a->id >= 0) H5Aclose(a->id);
    if (a->object >= 0) H5Oclose(a->object);
}

/* Opens an attribute with one value. */
static int open_attribute(mr_hdf5 *h, const char *object, const char *name, attribute *a, mr_error *err)
{
    int rc = mr_hdf5_find(h, "object", object, &a->object, err);
    if (rc) return rc;
    if (H5Aexists(a->object, name) <= 0)
        return mr_fail(err, MR_EFORMAT, "%s: %s has no attribute %s", h->path, object, name);
    if ((a->id = H5Aopen(a->object, name, H5P_DEFAULT)) < 0 || (a->type = H5Aget_type(a->id)) < 0 ||
        (a->space = H5Aget_space(a->id)) < 0)
        return mr_hdf5_refuse(h, "attribute", name, "is damaged", err);
    if (H5Sget_simple_extent_npoints(a->space) != 1 || H5Aget_storage_size(a->id) > LONGEST)
        return mr_hdf5_refuse_plainly(h, "attribute", name, "must be one value", err);
    return 0;
}

static int read_number(mr_hdf5 *h, const char *name, const attribute *a, double *out, mr_error *err)
{
    const H5T_class_t class = H5Tget_class(a->type);
    if (class != H5T_FLOAT && class != H5T_INTEGER)
        return mr_hdf5_refuse_plainly(h, "attribute", name, "must be a number", err);
    if (H5Aread(a->id, H5T_NATIVE_DOUBLE, out) < 0) return mr_hdf5_refuse(h, "attribute", name, "is damaged", err);
    return 0;
}

int mr_hdf5_take_number(mr_hdf5 *h, const char *object, const char *name, double *out, mr_error *err)
{
    attribute a = {-1, -1, -1, -1};
    *out = 0;
    int rc = open_attribute(h, object, name, &a, err);
    if (!rc) rc = read_number(h, name, &a, out, err);
    close_attribute(&a);
    return rc;
}

static int copy_text(mr_hdf5 *h, const char *name, const char *text, size_t most, char *out, size_t room, mr_error *err)
{
    const size_t length = text ? strnlen(text, most) : 0;
    if (length >= room)
        return mr_fail(err, MR_EFORMAT, "%s: attribute %s is longer than %zu bytes", h->path, name, room - 1);
    if (length) memcpy(out, text, length);
    out[length] = 0;
    return 0;
}

/* A text in the attribute itself, or a pointer to one, which libhdf5 allocates. */
static int read_text(mr_hdf5 *h, const char *name, const attribute *a, char *out, size_t room, mr_error *err)
{
    char fixed[LONGEST] = "", *any = NULL;
    const int of_any_length = H5Tis_variable_str(a->type) > 0;
    if (H5Tget_class(a->type) != H5T_STRING || (!of_any_length && H5Tget_size(a->type) > sizeof fixed))
        return mr_hdf5_refuse_plainly(h, "attribute", name, "must be a text", err);
    if (H5Aread(a->id, a->type, of_any_length ? (void *)&any : fixed) < 0)
        return mr_hdf5_refuse(h, "attribute", name, "is damaged", err);
    if (!of_any_length) return copy_text(h, name, fixed, H5Tget_size(a->type), out, room, err);
    int rc = copy_text(h, name, any, room, out, room, err);
    H5Dvlen_reclaim(a->type, a->space, H5P_DEFAULT, &any);
    return rc;
}

int mr_hdf5_take_text(mr_hdf5 *h, const char *object, const char *name, char *out, size_t room, mr_error *err)
{
    attribute a = {-1, -1, -1, -1};
    *out = 0;
    int rc = open_attribute(h, object, name, &a, err);
    if (!rc) rc = read_text(h, name, &a, out, room, err);
    close_attribute(&a);
    return rc;
}
