/* Ranks that train one model: the same bits for any number of them, as a sum of micro-batches written down apart from
 * the code; the pieces of the vector and the tree of micro-batches by themselves. */
#include "support.h"
#include "thread_ranks.h"

enum { ROWS = 2, LENGTH = 5, STEPS = 2, MOST_MICROS = 9 };

static const mr_interface words = {
    .input = MR_INPUT_TOKENS, .inputs = 50, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = 50};

/* ---- pieces and the tree */

static void every_element_has_one_owner(void **state)
{
    (void)state;
    mr_params params = {0};
    int stages[3] = {2, 0, 1};
    const int64_t shapes[3][2] = {{700, 300}, {MR_SUM_PART, 3}, {1, 77777}};
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "row%d", i);
        mr_params_add(&params, "", name, 0, MR_INIT_CONSTANT, 0, 2, shapes[i]);
    }
    assert_int_equal(mr_params_layout(&params, MR_DECAY_ALL), 0);
    unsigned char *owners = mr_alloc(params.total, 1);
    assert_non_null(owners);
    for (int ranks = 1; ranks <= 9; ranks++) {
        mr_pieces pieces;
        size_t most = 0, least = params.total;
        assert_int_equal(mr_pieces_new(&pieces, &params, stages, 4 * MR_SUM_PART), 0);
        memset(owners, 0, params.total);
        for (int r = 0; r < ranks; r++) {
            size_t has = 0;
            for (int p = 0; p < pieces.count; p++) {
                const mr_span s = mr_piece_of_rank(&pieces, p, r, ranks);
                for (size_t k = 0; k < s.count; k++) owners[s.first + k]++;
                if (s.count) assert_int_equal(s.first % MR_SUM_PART, 0);
                has += s.count;
            }
            most = has > most ? has : most;
            least = has < least ? has : least;
        }
        for (size_t k = 0; k < params.total; k++) assert_int_equal(owners[k], 1);
        assert_in_range(most - least, 0, 4 * MR_SUM_PART);
        /* a piece is sent when the last row that reaches into it is complete */
        for (int p = 0; p < pieces.count; p++) {
            int stage = 0;
            for (int i = 0; i < params.count; i++) {
                const mr_param *row = &params.list[i];
                const mr_span s = pieces.list[p].span;
                if (row->offset < s.first + s.count && s.first < row->offset + row->count && stages[i] > stage)
                    stage = stages[i];
            }
            assert_int_equal(pieces.list[p].stage, stage);
            if (p) assert_true(pieces.list[p - 1].stage <= stage);
        }
        mr_pieces_free(&pieces, NULL);
    }
    mr_free(owners);
    mr_params_free(&params);
}

static void ranges_are_made_of_whole_nodes(void **state)
{
    (void)state;
    for (int first = 0; first < 40; first++)
        for (int end = first; end < 40; end++) {
            mr_node nodes[MR_NODES];
            const int count = mr_nodes_of(first, end, nodes);
            int at = first;
            for (int i = 0; i < count; i++) {
                assert_int_equal(nodes[i].index << nodes[i].level, at);
                at += 1 << nodes[i].level;
                if (i) assert_false(mr_nodes_pair(nodes[i - 1], nodes[i]));
            }
            assert_int_equal(at, end);
        }
    for (int ranks = 1; ranks < 12; ranks++)
        for (int micros = ranks; micros < 30; micros++)
            for (int r = 0, at = 0; r < ranks; r++) {
                int first, end;
                mr_micros_of_rank(micros, r, ranks, &first, &end);
                assert_int_equal(first, at);
                assert_in_range(end - first, micros / ranks, (micros + ranks - 1) / ranks);
                at = end;
                if (r == ranks - 1) assert_int_equal(at, micros);
            }
}

/* ---- models */

/* 2.8 million parameters are three pieces. */
static mr_config large(int tied)
{
    mr_config c = config_of(&forms[0].cell, &words);
    c.layers = 3;
    c.dim = 256;
    c.expansion = 2;
    c.mlp = 4;
    c.conv = 4;
    c.dropout = 0.2;
    c.tied = tied;
    return c;
}

static mr_step step_of(int step, int micro)
{
    return (mr_step){.seed = 5,
                     .step = (uint32_t)step,
                     .micro = (uint32_t)micro,
                     .lr = 1e-2,
                     .beta1 = 0.9,
                     .beta2 = 0.99,
                     .eps = 1e-3,
                     .weight_decay = 0.1,
                     .clip = 1,
                     .bias1 = 0.1,
                     .bias2 = 0.01,
                     .decoupled = 1};
}

