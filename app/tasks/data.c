/* Published data sets: finding, checking and downloading them. */
#include "tasks/data.h"

#include "core/file.h"
#include "core/mem.h"
#include "tasks/archive.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const mr_data_member cifar10[] = {
    {"cifar10/data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"},
    {"cifar10/data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"},
    {"cifar10/data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"},
    {"cifar10/data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"},
    {"cifar10/data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"},
    {"cifar10/test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"},
    {NULL, NULL}};

static const mr_data_member lra[] = {{"listops/basic_train.tsv", NULL},
                                     {"listops/basic_val.tsv", NULL},
                                     {"listops/basic_test.tsv", NULL},
                                     {"retrieval/new_aan_pairs.train.tsv", NULL},
                                     {"retrieval/new_aan_pairs.eval.tsv", NULL},
                                     {"retrieval/new_aan_pairs.test.tsv", NULL},
                                     {NULL, NULL}};

static const mr_data_set sets[] = {
    {.name = "shakespeare",
     .file = "tinyshakespeare.txt",
     .url = "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
     .sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
     .bytes = 1115394,
     .about = "40,000 lines of Shakespeare, as published with char-rnn"},
    {.name = "cifar10",
     .file = "cifar-10-binary.tar.gz",
     .url = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
     .about = "60,000 small pictures of ten kinds of things, as six binary files",
     .members = cifar10,
     .instead = "cifar10/gray.bin"},
    {.name = "lra",
     .file = "lra_release.gz",
     .url = "https://storage.googleapis.com/long-range-arena/lra_release.gz",
     .about = "of Long Range Arena's release (several GB): its ListOps files, and pairs of papers for retrieval (AAN)",
     .members = lra},
    {.name = NULL}};

const mr_data_set *mr_data_sets(void) { return sets; }

const mr_data_set *mr_data_set_find(const char *name)
{
    for (const mr_data_set *set = sets; set->name; set++)
        if (strcmp(set->name, name) == 0) return set;
    return NULL;
}

static int need_set(const char *name, const mr_data_set **set, mr_error *err)
{
    *set = mr_data_set_find(name);
    if (*set) return 0;
    return mr_fail(err, MR_EINVAL, "there is no data set named '%s': `minrnn data list` shows the known ones", name);
}

/* ---- where files are */

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* A file's path in the cache folder; NULL where there is no such folder, or no memory. */
static char *cache_path(const char *file)
{
    const char *xdg = environment("XDG_CACHE_HOME"), *home = environment("HOME");
    if (xdg && xdg[0] != '/') xdg = NULL; /* the XDG specification ignores relative paths */
    if (!xdg && !home) return NULL;
    char *folder = xdg ? mr_path_join(xdg, "minrnn") : mr_path_join(home, ".cache/minrnn");
    char *path = folder ? mr_path_join(folder, file) : NULL;
    mr_free(folder);
    return path;
}

static int make_folder_of(char *path, mr_error *err)
{
    char *slash = strrchr(path, '/'); /* a cache path always has one */
    *slash = 0;
    int status = mr_make_directory(path, err);
    *slash = '/';
    return status;
}

char *mr_data_cache(const char *file)
{
    char *path = cache_path(file);
    if (path && make_folder_of(path, NULL) == 0) return path;
    mr_free(path);
    return NULL;
}

static char *if_exists(char *path)
{
    if (path && mr_path_exists(path)) return path;
    mr_free(path);
    return NULL;
}

char *mr_data_locate(const char *file)
{
    const char *folder = environment("MINRNN_DATA");
    char *path = folder ? if_exists(mr_path_join(folder, file)) : NULL;
    return path ? path : if_exists(cache_path(file));
}

static char *locate(const mr_data_set *set)
{
    char *path = set->members ? NULL : mr_data_locate(set->file);
    if (set->instead) path = mr_data_locate(set->instead);
    for (const mr_data_member *m = set->members; !path && m && m->file; m++) {
        char *member = mr_data_locate(m->file);
        if (!member) return NULL;
        if (!m[1].file) path = mr_data_locate(set->members->file);
        mr_free(member);
    }
    return path;
}

