/* Ranks: the processes of one training run, and the one way in which they exchange memory. An engine (MPI, NCCL) is
 * found and loaded when a run asks for it; nothing here needs one to be installed. */
#ifndef MR_COMM_COMM_H
#define MR_COMM_COMM_H

#include "core/status.h"

#include <stddef.h>

/* One message to or from another rank. */
typedef struct mr_message {
    int peer;
    int receive; /* 1: from the peer; 0: to it */
    void *at;
    size_t bytes;
} mr_message;

typedef struct mr_comm mr_comm;
struct mr_comm {
    int rank, size;
    int local_rank, local_size; /* among the ranks of this machine */
    const char *engine;         /* "mpi", "nccl" */
    char version[64];           /* of the engine's library */
    int device_memory;          /* 1: messages lie in GPU memory, 0: in host memory */
    /* Carries out all messages of the list together. Messages from one rank to another arrive in the order in which
     * they are listed, in one list after another; each must have the size that the other side expects. Any thread may
     * call it, one at a time. Host memory: returns when all is done. GPU memory: queues the work in `stream`. */
    int (*exchange)(mr_comm *, const mr_message *list, int count, void *stream, mr_error *);
    void (*leave)(mr_comm *); /* the orderly end */
    void (*abort)(mr_comm *); /* ends all ranks, this one too, with exit status 1 */
    /* Called while a rank lets this one wait, about ten times a second, with a rank that has not answered. Returns
     * 1 to give up: the exchange then fails. May be NULL. */
    int (*waiting)(void *user, int peer, double seconds);
    void *waiting_user;
    void *impl; /* private to the engine */
};

/* Joins the run that a launcher (mpirun, srun, torchrun) started this process for. engine: "mpi", "nccl", or "auto",
 * which takes NCCL for a GPU and MPI otherwise. MR_EDEVICE: the engine is not installed, or there is no launcher. */
int mr_comm_join(const char *engine, int gpu, mr_comm **out, mr_error *err);
void mr_comm_leave(mr_comm *comm); /* NULL is fine */

/* How many ranks the launcher of this process started; 1: there was none. Loads nothing. */
int mr_comm_launched(void);

#endif
