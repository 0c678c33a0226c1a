/* Arrays of HDF5 files. libhdf5 trusts its files, so types, sizes and layouts are checked before it reads an array.
 * What is in other files (external and virtual arrays) is refused: a file's checksum would not cover it. */
#include "control/hdf5_inside.h"

#include "core/mem.h"

enum { WIDEST = 16 }; /* bytes of one number */

/* Zeros need no bytes in a file, so an array may be larger than what is stored of it: by so many bytes, and by as many
 * times as deflate can shrink zeros, or, for filters whose limits are not known, many times more. */
static const double FREE_BYTES = 64 << 20, DEFLATE_RATIO = 1100, OTHER_RATIO = 1 << 20;

typedef struct array {
    hid_t set, type, space, creation; /* −1: not open */
    size_t rows, columns;
} array;

static void close_array(array *a)
{
    if (a->creation >= 0) H5Pclose(a->creation);
    if (a->space >= 0) H5Sclose(a->space);
    if (a->type >= 0) H5Tclose(a->type);
    if (a->set >= 0) H5Oclose(a->set);
}

static int damaged(mr_hdf5 *h, const char *name, mr_error *err)
{
    return mr_hdf5_refuse(h, "array", name, "is damaged", err);
}

static int find_array(mr_hdf5 *h, const char *name, array *a, mr_error *err)
{
    int rc = mr_hdf5_find(h, "array", name, &a->set, err);
    if (rc) return rc;
    if (H5Iget_type(a->set) != H5I_DATASET) return mr_hdf5_refuse_plainly(h, "object", name, "is not an array", err);
    if ((a->type = H5Dget_type(a->set)) < 0 || (a->space = H5Dget_space(a->set)) < 0 ||
        (a->creation = H5Dget_create_plist(a->set)) < 0)
        return damaged(h, name, err);
    return 0;
}

/* Numbers, or the booleans of h5py: an enumeration of one byte with two names. */
static int check_type(mr_hdf5 *h, const char *name, const array *a, mr_error *err)
{
    const H5T_class_t class = H5Tget_class(a->type);
    const size_t size = H5Tget_size(a->type);
    const int boolean = class == H5T_ENUM && size == 1 && H5Tget_nmembers(a->type) == 2;
    const int number = (class == H5T_INTEGER || class == H5T_FLOAT) && size >= 1 && size <= WIDEST;
    if (number || boolean) return 0;
    return mr_hdf5_refuse_plainly(h, "array", name, "holds neither plain numbers nor booleans", err);
}

static int check_shape(mr_hdf5 *h, const char *name, array *a, mr_error *err)
{
    hsize_t dims[2] = {0, 1};
    const int count = H5Sget_simple_extent_type(a->space) == H5S_SIMPLE ? H5Sget_simple_extent_ndims(a->space) : 0;
    if (count < 1 || count > 2)
        return mr_fail(err, MR_EFORMAT, "%s: array %s has %d dimensions; it must have 1 or 2", h->path, name, count);
    if (H5Sget_simple_extent_dims(a->space, dims, NULL) != count) return damaged(h, name, err);
    if ((double)dims[0] * (double)dims[1] * WIDEST > (double)(SIZE_MAX / 2))
        return mr_fail(err, MR_EFORMAT, "%s: array %s claims to have %llu × %llu numbers, more than any memory holds",
                       h->path, name, (unsigned long long)dims[0], (unsigned long long)dims[1]);
    a->rows = (size_t)dims[0];
    a->columns = (size_t)dims[1];
    return 0;
}

/* Are all filters here? *ratio: how far they may shrink an array. */
static int check_filters(mr_hdf5 *h, const char *name, const array *a, double *ratio, mr_error *err)
{
    const int count = H5Pget_nfilters(a->creation);
    *ratio = count ? DEFLATE_RATIO : 1;
    for (int i = 0; i < count; i++) {
        char title[64] = "";
        unsigned flags, config;
        size_t values = 0;
        H5Z_filter_t filter =
            H5Pget_filter2(a->creation, (unsigned)i, &flags, &values, NULL, sizeof title - 1, title, &config);
        if (filter < 0) return damaged(h, name, err);
        if (H5Zfilter_avail(filter) <= 0)
            return mr_fail(err, MR_EFORMAT,
                           "%s: array %s is compressed by filter %d (%s), which this libhdf5 does not have; write it "
                           "again with gzip or without compression",
                           h->path, name, (int)filter, title);
        if (filter != H5Z_FILTER_DEFLATE && filter != H5Z_FILTER_SHUFFLE && filter != H5Z_FILTER_FLETCHER32)
            *ratio = OTHER_RATIO;
    }
    return count < 0 ? damaged(h, name, err) : 0;
}

/* The bytes of one chunk, which libhdf5 allocates; 0: the array is not cut into chunks. */
static double chunk_bytes(const array *a)
{
    hsize_t chunk[2] = {0, 1};
    if (H5Pget_layout(a->creation) != H5D_CHUNKED || H5Pget_chunk(a->creation, 2, chunk) < 1) return 0;
    return (double)chunk[0] * (double)chunk[1] * (double)H5Tget_size(a->type);
}

/* Could the file hold the array at all? So a few bytes never make the program ask for gigabytes. */
static int check_storage(mr_hdf5 *h, const char *name, const array *a, mr_error *err)
{
    double ratio;
    if (H5Pget_layout(a->creation) == H5D_VIRTUAL || H5Pget_external_count(a->creation) > 0)
        return mr_hdf5_refuse_plainly(h, "array", name, "is kept in other files; copy it into one", err);
    int rc = check_filters(h, name, a, &ratio, err);
    if (rc) return rc;
    const double stored = (double)H5Dget_storage_size(a->set), most = FREE_BYTES + ratio * stored;
    const double claimed = (double)a->rows * (double)a->columns * (double)H5Tget_size(a->type);
    if (stored > (double)h->bytes || claimed > most || chunk_bytes(a) > most)
        return mr_fail(err, MR_EFORMAT,
                       "%s: array %s claims to have %zu × %zu numbers, which its %.0f bytes in the file cannot hold; "
                       "the file is damaged or not complete",
                       h->path, name, a->rows, a->columns, stored);
    return 0;
}

int mr_hdf5_take_array(mr_hdf5 *h, const char *name, int doubles, void **out, size_t *rows, size_t *columns,
                       mr_error *err)
{
    const hid_t type = doubles ? H5T_NATIVE_DOUBLE : H5T_NATIVE_FLOAT;
    array a = {-1, -1, -1, -1, 0, 0};
    void *memory = NULL;
    int rc = find_array(h, name, &a, err);
    if (!rc) rc = check_type(h, name, &a, err);
    if (!rc) rc = check_shape(h, name, &a, err);
    if (!rc) rc = check_storage(h, name, &a, err);
    if (!rc && !(memory = mr_alloc(a.rows * a.columns, H5Tget_size(type))))
        rc = mr_fail(err, MR_ENOMEM, "%s: array %s has %zu × %zu numbers, too many for the memory of this machine",
                     h->path, name, a.rows, a.columns);
    if (!rc && a.rows && a.columns && H5Dread(a.set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, memory) < 0)
        rc = mr_hdf5_refuse(h, "array", name, "cannot be read: the file is damaged or not complete", err);
    if (rc) mr_free(memory);
    *out = rc ? NULL : memory;
    *rows = rc ? 0 : a.rows;
    *columns = rc ? 0 : a.columns;
    close_array(&a);
    return rc;
}
