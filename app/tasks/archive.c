/* Gzipped tar archives: gzip runs as a process, the tar headers are read here. */
#include "tasks/archive.h"

#include "core/file.h"
#include "core/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 512, MEMBERS = 32 }; /* bytes of a tar block; the most members that a set may have */

extern char **environ;

typedef struct unpacking {
    int fd; /* what gzip writes */
    const char *archive, *folder;
    const mr_data_member *members;
    int found[MEMBERS];
    mr_error *err;
    char name[101]; /* of the current file */
    uint64_t size;  /* of it, and … */
    char kind;      /* … the type in its header */
} unpacking;

/* ---- gzip, as a separate process */

static int start_gzip(const char *archive, int *fd, pid_t *pid, mr_error *err)
{
    int ends[2], wrong;
    char *const words[] = {"gzip", "-dc", "--", (char *)archive, NULL};
    posix_spawn_file_actions_t actions;
    if (pipe(ends)) return mr_fail(err, MR_EIO, "%s: cannot be unpacked: %s", archive, strerror(errno));
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    wrong = posix_spawnp(pid, "gzip", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    *fd = ends[0];
    if (!wrong) return 0;
    close(ends[0]);
    return mr_fail(err, MR_EIO, "%s: unpacking needs the program gzip, which cannot be started: %s", archive,
                   strerror(wrong));
}

/* Closing our end stops a gzip that still has output. */
static int end_gzip(const unpacking *u, pid_t pid, int status)
{
    int code = 0;
    close(u->fd);
    while (waitpid(pid, &code, 0) < 0 && errno == EINTR) {}
    return status;
}

static int cut_off(const unpacking *u)
{
    return mr_fail(u->err, MR_EDATA, "%s: is truncated or damaged; download it again", u->archive);
}

/* Exactly `bytes`. */
static int read_all(const unpacking *u, void *to, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t n = read(u->fd, (char *)to + got, bytes - got);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return mr_fail(u->err, MR_EIO, "%s: cannot be read: %s", u->archive, strerror(errno));
        if (n == 0) return cut_off(u);
        got += (size_t)n;
    }
    return 0;
}

/* ---- tar */

/* 1: u->name, kind and size are the next file's; 0: there is none. */
static int next_header(unpacking *u)
{
    unsigned char block[BLOCK];
    unsigned sum = 0, stated = 0;
    int status = read_all(u, block, BLOCK);
    if (status) return status;
    if (!block[0]) return 0;
    for (int i = 0; i < BLOCK; i++) sum += i >= 148 && i < 156 ? ' ' : block[i];
    for (int i = 148; i < 156; i++)
        if (block[i] >= '0' && block[i] <= '7') stated = 8 * stated + (unsigned)(block[i] - '0');
    if (sum != stated) return cut_off(u);
    u->size = 0;
    if (block[124] & 0x80)
        for (int i = 128; i < 136; i++) u->size = u->size << 8 | block[i]; /* GNU's encoding of large sizes */
    else
        for (int i = 124; i < 136; i++)
            if (block[i] >= '0' && block[i] <= '7') u->size = 8 * u->size + (uint64_t)(block[i] - '0');
    memcpy(u->name, block, 100);
    u->name[100] = 0;
    u->kind = (char)block[156];
    return 1;
}

/* Writes the current file to `file` (NULL: skips it). */
static int pass_data(unpacking *u, mr_replace *file, mr_sha256 *sha)
{
    char block[64 * BLOCK];
    uint64_t left = u->size;
    while (left) {
        size_t want = left < sizeof block ? (size_t)((left + BLOCK - 1) / BLOCK * BLOCK) : sizeof block;
        int status = read_all(u, block, want);
        if (status) return status;
        size_t real = left < want ? (size_t)left : want;
        if (sha) mr_sha256_add(sha, block, real);
        if (file) status = mr_replace_write(file, block, real, u->err);
        if (status) return status;
        left -= real;
    }
    return 0;
}

static int make_place(const unpacking *u, const mr_data_member *member, char **path)
{
    *path = mr_path_join(u->folder, member->file);
    if (!*path) return mr_no_memory(u->err, member->file);
    char *slash = strrchr(*path, '/');
    *slash = 0;
    int status = mr_make_directory(*path, u->err);
    *slash = '/';
    return status;
}

static int take_member(unpacking *u, const mr_data_member *member)
{
    char *path, text[MR_SHA256_TEXT];
    mr_replace file;
    mr_sha256 sha;
    int status = make_place(u, member, &path);
    if (!status) status = mr_replace_begin(&file, path, u->err);
    if (!status) {
        mr_sha256_begin(&sha);
        status = pass_data(u, &file, &sha);
        mr_sha256_end(&sha, text);
        if (!status && member->sha256 && strcmp(text, member->sha256))
            status = mr_fail(u->err, MR_EDATA, "%s: its %s is not the published one: its SHA-256 is %s, not %s",
                             u->archive, u->name, text, member->sha256);
        if (status) mr_replace_abort(&file);
        else status = mr_replace_commit(&file, u->err);
    }
    mr_free(path);
    return status;
}

static int is_file(char kind) { return kind == '0' || kind == 0; }

static int take_all(unpacking *u)
{
    int missing = 0;
    while (u->members[missing].file) missing++;
    while (missing) { /* what follows the last member is not read */
        int which = -1, status = next_header(u);
        if (status < 0) return status;
        if (!status) break;
        for (int i = 0; is_file(u->kind) && u->members[i].file; i++)
            if (!u->found[i] && !strcmp(mr_path_name(u->members[i].file), mr_path_name(u->name))) which = i;
        status = which < 0 ? pass_data(u, NULL, NULL) : take_member(u, &u->members[which]);
        if (status) return status;
        if (which >= 0) u->found[which] = 1, missing--;
    }
    for (int i = 0; missing; i++)
        if (!u->found[i])
            return mr_fail(u->err, MR_EDATA, "%s: has no %s in it", u->archive, mr_path_name(u->members[i].file));
    return 0;
}

int mr_unpack(const char *archive, const mr_data_member *members, const char *folder, mr_error *err)
{
    unpacking u = {.archive = archive, .folder = folder, .members = members, .err = err};
    pid_t pid;
    int status = start_gzip(archive, &u.fd, &pid, err);
    return status ? status : end_gzip(&u, pid, take_all(&u));
}
