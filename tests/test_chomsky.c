/* The paper's tasks of the Chomsky hierarchy: each compared with a second definition, and the
 * distribution of their batches. */
#include "chomsky_support.h"

#include "train/evaluate.h"
#include "train/recipe.h"
#include "train/recipes.h"

/* ---- the seven tasks */

static int count_of(const question *q, int32_t symbol)
{
    int n = 0;
    for (int i = 0; i < q->n; i++) n += q->ids[i] == symbol;
    return n;
}

static int ties;

static void check_majority(const question *q)
{
    int most = count_of(q, q->answer[0]);
    assert_int_equal(q->m, 1);
    for (int i = 0; i < q->n; i++) {
        int n = count_of(q, q->ids[i]);
        assert_true(n < most || (n == most && q->ids[i] <= q->answer[0]));
        ties += n == most && q->ids[i] < q->answer[0];
    }
}

static void check_count(const question *q)
{
    int reached = 0;
    assert_int_equal(q->m, 1);
    for (int i = 0; i < q->n; i++) {
        assert_that(count_of(q, q->ids[i]), <=, q->answer[0]);
        reached |= count_of(q, q->ids[i]) == q->answer[0];
    }
    assert_true(reached);
}

static void tasks_are_what_they_are_called(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        checker *check;
        int inputs, outputs, max_T; /* symbols and the empty token; classes; longest row for lengths up to 256 */
    } tasks[] = {{"bucket_sort", check_sorted, 11, 10, 512}, {"cycle_nav", check_walk, 4, 5, 288},
                 {"even_pairs", check_pairs, 3, 2, 288},     {"parity", check_parity, 3, 2, 288},
                 {"majority", check_majority, 64, 63, 288},  {"majority_count", check_count, 64, 63, 288},
                 {"missing_duplicate", NULL, 10, 9, 512}};
    ties = 0;
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        mr_task *task = open_language("paper", tasks[i].name, 256, NULL);
        assert_int_equal(task->interface.input, MR_INPUT_TOKENS);
        assert_int_equal(task->interface.head, MR_HEAD_TOKEN);
        assert_int_equal(task->interface.loss, MR_LOSS_XENT);
        assert_int_equal(task->interface.inputs, tasks[i].inputs);
        assert_int_equal(task->interface.outputs, tasks[i].outputs);
        assert_int_equal(task->max_T, tasks[i].max_T);
        assert_int_equal(task->eval_batches, 100);
        assert_int_equal(task->type->best_by_accuracy, 1);
        mr_task_free(task);
        check_language("paper", tasks[i].name, tasks[i].check, tasks[i].check);
    }
    assert_that(ties, >, 100);
}

/* The length of the string whose copy breaks off, if exactly one length explains all rows; otherwise 0. */
static int length_of_string(const mr_task *task, const mr_batch *batch)
{
    int found = 0, fitting = 0, n = question_of(task, batch, 0).n;
    for (int length = (n + 2) / 2; length <= n; length++) {
        int fits = 1;
        for (int row = 0; fits && row < batch->B; row++) {
            question q = question_of(task, batch, row);
            for (int i = length; i < n; i++) fits &= q.ids[i] == q.ids[i - length];
            fits &= q.m == 1 && q.answer[0] == q.ids[n - length];
        }
        if (fits) found = length;
        fitting += fits;
    }
    return fitting == 1 ? found : 0;
}

