/* Opening weights of other programs: finding the files, reading the index, listing the tensors. */
#include "weights/foreign.h"

#include "core/file.h"
#include "core/mem.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    SIDECAR_MAX = 64 << 20, /* bytes of an index or a config.json */
    SHARDS_MAX = 1000,
    SHOWN = 100 /* bytes of a name that an error message repeats */
};

/* ---- shards */

static int by_name(const void *left, const void *right)
{
    return strcmp(((const mr_foreign_tensor *)left)->at->name, ((const mr_foreign_tensor *)right)->at->name);
}

/* Lists the tensors of all shards, which are open. */
static int list_tensors(mr_foreign *f, mr_error *err)
{
    size_t count = 0;
    for (int i = 0; i < f->shard_count; i++) count += (size_t)mr_st_count(f->shards[i].st);
    f->tensors = mr_alloc(count + 1, sizeof *f->tensors);
    if (!f->tensors) return mr_no_memory(err, f->path);
    for (int i = 0; i < f->shard_count; i++)
        for (int k = 0; k < mr_st_count(f->shards[i].st); k++)
            f->tensors[f->count++] = (mr_foreign_tensor){mr_st_at(f->shards[i].st, k), i};
    if (count) qsort(f->tensors, count, sizeof *f->tensors, by_name);
    for (int i = 1; i < f->count; i++)
        if (!strcmp(f->tensors[i - 1].at->name, f->tensors[i].at->name))
            return mr_fail(err, MR_EFORMAT, "%s: tensor %.*s is in two shards", f->path, SHOWN, f->tensors[i].at->name);
    return 0;
}

/* Opens a file as the next shard and takes over the path's memory. */
static int add_shard(mr_foreign *f, char *path, mr_error *err)
{
    mr_shard *shard = &f->shards[f->shard_count];
    if (!path) return mr_no_memory(err, f->path);
    const int status = mr_st_open(path, &shard->st, err);
    shard->path = path;
    f->shard_count++;
    return status;
}

int mr_is_torch_save(const char *path)
{
    unsigned char begin[4] = {0};
    uint64_t size = 0;
    int fd = -1;
    if (mr_file_open(path, &fd, &size, NULL)) return 0;
    const int read = size >= sizeof begin && !mr_file_read_at(fd, path, 0, begin, sizeof begin, NULL);
    mr_file_close(fd);
    return read && (!memcmp(begin, "PK\3\4", 4) || (begin[0] == 0x80 && begin[1] >= 2 && begin[1] <= 5 && begin[3]));
}

static int open_single(mr_foreign *f, mr_error *err)
{
    f->shards = mr_alloc(1, sizeof *f->shards);
    if (!f->shards) return mr_no_memory(err, f->path);
    const int status = add_shard(f, mr_strdup(f->path), err);
    if (status != MR_EFORMAT || !mr_is_torch_save(f->path)) return status;
    return mr_fail(err, MR_EFORMAT,
                   "%s: written by torch.save, and not a safetensors file; docs/weights.md says how to convert it",
                   f->path);
}

/* ---- the index */

/* The shard of this name; −1: it is not open yet. */
static int shard_of(const mr_foreign *f, const char *name)
{
    for (int i = 0; i < f->shard_count; i++)
        if (!strcmp(mr_path_name(f->shards[i].path), name)) return i;
    return -1;
}

/* A shard lies beside its index: anything else could name any file of this machine. */
static int check_name(const mr_foreign *f, const mr_sidecar_entry *e, mr_error *err)
{
    if (!e->value || !e->is_text || !*e->value)
        return mr_fail(err, MR_EFORMAT, "%s: weight_map: %.*s has no name of a file", f->path, SHOWN, e->key);
    if (strchr(e->value, '/') || strchr(e->value, '\\') || !strcmp(e->value, ".") || !strcmp(e->value, ".."))
        return mr_fail(err, MR_EFORMAT, "%s: weight_map: %.*s is in %.*s, which is not a file of the same folder",
                       f->path, SHOWN, e->key, SHOWN, e->value);
    return 0;
}