/* Another number of targets counts in each. */
static mr_batch micro_batch(int step, int micro)
{
    return make_batch(&words, ROWS, LENGTH, 1, 1, (uint32_t)(100 * step + micro));
}

/* Micro-batches first … end − 1 of one step. */
static void learn(mr_model *m, int step, int first, int end, int micros)
{
    for (int k = first; k < end; k++) {
        mr_error err = {0};
        mr_batch batch = micro_batch(step, k);
        const mr_step values = step_of(step, k);
        const mr_micro which = {.micro = k, .first = first, .end = end, .micros = micros};
        const double scale = 1 / ((double)batch.counted * micros);
        if (mr_model_learn_micro(m, &batch, NULL, &values, scale, &which, &err)) fail_msg("%s", err.text);
        mr_batch_free(&batch);
    }
}

static float *vector_of(mr_model *m, mr_vector which)
{
    mr_error err = {0};
    float *v = mr_alloc(mr_model_params(m)->total, sizeof *v);
    assert_non_null(v);
    if (mr_model_gather(m, which, v, &err)) fail_msg("%s", err.text);
    return v;
}

/* ---- a process alone: against the sum as it is defined */

/* The sum of gradients first … end − 1: the left half is the largest power of two that is not all of them. */
static void add_tree(float **grads, int first, int end, size_t n, float *sum)
{
    int left = 1;
    while (2 * left < end - first) left *= 2;
    if (end - first == 1) {
        memcpy(sum, grads[first], n * sizeof *sum);
        return;
    }
    float *right = mr_alloc(n, sizeof *right);
    assert_non_null(right);
    add_tree(grads, first, first + left, n, sum);
    add_tree(grads, first + left, end, n, right);
    for (size_t i = 0; i < n; i++) sum[i] += right[i];
    mr_free(right);
}

static void gradients_are_added_in_the_tree(mr_dev *dev)
{
    mr_config config = large(0);
    config.dim = 32;
    for (int micros = 2; micros <= MOST_MICROS; micros++) {
        mr_model *parts = make_model(&config, dev, ROWS, LENGTH, 1), *whole = make_model(&config, dev, ROWS, LENGTH, 1);
        const size_t n = mr_model_params(parts)->total;
        float *grads[MOST_MICROS], *sum = mr_alloc(n, sizeof *sum);
        for (int k = 0; k < micros; k++) {
            mr_batch batch = micro_batch(1, k);
            const mr_step values = step_of(1, k);
            mr_model_learn(parts, &batch, NULL, &values, 1 / ((double)batch.counted * micros), 1, 0);
            grads[k] = vector_of(parts, MR_GRADS);
            mr_batch_free(&batch);
        }
        add_tree(grads, 0, micros, n, sum);
        learn(whole, 1, 0, micros, micros);
        float *got = vector_of(whole, MR_GRADS);
        double squares = 0;
        for (size_t i = 0; i < n; i++) squares += (double)sum[i] * sum[i];
        assert_memory_equal(got, sum, n * sizeof *sum);
        assert_true(fabs(mr_model_grad_norm(whole) - sqrt(squares)) <= 1e-9 * sqrt(squares));
        for (int k = 0; k < micros; k++) mr_free(grads[k]);
        mr_free(got);
        mr_free(sum);
        mr_model_free(parts);
        mr_model_free(whole);
    }
}

static void a_process_alone_adds_in_the_tree(void **state)
{
    (void)state;
    mr_dev *dev = open_device("cpu", 1, NULL);
    gradients_are_added_in_the_tree(dev);
    mr_dev_close(dev);
}

/* ---- several */

typedef struct trial {
    const char *device;
    int ranks, micros, shard, tied, courier;
} trial;

typedef struct member {
    const trial *trial;
    mr_recomputing recompute;
    mr_comm *comm; /* NULL: alone */
    float *result[3];
    double norm;
} member;

