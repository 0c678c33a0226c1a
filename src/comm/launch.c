/* Which rank this process is, by the environment that its launcher gave it. */
#include "comm/engine.h"

#include <stdlib.h>
#include <string.h>

/* A launcher's names. Each may be missing: then the next launcher is tried. */
static const struct names {
    const char *launcher;
    int mpi;
    const char *rank, *size, *local_rank, *local_size;
} names[] = {
    {"mpirun", 1, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun", 1, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun", 1, "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    {"srun without --mpi=pmix", 0, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
     "SLURM_STEP_TASKS_PER_NODE"},
    {"torchrun", 0, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};

/* A count of at least `least`, or −1. SLURM says "8(x4)" for 8 on each of four machines, and "4,3". */
static int number(const char *name, int least)
{
    const char *text = getenv(name);
    char *end;
    const long value = text ? strtol(text, &end, 10) : -1;
    return text && end != text && strchr("(,", *end) && value >= least && value <= 1 << 20 ? (int)value : -1;
}

mr_launch mr_launch_read(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct names *n = &names[i];
        mr_launch l = {.launcher = n->launcher, .mpi = n->mpi};
        l.rank = number(n->rank, 0);
        l.size = number(n->size, 1);
        if (l.rank < 0 || l.size <= l.rank) continue;
        l.local_rank = number(n->local_rank, 0);
        l.local_size = number(n->local_size, 1);
        if (l.local_rank < 0) l.local_rank = 0;
        if (l.local_size < 1) l.local_size = 1;
        return l;
    }
    return (mr_launch){.launcher = MR_NO_LAUNCHER, .size = 1, .local_size = 1};
}

int mr_comm_launched(void) { return mr_launch_read().size; }
