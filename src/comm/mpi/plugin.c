/* The MPI engine, a shared object of its own: see src/comm/mpi_load.c. */
#include "comm/engine.h"

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The library's own mr_error_set is not linked into a plug-in, which may be loaded by a program that hides it. */
static int fail(mr_error *err, int status, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code) MPI_Error_string(code, text, &length);
    if (err) {
        err->status = status;
        snprintf(err->text, sizeof err->text, "ranks: %s%s%.300s", what, code ? ": " : "", text);
    }
    return status;
}

/* MPI counts in int, so that larger messages go in pieces. */
enum { PIECE = 1 << 30 };

typedef struct engine {
    mr_comm comm;
    MPI_Comm world;
    MPI_Request *requests; /* [room] */
    int *peers, *done;     /* [room] whom each is for; the ones that have just ended, … */
    MPI_Status *how;       /* [room] … which nobody looks at */
    int room;
    mr_error failure; /* of the first exchange that failed; status 0: none did */
} engine;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int make_room(engine *e, const mr_message *list, int count)
{
    size_t pieces = 0;
    for (int i = 0; i < count; i++) pieces += list[i].bytes / PIECE + 1;
    if (pieces <= (size_t)e->room) return 0;
    free(e->requests);
    free(e->peers);
    free(e->done);
    free(e->how);
    e->requests = malloc(pieces * sizeof *e->requests);
    e->peers = malloc(pieces * sizeof *e->peers);
    e->done = malloc(pieces * sizeof *e->done);
    e->how = malloc(pieces * sizeof *e->how);
    e->room = e->requests && e->peers && e->done && e->how ? (int)pieces : 0;
    return e->room ? 0 : MR_ENOMEM;
}

/* Starts the messages of one kind. Returns MPI's error. */
static int start(engine *e, const mr_message *list, int count, int receive, int *started)
{
    for (int i = 0; i < count; i++) {
        const mr_message *m = &list[i];
        for (size_t at = 0; m->receive == receive && at < m->bytes; at += PIECE) {
            const int bytes = (int)(m->bytes - at < PIECE ? m->bytes - at : PIECE);
            char *part = (char *)m->at + at;
            MPI_Request *request = &e->requests[*started];
            const int code = receive ? MPI_Irecv(part, bytes, MPI_BYTE, m->peer, 0, e->world, request)
                                     : MPI_Isend(part, bytes, MPI_BYTE, m->peer, 0, e->world, request);
            if (code) return code;
            e->peers[(*started)++] = m->peer;
        }
    }
    return 0;
}

/* The rank that keeps this one waiting. Receives come first in the list: a send may only lack room. */
static int late_peer(const engine *e, int started)
{
    for (int i = 0; i < started; i++)
        if (e->requests[i] != MPI_REQUEST_NULL) return e->peers[i];
    return -1;
}

#define TELL 0.1 /* seconds between calls of comm.waiting */

static void sleep_for(long nanoseconds) { nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL); }

static int gives_up(engine *e, int peer, double waited, mr_error *err)
{
    char text[80];
    if (!e->comm.waiting || !e->comm.waiting(e->comm.waiting_user, peer, waited)) return 0;
    snprintf(text, sizeof text, "rank %d has not answered for %.0f s", peer, waited);
    return fail(err, MR_ESTOPPED, text, 0);
}

/* MPI has failed, which it does when a rank ends in the middle of a message. Whoever waits is asked for a second
 * whether that is so, because the process may be seen for a moment after its end. */
static int failed(engine *e, int peer, double waited, int code, mr_error *err)
{
    if (peer < 0) peer = e->comm.rank == 0; /* all messages have ended in some way */
    for (double began = seconds(); seconds() - began < 1; sleep_for(20000000)) {
        const int status = gives_up(e, peer, waited, err);
        if (status) return status;
    }
    return fail(err, MR_EDEVICE, "a message could not be sent or received", code);
}

/* Asks again and again, because MPI has no wait that ends when a rank never answers. Other ranks of this machine may
 * need the processor: it is given away at each turn, and after a while for longer. */
