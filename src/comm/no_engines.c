/* Stands in for mpi_load.c, nccl.c and store.c in a static program, which cannot load a library. */
#include "comm/engine.h"

static int refuse(mr_comm **out, mr_error *err)
{
    *out = NULL;
    return mr_fail(err, MR_EDEVICE, "ranks: this static minrnn cannot load MPI or NCCL; use one built with `make`");
}

int mr_mpi_load_and_join(mr_comm **out, mr_error *err) { return refuse(out, err); }

int mr_nccl_join(const mr_launch *launch, mr_comm *host, mr_comm **out, mr_error *err)
{
    (void)launch;
    (void)host;
    return refuse(out, err);
}

int mr_nccl_is_here(void) { return 0; }
