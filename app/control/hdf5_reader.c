/* Reading HDF5 files in a process of its own. libhdf5 trusts the bytes of a file: damaged ones have made it read
 * outside its memory, loop and ask for more memory than there is. So a child of this process opens the file and answers
 * requests; where it dies, the caller gets an error, and nothing else has happened. A child of a process with threads
 * can be born while one of them holds a lock that nobody will open there (that of AddressSanitizer's memory, for one),
 * and then never answers: it is replaced. */
#include "control/hdf5_inside.h"

#include "core/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#if !defined(MSG_NOSIGNAL) /* macOS has SO_NOSIGPIPE instead */
#define MSG_NOSIGNAL 0
#endif

enum { NAME = 256, TEXT = 1024 };
/* A reader may compute for so long, and longer for a large file. */
enum { SECONDS = 2, BYTES_A_SECOND = 1 << 18 };
/* Other work may slow it down by so much; after that it is taken for stuck, and another one is asked. */
enum { SLOWER = 5, READERS = 4 };

typedef enum question { OPEN, HAS, HAS_ATTRIBUTE, DOUBLES, FLOATS, NUMBER, WORDS } question;

typedef struct request {
    question what;
    char object[NAME], name[NAME]; /* of an attribute; object alone of an array */
    size_t room;                   /* for WORDS */
} request;

typedef struct answer {
    int status;
    mr_error err;
    int there;
    size_t rows, columns; /* of an array, whose numbers follow */
    double number;
    char text[TEXT];
} answer;

int mr_hdf5_alone;

static size_t width(question what) { return what == DOUBLES ? sizeof(double) : sizeof(float); }

/* ---- in the process that has the file open */

static void serve(mr_hdf5 *h, const request *q, answer *a, void **numbers)
{
    mr_error *err = &a->err;
    *numbers = NULL;
    memset(a, 0, sizeof *a);
    switch (q->what) {
    case OPEN: a->status = mr_hdf5_open_here(h, err); break;
    case HAS: a->there = mr_hdf5_is_named(h, q->object); break;
    case HAS_ATTRIBUTE: a->there = mr_hdf5_is_attribute(h, q->object, q->name); break;
    case DOUBLES:
    case FLOATS:
        a->status = mr_hdf5_take_array(h, q->object, q->what == DOUBLES, numbers, &a->rows, &a->columns, err);
        break;
    case NUMBER: a->status = mr_hdf5_take_number(h, q->object, q->name, &a->number, err); break;
    case WORDS: a->status = mr_hdf5_take_text(h, q->object, q->name, a->text, q->room, err); break;
    }
}

static int send_all(int wire, const void *data, size_t size)
{
    for (const char *next = data; size;) {
        ssize_t sent = send(wire, next, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return -1;
        next += sent;
        size -= (size_t)sent;
    }
    return 0;
}

typedef enum receipt { RECEIVED, ENDED, STUCK } receipt;

static receipt receive_all(int wire, void *data, size_t size)
{
    for (char *next = data; size;) {
        ssize_t got = recv(wire, next, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? STUCK : ENDED;
        next += got;
        size -= (size_t)got;
    }
    return RECEIVED;
}

static rlim_t seconds_for(const mr_hdf5 *h) { return SECONDS + (rlim_t)(h->bytes / BYTES_A_SECOND); }

/* Dies without a word, a core file or a handler of its parent. */
static void prepare_to_die(const mr_hdf5 *h)
{
    static const int deadly[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU, SIGPIPE};
    const rlim_t seconds = seconds_for(h);
    const int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
#if defined(__linux__) /* two readers have each other's wires open, so neither would see that a killed parent is gone */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (nowhere >= 0) dup2(nowhere, STDOUT_FILENO), dup2(nowhere, STDERR_FILENO);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) signal(deadly[i], SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    setrlimit(RLIMIT_CPU, &(struct rlimit){seconds, seconds + 1});
}

static _Noreturn void answer_requests(mr_hdf5 *h, int wire)
{
    request q;
    answer a;
    void *numbers;
    prepare_to_die(h);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL); /* the lock was taken before this process began */
    while (!receive_all(wire, &q, sizeof q)) {
        serve(h, &q, &a, &numbers);
        if (send_all(wire, &a, sizeof a)) break;
        if (numbers && send_all(wire, numbers, a.rows * a.columns * width(q.what))) break;
        mr_free(numbers);
    }
    _exit(0);
}

/* ---- in the process that asks */

static int start_reader(mr_hdf5 *h, mr_error *err)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return mr_fail(err, MR_EIO, "%s: cannot be read: %s", h->path, strerror(errno));
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = (time_t)(SLOWER * seconds_for(h))},
               sizeof(struct timeval));
    mr_hdf5_enter(); /* so that libhdf5 is not in use by another thread while the process is copied */
    const pid_t child = fork();
    if (!child) {
        close(ends[0]);
        answer_requests(h, ends[1]);
    }
    const int why = errno;
    mr_hdf5_leave(0);
    close(ends[1]);
    h->wire = ends[0];
    h->reader = child;
    if (child > 0) return 0;
    return mr_fail(err, MR_EIO, "%s: cannot be read: no process for it: %s", h->path, strerror(why));
}