static void a_copy_breaks_off_anywhere(void **state)
{
    (void)state;
    enum { STEPS = 2000 };
    int lengths[40] = {0}, quarters[4] = {0}, places[7] = {0};
    mr_task *task = open_language("paper", "missing_duplicate", 16, NULL);
    mr_batch batch = new_batch(task);
    for (uint32_t step = 1; step <= STEPS; step++) {
        task->type->train_batch(task, step, 0, &batch);
        int length = length_of_string(task, &batch);
        assert_in_range(length, 1, 40);
        lengths[length - 1]++;
        if (length % 4 == 0) quarters[4 * (question_of(task, &batch, 0).n - length) / length]++;
    }
    assert_uniform(lengths, 40, "lengths");
    assert_uniform(quarters, 4, "quarters where the copy breaks off");
    mr_batch_free(&batch);
    mr_task_free(task);
    task = open_language("paper", "missing_duplicate", 16,
                         (setting[]){{"eval-from", "7"}, {"eval-to", "7"}, {"eval-lengths", "1400"}, {0}});
    batch = new_batch(task);
    for (int i = 0; i < 1400; i++) {
        task->type->eval_batch(task, 16 * i, &batch);
        assert_int_equal(length_of_string(task, &batch), 7);
        places[question_of(task, &batch, 0).n - 7]++;
    }
    assert_uniform(places, 7, "places where the copy breaks off");
    mr_batch_free(&batch);
    mr_task_free(task);
}

/* ---- distributions */

static void lengths_and_symbols_are_uniform(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int symbols;
    } tasks[] = {{"bucket_sort", 10}, {"missing_duplicate", 9}, {"cycle_nav", 3},      {"even_pairs", 2},
                 {"parity", 2},       {"majority", 63},         {"majority_count", 63}};
    for (size_t k = 0; k < sizeof tasks / sizeof *tasks; k++) {
        int lengths[40] = {0}, symbols[63] = {0}, first[63] = {0};
        /* lengths vary with the copy, and symbols come twice */
        int copies = !strcmp(tasks[k].name, "missing_duplicate");
        mr_task *task = open_language("paper", tasks[k].name, 2, NULL);
        mr_batch batch = new_batch(task);
        for (uint32_t step = 1; step <= 4000; step++) {
            task->type->train_batch(task, step, 0, &batch);
            question q = question_of(task, &batch, 1);
            if (!copies) assert_in_range(q.n, 1, 40);
            if (!copies) lengths[q.n - 1]++;
            first[q.ids[0]]++;
            for (int i = 0; i < q.n && !copies; i++) symbols[q.ids[i]]++;
        }
        if (!copies) assert_uniform(lengths, 40, tasks[k].name);
        if (!copies) assert_uniform(symbols, tasks[k].symbols, tasks[k].name);
        assert_uniform(first, tasks[k].symbols, tasks[k].name);
        mr_batch_free(&batch);
        mr_task_free(task);
    }
}

static void scored_lengths_are_uniform(void **state)
{
    (void)state;
    int lengths[217] = {0};
    mr_task *task =
        open_language("paper", "parity", 1, (setting[]){{"eval-lengths", "10000"}, {"eval-samples", "1"}, {0}});
    mr_batch batch = new_batch(task);
    assert_int_equal(task->eval_batches, 10000);
    for (int i = 0; i < task->eval_batches; i++) {
        task->type->eval_batch(task, i, &batch);
        question q = question_of(task, &batch, 0);
        assert_in_range(q.n, 40, 256);
        assert_int_equal(task->type->eval_group(task, i), 0);
        lengths[q.n - 40]++;
    }
    assert_uniform(lengths, 217, "scored lengths");
    mr_batch_free(&batch);
    mr_task_free(task);
}

/* A hundred lengths come one from each hundredth of 40 … 256, so their mean is that of the range. */
static void scored_lengths_cover_the_range(void **state)
{
    (void)state;
    mr_task *task = open_language("paper", "parity", 1, (setting[]){{"eval-samples", "1"}, {0}});
    mr_batch batch = new_batch(task);
    double sum = 0;
    for (int i = 0; i < 100; i++) {
        task->type->eval_batch(task, i, &batch);
        question q = question_of(task, &batch, 0);
        assert_in_range(q.n, 40 + 217 * i / 100, 40 + (217 * (i + 1) - 1) / 100);
        sum += q.n;
    }
    assert_float_equal(sum / 100, 148, 0.5);
    mr_batch_free(&batch);
    mr_task_free(task);
}

