/* One sequence over several ranks: states, scores, losses and the gradients of every parameter are those of one rank
 * with the whole sequence. The ranks are threads here; mpi_sequence.c is for MPI. */
#include "cut_support.h"
#include "thread_ranks.h"

typedef struct job {
    const cut_case *k;
    mr_dev *dev;
    mr_comm *comm;
    cut_result result;
} job;

static void *run_job(void *arg)
{
    job *j = arg;
    cut_run(j->k, j->dev, j->comm, &j->result);
    return NULL;
}

/* A GPU must have been found before. */
static mr_dev *open_rank(const char *device)
{
    mr_error err = {0};
    mr_dev *dev;
    if (strcmp(device, "cuda")) return open_device(device, 1, NULL);
    if (mr_dev_open(device, &(mr_dev_options){.exact = 1}, &dev, &err)) fail_msg("%s", err.text);
    return dev;
}

static int failing_exchange(mr_comm *comm, const mr_message *list, int count, void *stream, mr_error *err)
{
    (void)list;
    (void)count;
    (void)stream;
    return mr_fail(err, MR_EDEVICE, "rank %d: the exchange fails on purpose", comm->rank);
}

/* All ranks of a case side by side. */
static void run_ranks(const cut_case *k, const char *device, int ranks, int fails, job *jobs)
{
    static team group;
    pthread_t threads[MOST_RANKS];
    team_begin(&group, ranks);
    for (int r = 0; r < ranks && fails; r++) group.comms[r].exchange = failing_exchange;
    for (int r = 0; r < ranks; r++) {
        jobs[r] = (job){.k = k, .dev = open_rank(device), .comm = &group.comms[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, run_job, &jobs[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < ranks; r++) mr_dev_close(jobs[r].dev);
    assert_int_equal(team_end(&group), 0);
}

static void check_case(int i, const char *device)
{
    const cut_case k = cut_case_at(i);
    mr_dev *dev = open_rank(device);
    cut_result want;
    cut_run(&k, dev, NULL, &want);
    for (int ranks = 1; ranks <= 4; ranks++) {
        job jobs[MOST_RANKS];
        cut_result parts[MOST_RANKS];
        run_ranks(&k, device, ranks, 0, jobs);
        for (int r = 0; r < ranks; r++) parts[r] = jobs[r].result;
        cut_compare(&k, dev, parts, ranks, &want);
        for (int r = 0; r < ranks; r++) cut_result_free(&parts[r]);
    }
    cut_result_free(&want);
    mr_dev_close(dev);
}

static void ranks_agree_in_doubles(void **state)
{
    (void)state;
    for (int i = 0; i < CUT_CASES; i += REDUCED ? 7 : 1) check_case(i, "ref64");
}

static void ranks_agree_on_the_cpu(void **state)
{
    (void)state;
    for (int i = 0; i < CUT_CASES; i += REDUCED ? 7 : 1) check_case(i, "cpu");
}

static void ranks_agree_on_a_gpu(void **state)
{
    (void)state;
    mr_dev_close(open_test_gpu(&(mr_dev_options){.exact = 1}));
    for (int i = 0; i < CUT_CASES; i += REDUCED ? 7 : 1) check_case(i, "cuda");
}

/* ---- dropout: a run that drops the same elements in every chunk would train less */

typedef struct dropping {
    mr_dev *dev;
    mr_comm *comm;
    int train;
    double scores[10 * 11];
} dropping;

/* Ten tokens that all are alike and start sequences. */
static void *run_dropping(void *arg)
{
    dropping *d = arg;
    mr_config config = config_with("mingru", &cut_text);
    mr_sequence *sequence;
    config.layers = 1, config.dim = 8, config.dropout = 0.5;
    mr_model *model = make_model(&config, d->dev, 1, 10, 1);
    mr_batch batch = make_batch(&cut_text, 1, 10, 1, 0, 1);
    for (int t = 0; t < 10; t++) batch.ids[t] = 3, batch.reset[t] = 1;
    if (mr_sequence_new(&config, d->dev, d->comm, NULL, 0, 2, &sequence, NULL)) abort();
    mr_model_cut(model, sequence);
    if (mr_model_plan(model, 1, 10, 1, NULL)) abort();
    mr_model_set_step(model, &(mr_step){.seed = 5});
    mr_model_forward(model, &batch, NULL, d->train);
    get_as(d->dev, ACTS, d->scores, model->logits, COUNT(d->scores));
    mr_batch_free(&batch);
    mr_model_free(model);
    mr_sequence_free(sequence);
    return NULL;
}

static void ranks_drop_different_elements(void **state)
{
    (void)state;
    for (int train = 0; train < 2; train++) {
        team group;
        dropping ranks[2];
        pthread_t threads[2];
        team_begin(&group, 2);
        for (int r = 0; r < 2; r++) {
            ranks[r] = (dropping){.dev = open_device("cpu", 1, NULL), .comm = &group.comms[r], .train = train};
            assert_int_equal(pthread_create(&threads[r], NULL, run_dropping, &ranks[r]), 0);
        }
        for (int r = 0; r < 2; r++) pthread_join(threads[r], NULL);
        const int alike = !memcmp(ranks[0].scores, ranks[1].scores, sizeof ranks[0].scores);
        assert_int_equal(alike, !train);
        for (int r = 0; r < 2; r++) mr_dev_close(ranks[r].dev);
        team_end(&group);
    }
}

static void a_failed_exchange_is_reported(void **state)
{
    (void)state;
    const cut_case k = cut_case_at(0);
    job jobs[MOST_RANKS];
    run_ranks(&k, "cpu", 2, 1, jobs);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(jobs[r].result.status, MR_EDEVICE);
        assert_string_equal(jobs[r].result.why.text,
                            r ? "rank 1: the exchange fails on purpose" : "rank 0: the exchange fails on purpose");
        cut_result_free(&jobs[r].result);
    }
}

static void refused(const mr_config *c, int ranks, int T, const char *why)
{
    mr_error err = {0};
    assert_int_equal(mr_sequence_check(c, ranks, T, &err), MR_ECONFIG);
    assert_string_equal(err.text, why);
    assert_int_equal(mr_sequence_check(c, 1, T, &err), 0);
}

static void what_cannot_be_cut_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const mixers[] = {"attention", "gru", "lstm"};
    char why[200];
    for (int i = 0; i < COUNT(mixers); i++) {
        const mr_config c = config_with(mixers[i], &cut_text);
        snprintf(why, sizeof why, "sequence-ranks = 2: mixer = %s cannot be cut in time; mingru, minlstm and mamba can",
                 mixers[i]);
        refused(&c, 2, 100, why);
    }
    mr_config c = config_with("mingru", &cut_text);
    c.conv = 0;
    assert_int_equal(mr_sequence_check(&c, 3, 3, NULL), 0);
    refused(&c, 4, 3, "sequence-ranks = 4: more ranks than the 3 tokens of a sequence");
    c.conv = 4;
    assert_int_equal(mr_sequence_check(&c, 3, 9, NULL), 0);
    refused(
        &c, 3, 8,
        "sequence-ranks = 3: 2 tokens a rank are fewer than the 3 that a convolution looks back; use fewer ranks or "
        "longer sequences");
    c = config_with("mamba", &cut_text);
    assert_int_equal(mr_sequence_check(&c, 2, 6, NULL), 0);
    refused(
        &c, 2, 5,
        "sequence-ranks = 2: 2 tokens a rank are fewer than the 3 that a convolution looks back; use fewer ranks or "
        "longer sequences");
}

/* ---- work that exchanges messages is not recorded */

static int recordings;

static void counting_replay(mr_dev *dev, const mr_replay_key *key, void (*work)(void *arg), void *arg)
{
    (void)dev;
    (void)key;
    recordings++;
    work(arg);
}

static void exchanges_are_not_recorded(void **state)
{
    (void)state;
    team group;
    mr_sequence *sequence;
    const cut_case k = cut_case_at(0);
    const mr_step step = {.seed = 5, .lr = 1e-3, .bias1 = 1, .bias2 = 1};
    mr_dev *dev = open_device("cpu", 1, NULL);
    mr_model *model = make_model(&k.config, dev, CUT_B, CUT_T, 1);
    mr_batch batch = make_batch(&cut_text, CUT_B, CUT_T, 0, 0, 1);
    dev->replay = counting_replay;
    mr_model_learn(model, &batch, NULL, &step, 1, 1, 1);
    assert_int_equal(recordings, 1);
    team_begin(&group, 1);
    assert_int_equal(mr_sequence_new(&k.config, dev, &group.comms[0], NULL, 0, 1, &sequence, NULL), 0);
    mr_model_cut(model, sequence);
    assert_false(mr_model_fits(model, CUT_B, CUT_T, 1)); /* its plan has no memory for the group */
    mr_model_set_recompute(model, (mr_recomputing){MR_RECOMPUTE_CHUNKS, 4});
    assert_int_equal(mr_model_plan(model, CUT_B, CUT_T, 1, NULL), MR_ECONFIG); /* cut between ranks already */
    mr_model_set_recompute(model, (mr_recomputing){MR_RECOMPUTE_NONE, 0});
    assert_int_equal(mr_model_plan(model, CUT_B, CUT_T, 1, NULL), 0);
    mr_model_learn(model, &batch, NULL, &step, 1, 1, 1);
    assert_int_equal(recordings, 1);
    mr_model_cut(model, NULL);
    mr_model_learn(model, &batch, NULL, &step, 1, 1, 1);
    assert_int_equal(recordings, 2);
    mr_model_cut(model, sequence);
    assert_true(mr_model_fits(model, CUT_B, CUT_T, 1));
    mr_batch_free(&batch);
    mr_model_free(model);
    mr_sequence_free(sequence);
    mr_dev_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_cut_is_refused_by_name),
        cmocka_unit_test(exchanges_are_not_recorded),
        cmocka_unit_test(a_failed_exchange_is_reported),
        cmocka_unit_test(ranks_agree_in_doubles),
        cmocka_unit_test(ranks_agree_on_the_cpu),
        cmocka_unit_test(ranks_agree_on_a_gpu),
        cmocka_unit_test(ranks_drop_different_elements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