static int open_shards(mr_foreign *f, const mr_sidecar *map, const char *folder, mr_error *err)
{
    char *path;
    int status = 0;
    for (int i = 0; !status && i < map->count; i++) {
        status = check_name(f, &map->entries[i], err);
        if (status || shard_of(f, map->entries[i].value) >= 0) continue;
        if (f->shard_count == SHARDS_MAX)
            return mr_fail(err, MR_EFORMAT, "%s: names more than %d shards", f->path, SHARDS_MAX);
        path = mr_path_join(folder, map->entries[i].value);
        if (path && !mr_path_exists(path)) {
            mr_free(path);
            return mr_fail(err, MR_EIO, "%s: weight_map: %.*s is in %.*s, which does not exist", f->path, SHOWN,
                           map->entries[i].key, SHOWN, map->entries[i].value);
        }
        status = add_shard(f, path, err);
    }
    return status;
}

/* Every tensor lies where the map says, and the map names every tensor. */
static int check_map(const mr_foreign *f, const mr_sidecar *map, mr_error *err)
{
    for (int i = 0; i < map->count; i++) {
        const mr_sidecar_entry *e = &map->entries[i];
        const mr_foreign_tensor *t = mr_foreign_find(f, e->key);
        if (!t || t->shard != shard_of(f, e->value))
            return mr_fail(err, MR_EFORMAT, "%s: weight_map: %.*s is not in %.*s", f->path, SHOWN, e->key, SHOWN,
                           e->value);
    }
    for (int i = 0; i < f->count; i++)
        if (!mr_sidecar_find(map, f->tensors[i].at->name))
            return mr_fail(err, MR_EFORMAT, "%s: weight_map does not name the tensor %.*s of %s", f->path, SHOWN,
                           f->tensors[i].at->name, mr_foreign_file(f, &f->tensors[i]));
    return 0;
}

static int read_sidecar(mr_sidecar *s, const char *path, const char *inside, mr_error *err)
{
    char *text;
    size_t size;
    int status = mr_file_read(path, SIDECAR_MAX, &text, &size, err);
    if (status) return status;
    status = mr_sidecar_read(s, path, text, size, inside, err);
    mr_free(text);
    return status;
}

static int open_index(mr_foreign *f, const char *folder, mr_error *err)
{
    mr_sidecar map;
    int status = read_sidecar(&map, f->path, "weight_map", err);
    if (status) return status;
    f->shards = mr_alloc(SHARDS_MAX, sizeof *f->shards);
    if (!f->shards) status = mr_no_memory(err, f->path);
    if (!status && !map.count) status = mr_fail(err, MR_EFORMAT, "%s: its weight_map is empty", f->path);
    if (!status) status = open_shards(f, &map, folder, err);
    if (!status) status = list_tensors(f, err);
    if (!status) status = check_map(f, &map, err);
    mr_sidecar_free(&map);
    return status;
}

/* ---- folders */

static int ends_in(const char *name, const char *end)
{
    const size_t size = strlen(name), tail = strlen(end);
    return size > tail && !strcmp(name + size - tail, end);
}

/* The only *.safetensors of a folder. */
static int find_only(const char *folder, char **path, mr_error *err)
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (!dir) return mr_fail(err, MR_EIO, "%s: cannot be read", folder);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (!ends_in(e->d_name, ".safetensors") || count++) continue;
        *path = mr_path_join(folder, e->d_name);
    }
    closedir(dir);
    if (count == 1) return *path ? 0 : mr_no_memory(err, folder);
    mr_free(*path);
    *path = NULL;
    return mr_fail(err, MR_EIO,
                   count ? "%s: has several safetensors files and no index; name one of them"
                         : "%s: a folder without safetensors files",
                   folder);
}

static int find_in_folder(const char *folder, char **path, mr_error *err)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        *path = mr_path_join(folder, names[i]);
        if (!*path) return mr_no_memory(err, folder);
        if (mr_path_exists(*path)) return 0;
        mr_free(*path);
        *path = NULL;
    }
    return find_only(folder, path, err);
}

static int open_config(mr_foreign *f, const char *folder, mr_error *err)
{
    char *path = mr_path_join(folder, "config.json");
    if (!path) return mr_no_memory(err, folder);
    struct stat st;
    /* a link to nowhere is no missing file: what it should say must not be assumed */
    const int status = !lstat(path, &st) ? read_sidecar(&f->config, path, NULL, err) : 0;
    mr_free(path);
    return status;
}