/* ---- places */

static void batches_are_functions_of_their_place(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"paper", "majority"}, {"paper", "bucket_sort"}, {"deepmind", "stack_manipulation"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mr_task *task = open_language(names[i][0], names[i][1], 16, NULL);
        check_places(task);
        check_two_threads(task);
        mr_task_free(task);
    }
}

/* All test sequences one after the other, each followed by −1, its answers, and −1. */
static int collect(const char *protocol, const char *name, int size, int32_t *out)
{
    mr_task *task = open_language(protocol, name, size,
                                  (setting[]){{"eval-lengths", "7"}, {"eval-samples", "12"}, {"eval-to", "47"}, {0}});
    mr_batch batch = new_batch(task);
    int n = 0, sequences = 0;
    task->seed = (uint64_t)size;
    for (int i = 0; i < task->eval_batches; i++) {
        task->type->eval_batch(task, i, &batch);
        for (int row = 0; row < batch.B; row++, sequences++) {
            question q = question_of(task, &batch, row);
            for (int k = 0; k < q.n; k++) out[n++] = q.ids[k];
            out[n++] = -1;
            for (int k = 0; k < q.m; k++) out[n++] = q.answer[k];
            out[n++] = -1;
        }
    }
    assert_int_equal(sequences, 7 * 12); /* deepmind: 41 to 47 */
    mr_batch_free(&batch);
    mr_task_free(task);
    return n;
}

static void the_test_set_depends_on_neither_seed_nor_batch(void **state)
{
    (void)state;
    static const int sizes[] = {12, 1, 5, 7, 64};
    static const char *const names[][2] = {
        {"paper", "bucket_sort"}, {"paper", "missing_duplicate"}, {"deepmind", "binary_addition"}};
    static int32_t expected[20000], got[20000];
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        int n = collect(names[k][0], names[k][1], 3, expected);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            assert_int_equal(collect(names[k][0], names[k][1], sizes[i], got), n);
            assert_memory_equal(got, expected, (size_t)n * sizeof *got);
        }
    }
}

/* ---- settings */

static mr_task *unopened(const setting *settings) { return new_task("chomsky", 4, 0, settings); }

static void settings_that_do_not_fit_are_explained(void **state)
{
    (void)state;
    refused(unopened((setting[]){{"task", "cycle_navigation"}, {0}}), MR_ECONFIG,
            "the paper protocol has no task \"cycle_navigation\": choose --task among bucket_sort missing_duplicate "
            "cycle_nav");
    refused(unopened((setting[]){{"task", "parity"}, {"protocol", "deepmind"}, {0}}), MR_ECONFIG,
            "binary_multiplication compute_sqrt bucket_sort");
    refused(unopened((setting[]){{"eval-to", "30"}, {0}}), MR_ECONFIG,
            "lengths 40 to 30 cannot be scored: lower --eval-from or raise --eval-to");
    refused(unopened((setting[]){{"train-length", "100"}, {"task", "bucket_sort"}, {"protocol", "deepmind"}, {0}}),
            MR_ECONFIG, "lengths 101 to 100");
}

/* Plans are made for the longest batch, which may be a training batch. */
static void the_longest_batch_may_be_one_of_training(void **state)
{
    (void)state;
    mr_task *task =
        open_language("paper", "bucket_sort", 4, (setting[]){{"train-length", "100"}, {"eval-to", "41"}, {0}});
    assert_int_equal(task->max_T, 208);
    mr_task_free(task);
    task = open_language("paper", "majority_count", 4,
                         (setting[]){{"train-length", "1"}, {"eval-from", "2048"}, {"eval-to", "2048"}, {0}});
    assert_int_equal(task->max_T, 2080);
    mr_task_free(task);
}

