/* Loaded before libc by LD_PRELOAD: makes the N-th call of a kind fail, or ends the process there.
 * tests/faults.py drives it.
 *
 * MINRNN_FAULT=KIND:N   N counts calls after main() began, from 1.
 *   memory   the N-th allocation returns NULL
 *   thread   the N-th thread is refused
 *   file     the N-th call on files fails (a write as on a full disk)
 *   short    the N-th write takes half of its bytes, the next one fails
 *   kill     the process ends before the N-th call that changes files
 *   cut      the same, as a power cut that loses what was not synced: files are truncated to their synced size
 *   undo     the same, and renames are lost too unless their folder was synced
 * MINRNN_FAULT_REPORT=FILE   gets "fired NAME" when it happened, and "left BLOCKS FILES": memory and descriptors
 *                            still held when
 *   main() returned. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BLOCKS = 1 << 18, FILES = 64, DESCRIPTORS = 256, NAME = 512, CUT_STATUS = 9 };
enum kind { NOTHING, MEMORY, THREAD, FILE_CALL, SHORT, KILL, CUT, UNDO };

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t align, size_t size);
void __libc_free(void *block);

static enum kind kind;
static long wanted, calls;
static int armed, halved;
static const char *report;

/* ---- reporting */

static void tell(const char *format, ...)
{
    char line[128];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, report, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (syscall(SYS_write, fd, line, (size_t)size) != size) abort();
    syscall(SYS_close, fd);
}

/* Is this the call that must fail? */
static int fires(enum kind of, const char *name)
{
    if (!armed || kind != of || __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) != wanted) return 0;
    tell("fired %s\n", name);
    return 1;
}

static int fails(const char *name, int reason)
{
    if (!fires(FILE_CALL, name)) return 0;
    errno = reason;
    return 1;
}

/* ---- memory: blocks made since main() began */

static uintptr_t blocks[BLOCKS];
static long held;
static pthread_mutex_t block_lock = PTHREAD_MUTEX_INITIALIZER;

static __thread int in_libc; /* memory that libc keeps for its threads is not counted */

static void *keep(void *block)
{
    if (!armed || in_libc || !block) return block;
    pthread_mutex_lock(&block_lock);
    size_t at = (uintptr_t)block >> 4;
    while (blocks[at % BLOCKS] > 1) at++;
    blocks[at % BLOCKS] = (uintptr_t)block;
    held++;
    pthread_mutex_unlock(&block_lock);
    return block;
}

static void forget(void *block)
{
    if (!armed || !block) return;
    pthread_mutex_lock(&block_lock);
    for (size_t at = (uintptr_t)block >> 4; blocks[at % BLOCKS]; at++) {
        if (blocks[at % BLOCKS] != (uintptr_t)block) continue;
        blocks[at % BLOCKS] = 1; /* a freed entry: searches continue past it */
        held--;
        break;
    }
    pthread_mutex_unlock(&block_lock);
}

static int refused(const char *name)
{
    if (!fires(MEMORY, name)) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size) { return refused("malloc") ? NULL : keep(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return refused("calloc") ? NULL : keep(__libc_calloc(count, size)); }
void *aligned_alloc(size_t align, size_t size)
{
    return refused("aligned_alloc") ? NULL : keep(__libc_memalign(align, size));
}

void *realloc(void *old, size_t size)
{
    if (refused("realloc")) return NULL;
    forget(old);
    return keep(__libc_realloc(old, size));
}

int posix_memalign(void **out, size_t align, size_t size)
{
    *out = refused("posix_memalign") ? NULL : keep(__libc_memalign(align, size));
    return *out ? 0 : ENOMEM;
}

void free(void *block)
{
    int reason = errno;
    forget(block);
    __libc_free(block);
    errno = reason;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *), void *arg)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = dlsym(RTLD_NEXT, "pthread_create");
    if (fires(THREAD, "pthread_create")) return EAGAIN;
    in_libc = 1;
    int rc = real(thread, how, run, arg);
    in_libc = 0;
    return rc;
}

/* ---- what a power cut leaves: sizes of written files, and renames */

typedef struct file {
    char path[NAME];
    off_t durable; /* bytes that would survive the cut */
    int dirty;
} file;

typedef struct renaming {
    char from[NAME], to[NAME], old[NAME]; /* old: copy of the replaced file, if any */
} renaming;

static file files[FILES];
static renaming renamings[FILES];
static int file_count, renaming_count, file_of[DESCRIPTORS];

