/* Sequences cut between the ranks of an MPI run agree with whole ones. Started by mpirun; rank 0 compares, and the
 * others send it what they computed. */
#include "cut_support.h"

enum { FIELDS = 6 };

/* A result's arrays, and how many numbers each has. */
static void fields_of(cut_result *r, double ***arrays, size_t *counts)
{
    double **const all[FIELDS] = {&r->grads, &r->h, &r->scores, &r->after, &r->before, &r->learned};
    const size_t sizes[FIELDS] = {r->params, r->hidden, r->logits, r->state, r->state, r->params};
    memcpy(arrays, all, sizeof all);
    memcpy(counts, sizes, sizeof sizes);
}

static void exchange(mr_comm *comm, int peer, int receive, void *at, size_t bytes)
{
    mr_error err = {0};
    const mr_message m = {.peer = peer, .receive = receive, .at = at, .bytes = bytes};
    if (comm->exchange(comm, &m, 1, NULL, &err)) fail_msg("rank %d: %s", comm->rank, err.text);
}

static void send_result(mr_comm *comm, cut_result *r)
{
    double **arrays[FIELDS];
    size_t counts[FIELDS];
    fields_of(r, arrays, counts);
    exchange(comm, 0, 0, r, sizeof *r);
    for (int i = 0; i < FIELDS; i++) exchange(comm, 0, 0, *arrays[i], counts[i] * sizeof(double));
}

static void receive_result(mr_comm *comm, int from, cut_result *r)
{
    double **arrays[FIELDS];
    size_t counts[FIELDS];
    exchange(comm, from, 1, r, sizeof *r); /* its pointers are the sender's */
    fields_of(r, arrays, counts);
    for (int i = 0; i < FIELDS; i++) {
        *arrays[i] = mr_alloc(counts[i], sizeof(double));
        assert_non_null(*arrays[i]);
        exchange(comm, from, 1, *arrays[i], counts[i] * sizeof(double));
    }
}

static mr_comm *comm;

static void check_case(int i, const char *device)
{
    const cut_case k = cut_case_at(i);
    mr_dev *dev = open_device(device, 1, NULL);
    cut_result parts[8], want;
    cut_run(&k, dev, comm, &parts[0]);
    if (comm->rank) send_result(comm, &parts[0]);
    else {
        for (int r = 1; r < comm->size; r++) receive_result(comm, r, &parts[r]);
        cut_run(&k, dev, NULL, &want);
        cut_compare(&k, dev, parts, comm->size, &want);
        cut_result_free(&want);
        for (int r = 1; r < comm->size; r++) cut_result_free(&parts[r]);
    }
    cut_result_free(&parts[0]);
    mr_dev_close(dev);
}

static void ranks_agree(void **state)
{
    (void)state;
    for (int i = 0; i < CUT_CASES; i += 3) check_case(i, "cpu");
    for (int i = 1; i < CUT_CASES; i += 9) check_case(i, "ref64");
}

int main(void)
{
    mr_error err = {0};
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_agree)};
    if (mr_comm_join("mpi", 0, &comm, &err)) {
        printf("skipped: %s\n", err.text);
        return 77;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (failed) comm->abort(comm); /* the others may wait for an answer */
    mr_comm_leave(comm);
    return failed;
}