static void recipes_are_the_papers(void **state)
{
    (void)state;
    static const char *const names[] = {"bucket_sort", "missing_duplicate", "cycle_nav",     "even_pairs",
                                        "parity",      "majority",          "majority_count"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char name[64], value[MR_TEXT_MAX];
        mr_recipe r;
        mr_error err = {0};
        snprintf(name, sizeof name, "chomsky-%s", names[i]);
        if (mr_recipe_load(&r, name, &err)) fail_msg("%s", err.text);
        assert_string_equal(r.task->type->name, "chomsky");
        assert_string_equal(mr_option_print(mr_option_find(r.task->type->options, "task"), r.task->settings, value),
                            names[i]);
        assert_string_equal(mr_recipe_model_key(&r, "mixer", value), "minlstm");
        assert_string_equal(mr_recipe_model_key(&r, "layers", value), "2");
        assert_string_equal(mr_recipe_model_key(&r, "dim", value), "256");
        assert_string_equal(mr_recipe_model_key(&r, "conv", value), "4");
        assert_string_equal(mr_recipe_model_key(&r, "mlp", value), "0");
        assert_int_equal(r.train.batch, 256);
        assert_int_equal(mr_train_steps(&r.train), 500000);
        assert_string_equal(mr_option_print(mr_option_find(mr_train_table(), "lr"), &r.train, value), "0.0003");
        assert_string_equal(mr_option_print(mr_option_find(mr_train_table(), "weight-decay"), &r.train, value), "0.01");
        if (mr_recipe_open(&r, &err)) fail_msg("%s", err.text);
        mr_recipe_free(&r);
    }
}

/* Chains of base recipes end, and every recipe can be read. */
static void every_recipe_can_be_read(void **state)
{
    (void)state;
    for (int i = 0; mr_recipe_names[i]; i++) {
        mr_recipe r;
        mr_error err = {0};
        if (mr_recipe_load(&r, mr_recipe_names[i], &err)) fail_msg("%s", err.text);
        mr_recipe_free(&r);
    }
}

static void recipe_is(const char *text, const char *error, const char *dim)
{
    mr_recipe r;
    mr_error err = {0};
    char path[MR_TEXT_MAX];
    write_file("r.ini", text, strlen(text), path);
    int status = mr_recipe_load(&r, path, &err);
    if (error) {
        assert_int_equal(status, MR_EINVAL);
        assert_says(&err, error);
        assert_null(r.task);
        return;
    }
    if (status) fail_msg("%s", err.text);
    assert_string_equal(mr_recipe_model_key(&r, "dim", path), dim);
    assert_int_equal(r.train.batch, 256);
    mr_recipe_free(&r);
}

static void a_recipe_may_name_a_base(void **state)
{
    (void)state;
    recipe_is("base = chomsky\n", NULL, "256");
    recipe_is("base = chomsky-parity\n[task]\nname = chomsky\ntask = majority\n[model]\ndim = 8\n", NULL, "8");
    recipe_is("base = chomsky\n[task]\nname = text\n", "base = chomsky is a recipe of chomsky, not of text", NULL);
    recipe_is("base = nowhere\n", "r.ini: base = nowhere: no recipe nowhere", NULL);
    recipe_is("base = r.ini\n", "no recipe r.ini", NULL);
    recipe_is("base = chomsky\nbase = demo\n", "base is given twice", NULL);
    recipe_is("[task]\nbase = chomsky\n", "names no task", NULL);
    recipe_is("other = chomsky\n[task]\nname = chomsky\n", "unknown section", NULL);
}

/* ---- scores */

static int first_batch; /* of those that the task below passes on */

static void later_batch(const mr_task *task, int index, mr_batch *batch)
{
    mr_task_type_find("chomsky")->eval_batch(task, first_batch + index, batch);
}

static int later_group(const mr_task *task, int index)
{
    return mr_task_type_find("chomsky")->eval_group(task, first_batch + index);
}