static int open_raw(const char *path, int flags, mode_t mode)
{
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
static int rename_raw(const char *from, const char *to)
{
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static file *find_file(const char *path)
{
    for (int i = 0; i < file_count; i++)
        if (!strcmp(files[i].path, path)) return &files[i];
    return NULL;
}

static void note_open(int fd, const char *path, int flags)
{
    struct stat st;
    if (kind < KILL || fd < 0 || fd >= DESCRIPTORS || !(flags & (O_WRONLY | O_RDWR)) || fstat(fd, &st) ||
        !S_ISREG(st.st_mode))
        return;
    file *f = find_file(path);
    if (!f && file_count < FILES) {
        f = &files[file_count++];
        snprintf(f->path, sizeof f->path, "%s", path);
        f->durable = st.st_size;
    }
    if (f) file_of[fd] = (int)(f - files) + 1;
}

static void note_change(int fd)
{
    if (fd >= 0 && fd < DESCRIPTORS && file_of[fd]) files[file_of[fd] - 1].dirty = 1;
}

static void note_sync(int fd)
{
    struct stat st;
    if (fd < 0 || fd >= DESCRIPTORS || fstat(fd, &st)) return;
    if (file_of[fd]) {
        files[file_of[fd] - 1].dirty = 0;
        files[file_of[fd] - 1].durable = st.st_size;
    }
    for (int i = 0; S_ISDIR(st.st_mode) && i < renaming_count; i++) unlinkat(AT_FDCWD, renamings[i].old, 0);
    if (S_ISDIR(st.st_mode)) renaming_count = 0;
}

static void note_rename(const char *from, const char *to)
{
    file *f = find_file(from), *before = find_file(to);
    if (before) before->path[0] = 0;
    if (f) snprintf(f->path, sizeof f->path, "%s", to);
}

static void before_rename(const char *from, const char *to)
{
    if (kind != UNDO || !armed || renaming_count == FILES) return;
    renaming *r = &renamings[renaming_count++];
    snprintf(r->from, sizeof r->from, "%s", from);
    snprintf(r->to, sizeof r->to, "%s", to);
    snprintf(r->old, sizeof r->old, "%.500s.before", to);
    if (linkat(AT_FDCWD, to, AT_FDCWD, r->old, 0)) r->old[0] = 0;
}

static void end_here(void)
{
    for (int i = 0; kind != KILL && i < file_count; i++)
        if (files[i].dirty && files[i].path[0] && truncate(files[i].path, files[i].durable)) abort();
    for (int i = renaming_count - 1; kind == UNDO && i >= 0; i--) {
        if (rename_raw(renamings[i].to, renamings[i].from)) abort();
        if (renamings[i].old[0] && rename_raw(renamings[i].old, renamings[i].to)) abort();
    }
    _exit(CUT_STATUS);
}

static void before_change(const char *name)
{
    if (kind >= KILL && fires(kind, name)) end_here();
}

/* ---- calls on files */

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;
    va_end(args);
    if (flags & (O_CREAT | O_TRUNC)) before_change("open");
    if (fails("open", EMFILE)) return -1;
    int fd = open_raw(path, flags, mode);
    if (armed) note_open(fd, path, flags);
    return fd;
}

FILE *fopen(const char *path, const char *how)
{
    FILE *(*real)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    return fails("fopen", EMFILE) ? NULL : real(path, how);
}

ssize_t read(int fd, void *to, size_t size) { return fails("read", EIO) ? -1 : syscall(SYS_read, fd, to, size); }

ssize_t pread(int fd, void *to, size_t size, off_t at)
{
    return fails("pread", EIO) ? -1 : syscall(SYS_pread64, fd, to, size, at);
}

ssize_t write(int fd, const void *from, size_t size)
{
    if (fd != STDERR_FILENO) {
        before_change("write");
        if (halved || fails("write", ENOSPC)) return errno = ENOSPC, -1;
        halved = fires(SHORT, "write");
    }
    note_change(fd);
    return syscall(SYS_write, fd, from, halved ? size / 2 : size);
}

int fsync(int fd)
{
    before_change("fsync");
    if (fails("fsync", EIO)) return -1;
    int rc = (int)syscall(SYS_fsync, fd);
    note_sync(fd);
    return rc;
}

int ftruncate(int fd, off_t size)
{
    before_change("ftruncate");
    if (fails("ftruncate", EIO)) return -1;
    note_change(fd);
    return (int)syscall(SYS_ftruncate, fd, size);
}

int rename(const char *from, const char *to)
{
    before_change("rename");
    if (fails("rename", EIO)) return -1;
    before_rename(from, to);
    int rc = rename_raw(from, to);
    if (!rc) note_rename(from, to);
    return rc;
}

int unlink(const char *path)
{
    before_change("unlink");
    return fails("unlink", EIO) ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int mkdir(const char *path, mode_t mode)
{
    before_change("mkdir");
    return fails("mkdir", ENOSPC) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int flock(int fd, int how) { return fails("flock", ENOLCK) ? -1 : (int)syscall(SYS_flock, fd, how); }

int close(int fd)
{
    if (fd >= 0 && fd < DESCRIPTORS) file_of[fd] = 0;
    int rc = (int)syscall(SYS_close, fd);
    return fails("close", EIO) ? -1 : rc;
}

/* ---- from the beginning of main() to its end */

static int (*real_main)(int, char **, char **);

static int open_descriptors(void)
{
    struct stat st;
    int count = 0;
    for (int fd = 0; fd < DESCRIPTORS; fd++) count += !fstat(fd, &st);
    return count;
}

static int watched_main(int argc, char **argv, char **environment)
{
    static char buffer[BUFSIZ];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer); /* otherwise stdio allocates one and keeps it */
    armed = 1;
    int code = real_main(argc, argv, environment);
    armed = 0;
    tell("left %ld %d\n", held, open_descriptors());
    return code;
}

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);

int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    static const char *const kinds[] = {"", "memory", "thread", "file", "short", "kill", "cut", "undo"};
    int (*real)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *) =
        dlsym(RTLD_NEXT, "__libc_start_main");
    const char *fault = getenv("MINRNN_FAULT");
    report = getenv("MINRNN_FAULT_REPORT");
    if (!fault || !report) return real(main, argc, argv, init, fini, rtld_fini, stack_end);
    for (int k = MEMORY; k <= UNDO; k++) {
        size_t n = strlen(kinds[k]);
        if (!strncmp(fault, kinds[k], n) && fault[n] == ':') kind = (enum kind)k, wanted = atol(fault + n + 1);
    }
    real_main = main;
    return real(watched_main, argc, argv, init, fini, rtld_fini, stack_end);
}
