/* Arrays and attributes of a new HDF5 file, without times, so that the same content gives the same bytes. */
#include "control/hdf5_inside.h"

static int write_array(mr_hdf5 *h, const char *name, hid_t stored, hid_t given, const void *from, const hsize_t *dims,
                       int count, mr_error *err)
{
    int rc = 0;
    hid_t set = -1, space = H5Screate_simple(count, dims, NULL), creation = H5Pcreate(H5P_DATASET_CREATE);
    if (space >= 0 && creation >= 0 && H5Pset_obj_track_times(creation, 0) >= 0)
        set = H5Dcreate2(h->file, name, stored, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (set < 0 || H5Dwrite(set, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, from) < 0)
        rc = mr_hdf5_refuse(h, "array", name, "cannot be written", err);
    if (set >= 0) H5Dclose(set);
    if (creation >= 0) H5Pclose(creation);
    if (space >= 0) H5Sclose(space);
    return rc;
}

int mr_hdf5_write_floats(mr_hdf5 *h, const char *name, const float *from, size_t rows, size_t columns, mr_error *err)
{
    mr_hdf5_enter();
    return mr_hdf5_leave(
        write_array(h, name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, from, (hsize_t[]){rows, columns}, columns ? 2 : 1, err));
}

/* An enumeration FALSE, TRUE of one byte, as h5py has it. */
static hid_t boolean_type(void)
{
    const int8_t no = 0, yes = 1;
    hid_t type = H5Tenum_create(H5T_STD_I8LE);
    if (type < 0 || (H5Tenum_insert(type, "FALSE", &no) >= 0 && H5Tenum_insert(type, "TRUE", &yes) >= 0)) return type;
    H5Tclose(type);
    return -1;
}

int mr_hdf5_write_flags(mr_hdf5 *h, const char *name, const uint8_t *from, size_t rows, mr_error *err)
{
    mr_hdf5_enter();
    hid_t type = boolean_type();
    int rc = write_array(h, name, type, type, from, (hsize_t[]){rows}, 1, err);
    if (type >= 0) H5Tclose(type);
    return mr_hdf5_leave(rc);
}

int mr_hdf5_write_text(mr_hdf5 *h, const char *name, const char *text, mr_error *err)
{
    int rc = 0;
    mr_hdf5_enter();
    hid_t attribute = -1, space = H5Screate(H5S_SCALAR), type = H5Tcopy(H5T_C_S1);
    if (space >= 0 && type >= 0 && H5Tset_size(type, H5T_VARIABLE) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0)
        attribute = H5Acreate2(h->file, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (attribute < 0 || H5Awrite(attribute, type, &text) < 0)
        rc = mr_hdf5_refuse(h, "attribute", name, "cannot be written", err);
    if (attribute >= 0) H5Aclose(attribute);
    if (type >= 0) H5Tclose(type);
    if (space >= 0) H5Sclose(space);
    return mr_hdf5_leave(rc);
}