static void stop_reader(mr_hdf5 *h)
{
    int state = 0;
    if (h->wire >= 0) close(h->wire);
    if (h->reader > 0)
        while (waitpid(h->reader, &state, 0) < 0 && errno == EINTR) {}
    if (WIFSIGNALED(state)) h->died_of = WTERMSIG(state);
    h->wire = h->reader = -1;
}

static void kill_reader(mr_hdf5 *h)
{
    if (h->reader > 0) kill(h->reader, SIGKILL);
    stop_reader(h);
}

static int reader_died(mr_hdf5 *h, mr_error *err)
{
    stop_reader(h);
    return mr_fail(err, MR_EFORMAT, "%s: is damaged: libhdf5 %s while it read it (%s)", h->path,
                   h->died_of == SIGXCPU ? "found no end" : "failed",
                   h->died_of ? strsignal(h->died_of) : "its process ended");
}

/* One question and its answer, with the numbers of an array. STUCK: none came in time. */
static int exchange(mr_hdf5 *h, const request *q, answer *a, void **numbers, receipt *got, mr_error *err)
{
    *got = ENDED;
    if (h->wire >= 0 && !send_all(h->wire, q, sizeof *q)) *got = receive_all(h->wire, a, sizeof *a);
    if (*got != RECEIVED) return *got == STUCK ? 0 : reader_died(h, err);
    a->err.text[sizeof a->err.text - 1] = a->text[TEXT - 1] = 0; /* it may have been damaged, too */
    if (a->status || (q->what != DOUBLES && q->what != FLOATS)) return 0;
    if (a->columns && a->rows > SIZE_MAX / width(q->what) / a->columns) return reader_died(h, err);
    *numbers = mr_alloc(a->rows * a->columns, width(q->what));
    if (!*numbers) {
        kill_reader(h);
        return mr_fail(err, MR_ENOMEM, "%s: array %s has %zu × %zu numbers, too many for the memory of this machine",
                       h->path, q->object, a->rows, a->columns);
    }
    *got = receive_all(h->wire, *numbers, a->rows * a->columns * width(q->what));
    if (*got == RECEIVED) return 0;
    mr_free(*numbers);
    *numbers = NULL;
    return *got == STUCK ? 0 : reader_died(h, err);
}

/* Another reader, with the file open, in the place of one that is stuck. */
static int replace_reader(mr_hdf5 *h, const request *q, receipt *got, mr_error *err)
{
    answer a = {0};
    void *none;
    kill_reader(h);
    h->died_of = 0;
    int rc = start_reader(h, err);
    *got = RECEIVED;
    if (!rc && q->what != OPEN) rc = exchange(h, &(request){.what = OPEN}, &a, &none, got, err);
    if (rc || *got == STUCK || !a.status) return rc;
    return mr_fail(err, a.status, "%s", a.err.text);
}

static int ask_reader(mr_hdf5 *h, const request *q, answer *a, void **numbers, mr_error *err)
{
    receipt got;
    *numbers = NULL;
    int rc = exchange(h, q, a, numbers, &got, err);
    for (int i = 1; !rc && got == STUCK && i < READERS; i++) {
        rc = replace_reader(h, q, &got, err);
        if (!rc && got != STUCK) rc = exchange(h, q, a, numbers, &got, err);
    }
    if (rc || got != STUCK) return rc;
    kill_reader(h);
    return mr_fail(err, MR_EIO, "%s: cannot be read: libhdf5 gave no answer in %d s, %d times", h->path,
                   (int)(SLOWER * seconds_for(h)), READERS);
}

static int ask(mr_hdf5 *h, request *q, const char *object, const char *name, answer *a, void **numbers, mr_error *err)
{
    int rc = 0;
    memset(a, 0, sizeof *a);
    *numbers = NULL;
    if (strlen(object) >= NAME || strlen(name) >= NAME)
        return mr_fail(err, MR_EINVAL, "%s: a name has more than %d bytes", h->path, NAME - 1);
    strcpy(q->object, object);
    strcpy(q->name, name);
    if (h->reader) rc = ask_reader(h, q, a, numbers, err);
    else {
        mr_hdf5_enter();
        serve(h, q, a, numbers);
        mr_hdf5_leave(0);
    }
    if (rc || !a->status) return rc;
    return mr_fail(err, a->status < 0 ? a->status : MR_EFORMAT, "%s", a->err.text);
}

