/* The NCCL engine: messages between the memories of GPUs. NCCL is loaded when a run asks for it; its few functions are
 * declared here, so that the library can be built where it is not installed. */
#include "comm/engine.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libnccl.so.2"

typedef struct unique_id {
    char bytes[128];
} unique_id;
typedef void *communicator;
enum { NCCL_INT8 = 0 };

#define FUNCTIONS(X)                                                                                                   \
    X(GetVersion, int, (int *))                                                                                        \
    X(GetUniqueId, int, (unique_id *))                                                                                 \
    X(CommInitRank, int, (communicator *, int, unique_id, int))                                                        \
    X(CommDestroy, int, (communicator))                                                                                \
    X(CommAbort, int, (communicator))                                                                                  \
    X(Send, int, (const void *, size_t, int, int, communicator, void *))                                               \
    X(Recv, int, (void *, size_t, int, int, communicator, void *))                                                     \
    X(GroupStart, int, (void))                                                                                         \
    X(GroupEnd, int, (void))                                                                                           \
    X(GetErrorString, const char *, (int))

typedef struct nccl {
#define X(name, type, arguments) type(*name) arguments;
    FUNCTIONS(X)
#undef X
} nccl;

typedef struct engine {
    mr_comm comm;
    nccl f;
    communicator all;
    mr_comm *host; /* the MPI ranks that passed the identifier around, or NULL */
} engine;

int mr_nccl_is_here(void)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library) dlclose(library);
    return library != NULL;
}

static int load(nccl *f, mr_error *err)
{
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL), *found;
    if (!library)
        return mr_fail(err, MR_EDEVICE,
                       "ranks: there is no " LIBRARY " here (Debian and Ubuntu with NVIDIA's packages: apt-get install "
                       "libnccl2); use MPI instead with --ranks mpi");
#define X(name, type, arguments)                                                                                       \
    found = dlsym(library, "nccl" #name);                                                                              \
    if (!found) return mr_fail(err, MR_EDEVICE, "ranks: this " LIBRARY " has no nccl" #name);                          \
    memcpy(&f->name, &found, sizeof found);
    FUNCTIONS(X)
#undef X
    return 0;
}

static int check(const engine *e, int code, const char *what, mr_error *err)
{
    if (!code) return 0;
    return mr_fail(err, MR_EDEVICE, "ranks: %s: NCCL: %.300s", what, e->f.GetErrorString(code));
}

static int exchange(mr_comm *comm, const mr_message *list, int count, void *stream, mr_error *err)
{
    engine *e = comm->impl;
    int code = 0;
    if (!count) return 0;
    int status = check(e, e->f.GroupStart(), "messages", err);
    if (status) return status;
    for (int i = 0; !code && i < count; i++) {
        const mr_message *m = &list[i];
        code = m->receive ? e->f.Recv(m->at, m->bytes, NCCL_INT8, m->peer, e->all, stream)
                          : e->f.Send(m->at, m->bytes, NCCL_INT8, m->peer, e->all, stream);
    }
    const int ended = e->f.GroupEnd();
    return check(e, code ? code : ended, "messages", err);
}

static void leave(mr_comm *comm)
{
    engine *e = comm->impl;
    if (e->all) e->f.CommDestroy(e->all);
    mr_comm_leave(e->host);
    free(e);
}

static void end_all(mr_comm *comm)
{
    engine *e = comm->impl;
    if (e->all) e->f.CommAbort(e->all);
    if (e->host) e->host->abort(e->host);
    _Exit(1);
}

/* Rank 0's identifier, to all. */
static int share_id(const mr_launch *launch, mr_comm *host, unique_id *id, mr_error *err)
{
    if (!host) return mr_store_share(launch, id, sizeof *id, err);
    if (host->rank) {
        const mr_message from = {.receive = 1, .at = id, .bytes = sizeof *id};
        return host->exchange(host, &from, 1, NULL, err);
    }
    for (int peer = 1; peer < host->size; peer++) {
        const mr_message to = {.peer = peer, .at = id, .bytes = sizeof *id};
        int status = host->exchange(host, &to, 1, NULL, err);
        if (status) return status;
    }
    return 0;
}

static int start(engine *e, const mr_launch *launch, mr_error *err)
{
    unique_id id = {{0}};
    int version = 0, status = load(&e->f, err);
    if (!status && e->comm.rank == 0) status = check(e, e->f.GetUniqueId(&id), "its identifier", err);
    if (!status) status = share_id(launch, e->host, &id, err);
    if (!status)
        status = check(e, e->f.CommInitRank(&e->all, e->comm.size, id, e->comm.rank),
                       "joining (below 2.30 it wants a GPU of its own for each rank)", err);
    if (status) return status;
    e->f.GetVersion(&version);
    snprintf(e->comm.version, sizeof e->comm.version, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
             version % 100);
    return 0;
}

int mr_nccl_join(const mr_launch *launch, mr_comm *host, mr_comm **out, mr_error *err)
{
    engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) return mr_comm_leave(host), mr_no_memory(err, "ranks");
    e->host = host;
    e->comm = (mr_comm){.rank = host ? host->rank : launch->rank,
                        .size = host ? host->size : launch->size,
                        .local_rank = host ? host->local_rank : launch->local_rank,
                        .local_size = host ? host->local_size : launch->local_size,
                        .engine = "nccl",
                        .device_memory = 1,
                        .exchange = exchange,
                        .leave = leave,
                        .abort = end_all,
                        .impl = e};
    int status = start(e, launch, err);
    if (status) leave(&e->comm);
    else *out = &e->comm;
    return status;
}