static int wait_for(engine *e, int started, mr_error *err)
{
    const double began = seconds();
    double told = began;
    for (long turn = 0;; turn++) {
        int count = 0; /* that ended since the last turn; UNDEFINED: all have ended */
        const int code = MPI_Testsome(started, e->requests, &count, e->done, e->how);
        if (code) return failed(e, late_peer(e, started), seconds() - began, code, err);
        if (count == MPI_UNDEFINED) return 0;
        if (turn < 2000) {
            sched_yield();
            continue;
        }
        sleep_for(turn < 20000 ? 20000 : 500000);
        const double now = seconds();
        if (now - told < TELL) continue;
        told = now;
        const int status = gives_up(e, late_peer(e, started), now - began, err);
        if (status) return status;
    }
}

static int carry_out(engine *e, const mr_message *list, int count, mr_error *err)
{
    int started = 0;
    if (make_room(e, list, count)) return fail(err, MR_ENOMEM, "out of memory for messages", 0);
    int code = start(e, list, count, 1, &started);
    if (!code) code = start(e, list, count, 0, &started);
    if (code) return fail(err, MR_EDEVICE, "a message could not be started", code);
    return wait_for(e, started, err);
}

/* After a failure MPI is not called again: messages that are still under way would arrive in memory that their owner
 * has freed since. */
static int exchange(mr_comm *comm, const mr_message *list, int count, void *stream, mr_error *err)
{
    engine *e = comm->impl;
    (void)stream;
    if (!count) return 0;
    if (!e->failure.status) e->failure.status = carry_out(e, list, count, &e->failure);
    if (e->failure.status && err) *err = e->failure;
    return e->failure.status;
}

static void release(engine *e)
{
    free(e->requests);
    free(e->peers);
    free(e->done);
    free(e->how);
    free(e);
}

static void leave(mr_comm *comm)
{
    engine *e = comm->impl;
    MPI_Comm_free(&e->world);
    MPI_Finalize();
    release(e);
}

static void end_all(mr_comm *comm)
{
    MPI_Abort(((engine *)comm->impl)->world, 1);
    _Exit(1); /* MPI_Abort may return where its launcher is slow */
}

static int find_ranks(engine *e)
{
    MPI_Comm here;
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &e->world);
    if (!code) code = MPI_Comm_set_errhandler(e->world, MPI_ERRORS_RETURN);
    if (!code) code = MPI_Comm_rank(e->world, &e->comm.rank);
    if (!code) code = MPI_Comm_size(e->world, &e->comm.size);
    if (!code) code = MPI_Comm_split_type(e->world, MPI_COMM_TYPE_SHARED, e->comm.rank, MPI_INFO_NULL, &here);
    if (code) return code;
    MPI_Comm_rank(here, &e->comm.local_rank);
    MPI_Comm_size(here, &e->comm.local_size);
    return MPI_Comm_free(&here);
}

__attribute__((visibility("default"))) int mr_mpi_join(const char *version, mr_comm **out, mr_error *err);
int mr_mpi_join(const char *version, mr_comm **out, mr_error *err)
{
    int begun = 0, level = 0, length = 0;
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    if (strcmp(version, MR_VERSION))
        return fail(err, MR_EDEVICE, MR_MPI_PLUGIN " is of another version of minrnn (" MR_VERSION "); build it again",
                    0);
    MPI_Initialized(&begun);
    if (begun) return fail(err, MR_EINVAL, "this process has joined an MPI run before", 0);
    engine *e = calloc(1, sizeof *e);
    if (!e) return fail(err, MR_ENOMEM, "out of memory", 0);
    e->comm = (mr_comm){.engine = "mpi", .exchange = exchange, .leave = leave, .abort = end_all, .impl = e};
    int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    if (!code && level < MPI_THREAD_SERIALIZED) {
        release(e);
        return fail(err, MR_EDEVICE, "this MPI was built without threads", 0);
    }
    if (!code) code = find_ranks(e);
    if (code) {
        release(e);
        return fail(err, MR_EDEVICE, "MPI could not be started", code);
    }
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = 0;
    snprintf(e->comm.version, sizeof e->comm.version, "%.60s", text);
    *out = &e->comm;
    return 0;
}