static int not_here(const mr_data_set *set, const char *file, mr_error *err)
{
    return mr_fail(err, MR_ENODATA,
                   "%s is not on this machine: run `minrnn data get %s`, "
                   "or set MINRNN_DATA to the folder that has %s",
                   set->name, set->name, file);
}

int mr_data_find(const char *name, char **path, mr_error *err)
{
    const mr_data_set *set;
    *path = NULL;
    int status = need_set(name, &set, err);
    if (status) return status;
    *path = locate(set);
    return *path ? 0 : not_here(set, set->members ? set->members->file : set->file, err);
}

int mr_data_find_member(const char *name, const char *file, char **path, mr_error *err)
{
    const mr_data_set *set;
    *path = NULL;
    int status = need_set(name, &set, err);
    if (status) return status;
    *path = mr_data_locate(file);
    return *path ? 0 : not_here(set, file, err);
}

/* ---- whether they are complete */

static int check(const mr_data_set *set, const char *from, uint64_t bytes, const char *sha256, mr_error *err)
{
    if (set->bytes && bytes != set->bytes)
        return mr_fail(err, MR_EDATA, "%s is not the published %s: it has %" PRIu64 " bytes, not %" PRIu64, from,
                       set->name, bytes, set->bytes);
    if (set->sha256 && strcmp(sha256, set->sha256))
        return mr_fail(err, MR_EDATA, "%s is not the published %s: its SHA-256 is %s, not %s", from, set->name, sha256,
                       set->sha256);
    return 0;
}

static int read_checked(const mr_data_set *set, const char *path, char **bytes, size_t *size, mr_error *err)
{
    char sha256[MR_SHA256_TEXT];
    int status = mr_file_read(path, UINT32_MAX, bytes, size, err);
    if (status) return status;
    mr_sha256_of(*bytes, *size, sha256);
    status = check(set, path, *size, sha256, err);
    if (status) {
        mr_free(*bytes);
        *bytes = NULL;
    }
    return status;
}

int mr_data_load(const char *name, char **bytes, size_t *size, mr_error *err)
{
    char *path;
    *bytes = NULL;
    int status = mr_data_find(name, &path, err);
    if (status == 0) status = read_checked(mr_data_set_find(name), path, bytes, size, err);
    mr_free(path);
    return status;
}

/* ---- download */

#ifdef MINRNN_WITH_CURL
#include <curl/curl.h>

typedef struct download {
    const mr_data_set *set;
    mr_replace file;
    mr_sha256 sha;
    uint64_t done;
    mr_data_progress *progress;
    void *arg;
    int status; /* our own errors; curl's come from curl_easy_perform */
    mr_error *err;
} download;

static size_t receive(char *data, size_t one, size_t size, void *user)
{
    download *d = user;
    (void)one; /* always 1 */
    d->done += size;
    if (d->set->bytes && d->done > d->set->bytes)
        d->status = mr_fail(d->err, MR_EDATA, "%s gives more than the %" PRIu64 " bytes of the published %s",
                            d->set->url, d->set->bytes, d->set->name);
    if (d->status == 0) d->status = mr_replace_write(&d->file, data, size, d->err);
    mr_sha256_add(&d->sha, data, size);
    return d->status ? 0 : size;
}

static int report(void *user, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    download *d = user;
    (void)total, (void)now, (void)up_total, (void)up_now;
    if (d->progress && d->progress(d->arg, d->done, d->set->bytes))
        d->status = mr_fail(d->err, MR_ESTOPPED, "the download of %s was stopped", d->set->name);
    return d->status;
}

