/* How ranks that torchrun started find each other: the few bytes that rank 0 gives to all others through TCP, and what
 * launchers say in the environment. */
#include "comm/engine.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 5, BYTES = 128 };

typedef struct member {
    mr_launch launch;
    unsigned char data[BYTES];
    int status;
    mr_error err;
} member;

static void *share(void *arg)
{
    member *m = arg;
    m->status = mr_store_share(&m->launch, m->data, sizeof m->data, &m->err);
    return NULL;
}

/* A port of this machine that nobody has, and neither the one after it. */
static int free_port(void)
{
    for (int port = 20000 + getpid() % 20000; port < 60000; port += 7) {
        const int s = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(port + 1))};
        const int taken = bind(s, (struct sockaddr *)&at, sizeof at);
        close(s);
        if (!taken) return port;
    }
    fail_msg("no port is free");
    return 0;
}

static void everybody_gets_what_rank_0_has(void **state)
{
    (void)state;
    member members[RANKS] = {{.status = 0}};
    pthread_t threads[RANKS];
    char port[16];
    snprintf(port, sizeof port, "%d", free_port());
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", port, 1);
    for (int r = RANKS - 1; r >= 0; r--) { /* rank 0 last: the others wait for it */
        members[r].launch = (mr_launch){.launcher = "torchrun", .rank = r, .size = RANKS};
        for (int i = 0; i < BYTES; i++) members[r].data[i] = (unsigned char)(r ? 0 : 7 * i + 1);
        assert_int_equal(pthread_create(&threads[r], NULL, share, &members[r]), 0);
        if (r == 1) usleep(150000);
    }
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < RANKS; r++) {
        if (members[r].status) fail_msg("rank %d: %s", r, members[r].err.text);
        assert_memory_equal(members[r].data, members[0].data, BYTES);
    }
    assert_int_equal(members[4].data[3], 22);
}

static void addresses_that_make_no_sense_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {NULL, "1000"}, {"localhost", NULL}, {"localhost", "0"}, {"localhost", "70000"}, {"localhost", "12x"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        member m = {.launch = {.rank = 1, .size = 2}};
        if (wrong[i][0]) setenv("MASTER_ADDR", wrong[i][0], 1);
        else unsetenv("MASTER_ADDR");
        if (wrong[i][1]) setenv("MASTER_PORT", wrong[i][1], 1);
        else unsetenv("MASTER_PORT");
        share(&m);
        assert_int_equal(m.status, MR_EDEVICE);
        assert_non_null(strstr(m.err.text, "MASTER_ADDR and MASTER_PORT"));
    }
}

/* ---- launchers */

static const char *const names[] = {"OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "PMIX_RANK",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "SLURM_PROCID",
                                    "RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE"};

static mr_launch launch_with(const char *const (*set)[2], int count)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
    for (int i = 0; i < count; i++) setenv(set[i][0], set[i][1], 1);
    return mr_launch_read();
}

#define LAUNCH(...)                                                                                                    \
    launch_with((const char *const[][2]){__VA_ARGS__},                                                                 \
                sizeof((const char *const[][2]){__VA_ARGS__}) / sizeof(const char *[2]))

static void launchers_are_known_by_what_they_set(void **state)
{
    (void)state;
    mr_launch l = launch_with(NULL, 0);
    assert_int_equal(l.size, 1);
    assert_int_equal(l.rank, 0);
    l = LAUNCH({"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"});
    assert_string_equal(l.launcher, "mpirun");
    assert_true(l.mpi && l.rank == 3 && l.size == 8 && l.local_rank == 1 && l.local_size == 2);
    l = LAUNCH({"PMI_RANK", "1"}, {"PMI_SIZE", "2"});
    assert_true(l.mpi && l.rank == 1 && l.size == 2 && l.local_rank == 0 && l.local_size == 1);
    l = LAUNCH({"PMIX_RANK", "5"}, {"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_LOCALID", "1"},
               {"SLURM_STEP_TASKS_PER_NODE", "4(x4)"});
    assert_string_equal(l.launcher, "srun");
    assert_true(l.mpi && l.rank == 5 && l.size == 16 && l.local_rank == 1 && l.local_size == 4);
    l = LAUNCH({"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}); /* in an allocation, not started by srun */
    assert_int_equal(l.size, 1);
    l = LAUNCH({"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "7"}, {"SLURM_STEP_TASKS_PER_NODE", "4,3"});
    assert_string_equal(l.launcher, "srun without --mpi=pmix");
    assert_true(!l.mpi && l.rank == 2 && l.size == 7 && l.local_size == 4);
    l = LAUNCH({"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"});
    assert_string_equal(l.launcher, "torchrun");
    assert_true(!l.mpi && l.rank == 1 && l.size == 4 && l.local_rank == 1 && l.local_size == 4);
    /* what is no number, or no rank of so many, is no launcher */
    l = LAUNCH({"RANK", "four"}, {"WORLD_SIZE", "4"});
    assert_int_equal(l.size, 1);
    l = LAUNCH({"RANK", "4"}, {"WORLD_SIZE", "4"});
    assert_int_equal(l.size, 1);
    l = LAUNCH({"RANK", "-1"}, {"WORLD_SIZE", "4"});
    assert_int_equal(l.size, 1);
    l = LAUNCH({"RANK", "0"}, {"WORLD_SIZE", ""});
    assert_int_equal(l.size, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_gets_what_rank_0_has),
        cmocka_unit_test(addresses_that_make_no_sense_are_refused),
        cmocka_unit_test(launchers_are_known_by_what_they_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