/* The score of some consecutive batches, as if they were the test set. */
static mr_score score_of(mr_net *net, mr_task *task, mr_batch *batch, int first, int count)
{
    mr_task_type type = *task->type;
    mr_task part = *task;
    mr_score score;
    type.eval_batch = later_batch;
    type.eval_group = later_group;
    part.type = &type;
    part.eval_batches = count;
    first_batch = first;
    assert_int_equal(mr_evaluate(net, &part, batch, &(mr_eval_options){0}, &score, NULL), 0);
    return score;
}

/* DeepMind's score: every length has the same weight, though longer strings have more answers. */
static void the_score_is_the_mean_over_lengths(void **state)
{
    (void)state;
    mr_recipe r;
    mr_context *ctx;
    mr_net *net;
    mr_batch batch;
    static const setting keys[] = {{"protocol", "deepmind"},
                                   {"task", "stack_manipulation"},
                                   {"eval-from", "2"},
                                   {"eval-to", "12"},
                                   {"eval-samples", "20"},
                                   {"batch", "16"},
                                   {"dim", "8"},
                                   {"layers", "1"}};
    assert_int_equal(mr_recipe_load(&r, "chomsky", NULL), 0);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_int_equal(mr_recipe_set(&r, keys[i].key, keys[i].value, NULL), 0);
    assert_int_equal(mr_recipe_open(&r, NULL), 0);
    mr_context_options options = MR_CONTEXT_OPTIONS;
    options.device = "cpu";
    options.threads = 1;
    assert_int_equal(mr_context_new(&options, &ctx, NULL), 0);
    assert_int_equal(mr_recipe_net(&r, ctx, &net, NULL), 0);
    assert_int_equal(mr_batch_new(&batch, &r.task->interface, 16, r.task->max_T), 0);
    mr_score whole = score_of(net, r.task, &batch, 0, r.task->eval_batches);
    double loss = 0, accuracy = 0, pooled = 0;
    int64_t rows = 0;
    for (int length = 0; length < 11; length++) {
        mr_score a = score_of(net, r.task, &batch, 2 * length, 1), b = score_of(net, r.task, &batch, 2 * length + 1, 1);
        double n = (double)(a.rows + b.rows), both = a.accuracy * (double)a.rows + b.accuracy * (double)b.rows;
        loss += (a.loss * (double)a.rows + b.loss * (double)b.rows) / n / 11;
        accuracy += both / n / 11;
        pooled += both;
        rows += a.rows + b.rows;
    }
    if (!(fabs(whole.loss - loss) <= 1e-9 * loss)) fail_msg("loss %.12g, not %.12g", whole.loss, loss);
    if (!(fabs(whole.accuracy - accuracy) <= 1e-9)) fail_msg("accuracy %.12g, not %.12g", whole.accuracy, accuracy);
    assert_that(fabs(pooled / (double)rows - accuracy), >, 1e-4); /* the mean over answers would differ */
    assert_int_equal(whole.rows, rows);
    mr_batch_free(&batch);
    mr_net_free(net);
    mr_context_free(ctx);
    mr_recipe_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_are_what_they_are_called),
        cmocka_unit_test(a_copy_breaks_off_anywhere),
        cmocka_unit_test(lengths_and_symbols_are_uniform),
        cmocka_unit_test(scored_lengths_are_uniform),
        cmocka_unit_test(scored_lengths_cover_the_range),
        cmocka_unit_test(batches_are_functions_of_their_place),
        cmocka_unit_test(the_test_set_depends_on_neither_seed_nor_batch),
        cmocka_unit_test(settings_that_do_not_fit_are_explained),
        cmocka_unit_test(the_longest_batch_may_be_one_of_training),
        cmocka_unit_test(recipes_are_the_papers),
        cmocka_unit_test(every_recipe_can_be_read),
        cmocka_unit_test(a_recipe_may_name_a_base),
        cmocka_unit_test(the_score_is_the_mean_over_lengths),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