static void *train_member(void *arg)
{
    member *me = arg;
    const trial *t = me->trial;
    mr_error err = {0};
    mr_dev *dev = open_device(t->device, 1, NULL);
    const mr_config config = large(t->tied);
    int first = 0, end = t->micros;
    mr_courier *courier = me->comm && t->courier ? mr_courier_new(me->comm, NULL) : NULL;
    mr_model *m;
    if (mr_model_new(&config, dev, MR_DECAY_MATRICES, &m, &err)) fail_msg("%s", err.text);
    if (me->comm && mr_model_join(m, me->comm, courier, t->shard, 1, &err)) fail_msg("%s", err.text);
    if (me->comm) mr_micros_of_rank(t->micros, me->comm->rank, t->ranks, &first, &end);
    if (me->recompute.how) mr_model_set_recompute(m, me->recompute);
    if (mr_model_plan(m, ROWS, LENGTH, 1, &err)) fail_msg("%s", err.text);
    float *weights = mr_alloc(mr_model_params(m)->total, sizeof *weights);
    mr_model_init_weights(m, 7, 100, weights);
    mr_model_put(m, MR_WEIGHTS, weights);
    mr_free(weights);
    for (int step = 1; step <= STEPS; step++) learn(m, step, first, end, t->micros);
    me->norm = mr_model_grad_norm(m);
    me->result[0] = vector_of(m, MR_WEIGHTS);
    me->result[1] = vector_of(m, MR_MOMENT1);
    me->result[2] = vector_of(m, MR_MOMENT2);
    mr_model_free(m);
    mr_courier_free(courier);
    mr_dev_close(dev);
    return NULL;
}

static void forget(member *m)
{
    for (int i = 0; i < 3; i++) mr_free(m->result[i]);
}

static void check_trial(const trial *t, mr_recomputing recompute)
{
    const mr_config config = large(t->tied);
    mr_dev *dev = open_device(t->device, 1, NULL);
    mr_model *table = make_model(&config, dev, 1, 1, 0);
    const size_t bytes = mr_model_params(table)->total * sizeof(float);
    mr_model_free(table);
    mr_dev_close(dev);
    team together;
    pthread_t threads[MOST_RANKS];
    member alone = {.trial = t, .recompute = recompute}, members[MOST_RANKS] = {{0}};
    train_member(&alone);
    team_begin(&together, t->ranks);
    for (int r = 0; r < t->ranks; r++) {
        members[r] = (member){.trial = t, .recompute = recompute, .comm = &together.comms[r]};
        assert_int_equal(pthread_create(&threads[r], NULL, train_member, &members[r]), 0);
    }
    for (int r = 0; r < t->ranks; r++) pthread_join(threads[r], NULL);
    assert_int_equal(team_end(&together), 0);
    for (int r = 0; r < t->ranks; r++) {
        if (members[r].norm != alone.norm)
            fail_msg("%s, %d ranks, %d micro-batches: the norm of rank %d is %.17g, not %.17g", t->device, t->ranks,
                     t->micros, r, members[r].norm, alone.norm);
        for (int i = 0; i < 3; i++)
            if (memcmp(members[r].result[i], alone.result[i], bytes))
                fail_msg("%s, %d ranks, %d micro-batches, shard %d: vector %d of rank %d has other bits", t->device,
                         t->ranks, t->micros, t->shard, i, r);
        forget(&members[r]);
    }
    forget(&alone);
}

static void ranks_do_what_one_does(void **state)
{
    (void)state;
    static const trial trials[] = {
        {"cpu", 2, 2, 0, 0, 1}, {"cpu", 2, 5, 0, 0, 0}, {"cpu", 2, 8, 1, 0, 1},   {"cpu", 3, 3, 0, 1, 1},
        {"cpu", 3, 7, 1, 0, 0}, {"cpu", 4, 4, 1, 1, 1}, {"cpu", 4, 6, 0, 0, 1},   {"cpu", 5, 9, 1, 0, 1},
        {"cpu", 8, 8, 0, 0, 1}, {"cpu", 8, 9, 1, 1, 0}, {"ref64", 3, 4, 0, 0, 0}, {"ref64", 2, 3, 1, 0, 0},
    };
    const int few = REDUCED ? 4 : COUNT(trials);
    for (int i = 0; i < few; i++) check_trial(&trials[i], (mr_recomputing){.how = MR_RECOMPUTE_AUTO});
}

/* Chunks complete the gradients with the last of them alone. */
static void ranks_that_compute_again(void **state)
{
    (void)state;
    static const trial trials[] = {{"cpu", 3, 7, 0, 0, 1}, {"cpu", 2, 5, 1, 1, 0}};
    for (int i = 0; i < COUNT(trials); i++) {
        check_trial(&trials[i], (mr_recomputing){.how = MR_RECOMPUTE_CHUNKS, .chunk = 2});
        check_trial(&trials[i], (mr_recomputing){.how = MR_RECOMPUTE_BLOCKS});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_has_one_owner),      cmocka_unit_test(ranges_are_made_of_whole_nodes),
        cmocka_unit_test(a_process_alone_adds_in_the_tree), cmocka_unit_test(ranks_do_what_one_does),
        cmocka_unit_test(ranks_that_compute_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