/* ---- what callers use */

static int open_reader(mr_hdf5 *h, mr_error *err)
{
    int fd;
    answer a;
    void *none;
    int rc = mr_file_open(h->path, &fd, &h->bytes, err); /* says that there is no such file, or that it is a pipe */
    mr_file_close(fd);
    if (!rc && !mr_hdf5_alone) rc = start_reader(h, err);
    return rc ? rc : ask(h, &(request){.what = OPEN}, "", "", &a, &none, err);
}

int mr_hdf5_open(const char *path, mr_hdf5 **out, mr_error *err)
{
    mr_hdf5 *h = mr_hdf5_new(path);
    int rc = h ? open_reader(h, err) : mr_no_memory(err, path);
    if (rc) mr_hdf5_close(h);
    *out = rc ? NULL : h;
    return rc;
}

void mr_hdf5_close(mr_hdf5 *h)
{
    if (!h) return;
    kill_reader(h);
    mr_hdf5_enter();
    mr_hdf5_release(h);
    mr_hdf5_leave(0);
}

int mr_hdf5_has(mr_hdf5 *h, const char *name)
{
    answer a;
    void *none;
    return ask(h, &(request){.what = HAS}, name, "", &a, &none, NULL) || a.there;
}

int mr_hdf5_has_attribute(mr_hdf5 *h, const char *object, const char *name)
{
    answer a;
    void *none;
    return ask(h, &(request){.what = HAS_ATTRIBUTE}, object, name, &a, &none, NULL) || a.there;
}

int mr_hdf5_attribute(mr_hdf5 *h, const char *object, const char *name, double *out, mr_error *err)
{
    answer a;
    void *none;
    int rc = ask(h, &(request){.what = NUMBER}, object, name, &a, &none, err);
    *out = rc ? 0 : a.number;
    return rc;
}

int mr_hdf5_attribute_text(mr_hdf5 *h, const char *object, const char *name, char *out, size_t room, mr_error *err)
{
    answer a;
    void *none;
    if (room > TEXT) room = TEXT;
    int rc = ask(h, &(request){.what = WORDS, .room = room}, object, name, &a, &none, err);
    snprintf(out, room, "%s", rc ? "" : a.text);
    return rc;
}

static int read_numbers(mr_hdf5 *h, question what, const char *name, void **out, size_t *rows, size_t *columns,
                        mr_error *err)
{
    answer a;
    int rc = ask(h, &(request){.what = what}, name, "", &a, out, err);
    *rows = rc ? 0 : a.rows;
    *columns = rc ? 0 : a.columns;
    return rc || *out ? rc : mr_no_memory(err, name);
}

int mr_hdf5_read_doubles(mr_hdf5 *h, const char *name, double **out, size_t *rows, size_t *columns, mr_error *err)
{
    void *numbers;
    int rc = read_numbers(h, DOUBLES, name, &numbers, rows, columns, err);
    *out = numbers;
    return rc;
}

int mr_hdf5_read_floats(mr_hdf5 *h, const char *name, float **out, size_t *rows, size_t *columns, mr_error *err)
{
    void *numbers;
    int rc = read_numbers(h, FLOATS, name, &numbers, rows, columns, err);
    *out = numbers;
    return rc;
}

/* Makes 0 and 1 of numbers that are. */
static int make_flags(mr_hdf5 *h, const char *name, const float *values, size_t count, uint8_t *flags, mr_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!(values[i] == 0 || values[i] == 1))
            return mr_fail(err, MR_EFORMAT, "%s: %s[%zu] is %g; it must be 0 or 1", h->path, name, i, values[i]);
        flags[i] = values[i] != 0;
    }
    return 0;
}

/* Through floats, because libhdf5 makes 0 of −1, of ½ and of NaN where it makes bytes. */
int mr_hdf5_read_flags(mr_hdf5 *h, const char *name, uint8_t **out, size_t *rows, mr_error *err)
{
    float *values;
    uint8_t *flags = NULL;
    size_t columns;
    int rc = mr_hdf5_read_floats(h, name, &values, rows, &columns, err);
    if (!rc && columns != 1)
        rc = mr_fail(err, MR_EFORMAT, "%s: array %s has %zu columns; it must have one", h->path, name, columns);
    if (!rc && !(flags = mr_alloc(*rows, 1))) rc = mr_no_memory(err, h->path);
    if (!rc && values) rc = make_flags(h, name, values, *rows, flags, err);
    mr_free(values);
    if (rc) mr_free(flags);
    *out = rc ? NULL : flags;
    if (rc) *rows = 0;
    return rc;
}