static int transfer(download *d, mr_error *err)
{
    char reason[CURL_ERROR_SIZE] = "";
    CURL *curl = curl_easy_init();
    if (!curl) return mr_no_memory(err, "the download");
    curl_easy_setopt(curl, CURLOPT_URL, d->set->url);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 8L);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 60L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, d);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, report);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, d);
    CURLcode code = curl_easy_perform(curl);
    curl_easy_cleanup(curl);
    if (d->status) return d->status;
    if (code == CURLE_OK) return 0;
    return mr_fail(err, MR_EIO, "cannot download %s: %s", d->set->url, reason[0] ? reason : curl_easy_strerror(code));
}

int mr_data_download(const mr_data_set *set, const char *path, mr_data_progress *progress, void *arg, mr_error *err)
{
    download d = {.set = set, .progress = progress, .arg = arg, .err = err};
    char sha256[MR_SHA256_TEXT];
    int status = mr_replace_begin(&d.file, path, err);
    if (status) return status;
    mr_sha256_begin(&d.sha);
    status = transfer(&d, err);
    mr_sha256_end(&d.sha, sha256);
    if (status == 0) status = check(set, set->url, d.done, sha256, err);
    if (status == 0) return mr_replace_commit(&d.file, err);
    mr_replace_abort(&d.file);
    return status;
}
#else
int mr_data_download(const mr_data_set *set, const char *path, mr_data_progress *progress, void *arg, mr_error *err)
{
    (void)progress, (void)arg;
    return mr_fail(err, MR_EDATA, "this build cannot download (no libcurl): download %s and put it at %s", set->url,
                   path);
}
#endif

static int download_into_cache(const mr_data_set *set, char *path, mr_data_progress *progress, void *arg, mr_error *err)
{
    if (!path)
        return mr_fail(err, MR_EDATA,
                       "no folder to download into: set HOME or XDG_CACHE_HOME, "
                       "or put %s into MINRNN_DATA",
                       set->file);
    int status = make_folder_of(path, err);
    return status ? status : mr_data_download(set, path, progress, arg, err);
}

/* Downloads the archive into the cache folder, extracts its members, and removes it. */
static int get_archive(const mr_data_set *set, char *path, mr_data_progress *progress, void *arg, mr_error *err)
{
    int status = download_into_cache(set, path, progress, arg, err);
    if (status) return status;
    char *folder = mr_strdup(path);
    if (!folder) return mr_no_memory(err, path);
    *strrchr(folder, '/') = 0;
    status = mr_unpack(path, set->members, folder, err);
    mr_free(folder);
    if (!status) unlink(path); /* an archive that could not be read is kept for inspection */
    return status;
}

/* 1 when a whole file is found already, else 0. A broken one in MINRNN_DATA is an error, because it would hide what is
 * downloaded; a broken one in the cache is simply replaced. */
static int found_whole(const mr_data_set *set, const char *cache, char **path, mr_error *err)
{
    char *bytes = NULL;
    size_t size;
    *path = locate(set);
    if (!*path) return 0;
    if (set->members) return 1; /* the task checks them when it reads them */
    int status = read_checked(set, *path, &bytes, &size, err);
    mr_free(bytes);
    if (status == 0) return 1;
    int replaceable = cache && strcmp(*path, cache) == 0;
    mr_free(*path);
    *path = NULL;
    return replaceable ? 0 : status;
}

int mr_data_get(const char *name, mr_data_progress *progress, void *arg, char **path, mr_error *err)
{
    const mr_data_set *set;
    *path = NULL;
    int status = need_set(name, &set, err);
    return status ? status : mr_data_get_set(set, progress, arg, path, err);
}

int mr_data_get_set(const mr_data_set *set, mr_data_progress *progress, void *arg, char **path, mr_error *err)
{
    char *cache = cache_path(set->file);
    int found = found_whole(set, cache, path, err), status = 0;
    if (found == 0) status = (set->members ? get_archive : download_into_cache)(set, cache, progress, arg, err);
    if (found == 0 && status == 0) *path = locate(set);
    mr_free(cache);
    return found < 0 ? found : status;
}
