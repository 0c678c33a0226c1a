/* What the files of src/comm share, and what a plug-in sees of it. */
#ifndef MR_COMM_ENGINE_H
#define MR_COMM_ENGINE_H

#include "comm/comm.h"

#define MR_NO_LAUNCHER "none"

/* What the launcher told this process by its environment. */
typedef struct mr_launch {
    const char *launcher; /* "mpirun", "srun", "torchrun", or MR_NO_LAUNCHER */
    int mpi;              /* 1: it starts MPI programs */
    int rank, size, local_rank, local_size;
} mr_launch;

mr_launch mr_launch_read(void);

/* The MPI plug-in is a shared object with one function of this name and type. A plug-in is built from the same source
 * as the library that loads it: `version` must match. */
#define MR_MPI_PLUGIN "libminrnn_mpi.so"
#define MR_MPI_ENTRY "mr_mpi_join"
typedef int mr_join_function(const char *version, mr_comm **out, mr_error *err);

int mr_mpi_load_and_join(mr_comm **out, mr_error *err);
/* NCCL needs a way to pass its identifier around: the ranks of `host`, which it then owns, or with NULL a connection to
 * MASTER_ADDR. */
int mr_nccl_join(const mr_launch *launch, mr_comm *host, mr_comm **out, mr_error *err);
int mr_nccl_is_here(void);

/* Passes `bytes` from rank 0 to all others through TCP: rank 0 listens at MASTER_ADDR, port MASTER_PORT + 1. */
int mr_store_share(const mr_launch *launch, void *data, size_t bytes, mr_error *err);

#endif