static int open_all(mr_foreign *f, const char *given, mr_error *err)
{
    struct stat st;
    int status = 0;
    f->is_folder = !stat(given, &st) && S_ISDIR(st.st_mode);
    if (f->is_folder) status = find_in_folder(given, &f->path, err);
    else if (!(f->path = mr_strdup(given))) status = mr_no_memory(err, given);
    char *folder = status ? NULL : mr_path_folder(f->path);
    if (!status && !folder) status = mr_no_memory(err, given);
    if (!status && ends_in(f->path, ".json")) {
        status = open_index(f, folder, err);
    } else if (!status) {
        status = open_single(f, err);
        if (!status) status = list_tensors(f, err);
    }
    if (!status) status = open_config(f, folder, err);
    mr_free(folder);
    return status;
}

/* ---- the handle */

int mr_foreign_open(const char *path, mr_foreign **out, mr_error *err)
{
    *out = NULL;
    mr_foreign *f = mr_alloc(1, sizeof *f);
    if (!f) return mr_no_memory(err, path);
    const int status = open_all(f, path, err);
    if (status) mr_foreign_close(f);
    else *out = f;
    return status;
}

int mr_foreign_open_memory(const void *data, size_t size, const char *config, size_t config_size, mr_foreign **out,
                           mr_error *err)
{
    *out = NULL;
    mr_foreign *f = mr_alloc(1, sizeof *f);
    if (!f) return mr_no_memory(err, "weights");
    f->path = mr_strdup("memory");
    f->shards = mr_alloc(1, sizeof *f->shards);
    int status = f->path && f->shards ? 0 : mr_no_memory(err, "weights");
    if (!status) {
        f->shard_count = 1;
        f->shards->path = mr_strdup("memory");
        status = f->shards->path ? mr_st_open_memory(data, size, "memory", &f->shards->st, err)
                                 : mr_no_memory(err, "weights");
    }
    if (!status) status = list_tensors(f, err);
    if (!status && config) status = mr_sidecar_read(&f->config, "config.json", config, config_size, NULL, err);
    if (status) mr_foreign_close(f);
    else *out = f;
    return status;
}

void mr_foreign_close(mr_foreign *f)
{
    if (!f) return;
    for (int i = 0; i < f->shard_count; i++) {
        mr_st_close(f->shards[i].st);
        mr_free(f->shards[i].path);
    }
    mr_free(f->shards);
    mr_free(f->tensors);
    mr_sidecar_free(&f->config);
    mr_free(f->path);
    mr_free(f);
}

/* ---- looking up */

const mr_foreign_tensor *mr_foreign_find(const mr_foreign *f, const char *name)
{
    const mr_st_tensor key = {.name = name};
    const mr_foreign_tensor wanted = {.at = &key};
    return f->count ? bsearch(&wanted, f->tensors, (size_t)f->count, sizeof *f->tensors, by_name) : NULL;
}

const mr_foreign_tensor *mr_foreign_find_at(const mr_foreign *f, const char *format, int number)
{
    char name[160];
    const char *gap = strstr(format, "%d");
    if (!gap) return mr_foreign_find(f, format);
    snprintf(name, sizeof name, "%.*s%d%s", (int)(gap - format), format, number, gap + 2);
    return mr_foreign_find(f, name);
}

int mr_foreign_has(const mr_foreign *f, const char *name) { return mr_foreign_find(f, name) != NULL; }

int mr_foreign_blocks(const mr_foreign *f, const char *format)
{
    int count = 0;
    while (mr_foreign_find_at(f, format, count)) count++;
    return count;
}

const char *mr_foreign_meta(const mr_foreign *f, const char *key)
{
    const char *value = NULL;
    for (int i = 0; !value && i < f->shard_count; i++) value = mr_st_meta(f->shards[i].st, key);
    return value;
}

const char *mr_foreign_file(const mr_foreign *f, const mr_foreign_tensor *t) { return f->shards[t->shard].path; }

int mr_foreign_read(const mr_foreign *f, const mr_foreign_tensor *t, float *to, mr_error *err)
{
    const char *path = mr_foreign_file(f, t);
    const int status = mr_st_read_floats(f->shards[t->shard].st, path, t->at, to, err);
    if (status) return status;
    for (size_t i = 0; i < mr_st_elements(t->at); i++)
        if (!isfinite(to[i]))
            return mr_fail(err, MR_EFORMAT, "%s: tensor %.*s: element %zu is %s", path, SHOWN, t->at->name, i,
                           isnan(to[i]) ? "NaN" : "infinite");
    return 0;
}
