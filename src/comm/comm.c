/* Joining a run: which engine it uses. */
#include "comm/engine.h"

#include <string.h>

static int check_launcher(const char *engine, const mr_launch *l, mr_error *err)
{
    if (l->size > 1 && (l->mpi || strcmp(engine, "mpi"))) return 0;
    if (l->size > 1)
        return mr_fail(err, MR_EDEVICE,
                       "ranks: %s does not start MPI programs; use mpirun or srun --mpi=pmix, or NCCL with a GPU for "
                       "each rank",
                       l->launcher);
    return mr_fail(err, MR_EDEVICE,
                   "ranks: this process was not started as one of several; start it with mpirun -n 2 minrnn …, with "
                   "srun --mpi=pmix, or with torchrun");
}

/* Processes of a launcher whose MPI is another one than the plug-in's are each alone: every one of them would train
 * the whole run. */
static int join_mpi(const mr_launch *l, mr_comm **out, mr_error *err)
{
    int status = mr_mpi_load_and_join(out, err);
    if (status || (*out)->size == l->size) return status;
    mr_fail(err, MR_EDEVICE,
            "ranks: %s started %d processes, but %s joins %d; build " MR_MPI_PLUGIN " with the launcher's MPI and name "
            "it in MINRNN_MPI, or use the launcher of this MPI",
            l->launcher, l->size, (*out)->version, (*out)->size);
    mr_comm_leave(*out);
    *out = NULL;
    return MR_EDEVICE;
}

static int join_nccl(const mr_launch *l, mr_comm **out, mr_error *err)
{
    mr_comm *host = NULL;
    int status = l->mpi ? join_mpi(l, &host, err) : 0;
    return status ? status : mr_nccl_join(l, host, out, err);
}

int mr_comm_join(const char *engine, int gpu, mr_comm **out, mr_error *err)
{
    const mr_launch l = mr_launch_read();
    *out = NULL;
    if (!strcmp(engine, "auto")) engine = gpu && (!l.mpi || mr_nccl_is_here()) ? "nccl" : "mpi";
    int status = check_launcher(engine, &l, err);
    if (status) return status;
    if (!strcmp(engine, "mpi")) return join_mpi(&l, out, err);
    if (!strcmp(engine, "nccl") && gpu) return join_nccl(&l, out, err);
    if (!strcmp(engine, "nccl"))
        return mr_fail(err, MR_EDEVICE, "ranks: NCCL moves memory of GPUs only; use --device cuda, or MPI");
    return mr_fail(err, MR_EINVAL, "ranks: %.50s is not an engine; there are auto, mpi and nccl", engine);
}

void mr_comm_leave(mr_comm *comm)
{
    if (comm) comm->leave(comm);
}
