/* HDF5 files through libhdf5: opened, created, finished and closed, and their objects found by name. libhdf5 is not
 * made for threads, so one lock is held around every use of it. What is in another file (external links) is refused: a
 * file's checksum would not cover it. */
#include "control/hdf5_inside.h"

#include "core/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { REASON = 200 };     /* letters of libhdf5's own words */
enum { GROWTH = 1 << 20 }; /* by so many bytes grows a file that is written */

#define TEXT_OF(number) TEXT_OF_VALUE(number)
#define TEXT_OF_VALUE(number) #number
const char *mr_hdf5_version(void)
{
    return TEXT_OF(H5_VERS_MAJOR) "." TEXT_OF(H5_VERS_MINOR) "." TEXT_OF(H5_VERS_RELEASE);
}

/* ---- the lock, and libhdf5's own errors */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void mr_hdf5_enter(void)
{
    pthread_mutex_lock(&lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* it prints nothing itself; where it knows threads, each has to say so */
}

int mr_hdf5_leave(int status)
{
    pthread_mutex_unlock(&lock);
    return status;
}

static herr_t take_innermost(unsigned depth, const H5E_error2_t *error, void *reason)
{
    if (!depth && error->desc) snprintf(reason, REASON, " (%s)", error->desc);
    return 0;
}

int mr_hdf5_refuse(const mr_hdf5 *h, const char *kind, const char *name, const char *what, mr_error *err)
{
    char reason[REASON] = "";
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_innermost, reason);
    return mr_fail(err, MR_EFORMAT, "%s: %s %s %s%s", h->path, kind, name, what, reason);
}

int mr_hdf5_refuse_plainly(const mr_hdf5 *h, const char *kind, const char *name, const char *what, mr_error *err)
{
    return mr_fail(err, MR_EFORMAT, "%s: %s %s %s", h->path, kind, name, what);
}

/* ---- opening and closing */

void mr_hdf5_release(mr_hdf5 *h)
{
    if (h->links >= 0) H5Pclose(h->links);
    if (h->file >= 0) H5Fclose(h->file);
    if (h->writing) mr_replace_abort(&h->target);
    mr_free(h->path);
    mr_free(h);
}

static herr_t follow_no_external_link(const char *parent_file, const char *parent_group, const char *file,
                                      const char *object, unsigned *flags, hid_t access, void *user)
{
    return (void)parent_file, (void)parent_group, (void)file, (void)object, (void)flags, (void)access, (void)user, -1;
}

mr_hdf5 *mr_hdf5_new(const char *path)
{
    mr_hdf5 *h = mr_alloc(1, sizeof *h);
    if (!h) return NULL;
    h->file = h->links = -1;
    h->wire = -1;
    h->path = mr_strdup(path);
    if (h->path) return h;
    mr_free(h);
    return NULL;
}

/* How files are opened: all that is in them is closed with them; and without locks, which some network file systems do
 * not have. */
static hid_t file_access(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
#if H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
    H5Pset_file_locking(access, 0, 1);
#endif
    return access;
}

int mr_hdf5_open_here(mr_hdf5 *h, mr_error *err)
{
    hid_t access = file_access();
    h->links = H5Pcreate(H5P_DATASET_ACCESS);
    if (access >= 0 && h->links >= 0 && H5Pset_elink_cb(h->links, follow_no_external_link, NULL) >= 0)
        h->file = H5Fopen(h->path, H5F_ACC_RDONLY, access);
    int rc =
        h->file < 0 ? mr_hdf5_refuse(h, "this", "is", "not an HDF5 file, or it is damaged or not complete", err) : 0;
    if (access >= 0) H5Pclose(access);
    return rc;
}

/* The file is built in memory, so a disk that is full is met by mr_replace_write, and not by libhdf5, which then cannot
 * close it. */
static int create_file(mr_hdf5 *h, mr_error *err)
{
    int rc = mr_replace_begin(&h->target, h->path, err);
    if (rc) return rc;
    h->writing = 1;
    hid_t access = file_access(), creation = H5Pcreate(H5P_FILE_CREATE);
    if (access >= 0 && creation >= 0 && H5Pset_fapl_core(access, GROWTH, 0) >= 0 &&
        H5Pset_obj_track_times(creation, 0) >= 0) /* without the time of day */
        h->file = H5Fcreate(h->path, H5F_ACC_TRUNC, creation, access);
    if (h->file < 0) rc = mr_hdf5_refuse(h, "this", "file", "cannot be created", err);
    if (creation >= 0) H5Pclose(creation);
    if (access >= 0) H5Pclose(access);
    return rc;
}

int mr_hdf5_create(const char *path, mr_hdf5 **out, mr_error *err)
{
    mr_hdf5_enter();
    *out = NULL;
    mr_hdf5 *h = mr_hdf5_new(path);
    int rc = h ? create_file(h, err) : mr_no_memory(err, path);
    if (!rc) *out = h;
    else if (h) mr_hdf5_release(h);
    return mr_hdf5_leave(rc);
}

static int write_image(mr_hdf5 *h, mr_error *err)
{
    ssize_t size = H5Fflush(h->file, H5F_SCOPE_GLOBAL) < 0 ? -1 : H5Fget_file_image(h->file, NULL, 0);
    if (size < 0) return mr_hdf5_refuse(h, "this", "file", "cannot be finished", err);
    char *image = mr_alloc((size_t)size, 1);
    if (!image) return mr_no_memory(err, h->path);
    int rc = H5Fget_file_image(h->file, image, (size_t)size) == size
                 ? mr_replace_write(&h->target, image, (size_t)size, err)
                 : mr_hdf5_refuse(h, "this", "file", "cannot be finished", err);
    mr_free(image);
    return rc;
}

int mr_hdf5_finish(mr_hdf5 *h, mr_error *err)
{
    mr_hdf5_enter();
    int rc = write_image(h, err);
    if (!rc) {
        h->writing = 0;
        rc = mr_replace_commit(&h->target, err);
    }
    mr_hdf5_release(h);
    return mr_hdf5_leave(rc);
}

/* ---- names */

int mr_hdf5_is_there(mr_hdf5 *h, const char *name) { return H5Oexists_by_name(h->file, name, h->links) > 0; }

int mr_hdf5_find(mr_hdf5 *h, const char *kind, const char *name, hid_t *object, mr_error *err)
{
    const int there = mr_hdf5_is_there(h, name);
    *object = there ? H5Oopen(h->file, name, h->links) : -1;
    if (*object >= 0) return 0;
    if (there) return mr_hdf5_refuse(h, kind, name, "cannot be opened", err);
    if (H5Lexists(h->file, name, h->links) > 0)
        return mr_hdf5_refuse_plainly(h, kind, name, "is a link that leads nowhere, or into another file", err);
    return mr_hdf5_refuse_plainly(h, kind, name, "is not in the file", err);
}

/* libhdf5 also gives an error where a group on the way is not there, so errors count for names without a group. */
int mr_hdf5_is_named(mr_hdf5 *h, const char *name)
{
    const htri_t link = mr_hdf5_is_there(h, name) ? 1 : H5Lexists(h->file, name, h->links);
    return link > 0 || (link < 0 && !strchr(name, '/'));
}

int mr_hdf5_is_attribute(mr_hdf5 *h, const char *object, const char *name)
{
    return mr_hdf5_is_there(h, object) && H5Aexists_by_name(h->file, object, name, h->links) != 0;
}
