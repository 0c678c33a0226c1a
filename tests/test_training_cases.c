/* The training loop by a table of cases: given the test losses of a run, which step is the best, when patience ends,
 * what is saved, and that a run stopped anywhere and resumed does the same.
 *
 * The rate is 0, so the model stays what it is, and the test set decides the loss: all its targets are one token. Some
 * tokens fit the model better than others; a script names them by rank, 0 for the lowest loss. */
#include "core/mem.h"
#include "scratch.h"
#include "train/train.h"

#include <math.h>

enum { SYMBOLS = 6, TOKENS = SYMBOLS + 2, MOST = 64 };

typedef struct script {
    const char *ranks; /* one digit an evaluation */
    const char *every, *steps, *patience;
    int64_t best_step, end_step;
    mr_train_end end;
} script;

static const script scripts[] = {
    {"543210", "2", "12", "0", 12, 12, MR_END_STEPS},     /* better every time */
    {"012345", "2", "12", "0", 2, 12, MR_END_STEPS},      /* worse every time, and no patience asked for */
    {"012345", "2", "12", "1", 2, 4, MR_END_PATIENCE},    /* the first worse one ends it */
    {"3133333", "2", "14", "2", 4, 8, MR_END_PATIENCE},   /* two in a row */
    {"22222", "1", "5", "2", 1, 3, MR_END_PATIENCE},      /* as good is not better */
    {"45355522", "3", "24", "2", 9, 15, MR_END_PATIENCE}, /* a better one starts the count again */
    {"43514102", "1", "8", "3", 7, 8, MR_END_STEPS},      /* patience that is never used up */
    {"0123", "2", "8", "3", 2, 8, MR_END_STEPS},          /* both at once: the steps are done */
    {"321", "4", "10", "0", 10, 10, MR_END_STEPS},        /* the last step is evaluated, whatever eval-every is */
    {"312", "4", "10", "0", 8, 10, MR_END_STEPS},
    {"4", "100", "3", "1", 3, 3, MR_END_STEPS}, /* one evaluation, at the end */
};

/* ---- a run whose test set follows a script ---- */

typedef struct evaluation {
    int64_t step;
    double loss, accuracy;
    int best;
} evaluation;

static struct {
    const char *ranks;
    int64_t every, step, stop_at; /* stop_at: the step after which the run is asked to stop; 0: never */
    int token_of[TOKENS];         /* by rank */
    evaluation seen[MOST];
    int evaluations;
    mr_stop stop;
} play;

static mr_task_type actor; /* selective copying, with a test set of our own */
static const mr_task_type *original;
static mr_context *ctx;

static void play_batch(const mr_task *task, int index, mr_batch *batch)
{
    const int64_t nth = (play.step + play.every - 1) / play.every - 1;
    assert_in_range(nth, 0, strlen(play.ranks) - 1);
    original->eval_batch(task, index, batch);
    for (int i = 0; i < batch->B * batch->T; i++)
        if (batch->target[i] >= 0) batch->target[i] = play.token_of[play.ranks[nth] - '0'];
}

static void on_start(void *user, const mr_net *net, const mr_checkpoint *from, double deadline)
{
    (void)user, (void)net, (void)deadline;
    play.step = from->step;
}

static void on_step(void *user, int64_t step, int64_t tokens, double loss)
{
    (void)user, (void)tokens, (void)loss;
    assert_int_equal(step, play.step + 1);
    play.step = step;
    if (step == play.stop_at) play.stop = 1;
}

static void on_evaluation(void *user, int64_t step, const mr_score *score, int best)
{
    (void)user;
    assert_in_range(play.evaluations, 0, MOST - 1);
    play.seen[play.evaluations++] = (evaluation){step, score->loss, score->accuracy, best};
}

/* One call of mr_train, with the keys that are given, into a folder of the scratch folder. */
static mr_train_result run(const char *name, const char *const *keys, int resume, int64_t stop_at)
{
    static const char *const small[] = {"length",   "8",      "tokens", "4",      "symbols",    "6",   "eval-batches",
                                        "1",        "dim",    "8",      "layers", "1",          "mlp", "0",
                                        "conv",     "0",      "batch",  "64",     "accumulate", "1",   "schedule",
                                        "constant", "warmup", "0",      "lr",     "0",          NULL};
    const mr_train_watch watch = {.started = on_start, .stepped = on_step, .evaluated = on_evaluation};
    char dir[MR_TEXT_MAX];
    mr_recipe recipe;
    mr_train_result result;
    mr_error err = {0};
    in_folder(name, dir);
    if (mr_recipe_load(&recipe, "selective-copy", &err)) fail_msg("%s", err.text);
    for (const char *const *key = small; *key; key += 2)
        if (mr_recipe_set(&recipe, key[0], key[1], &err)) fail_msg("%s", err.text);
    for (; *keys; keys += 2)
        if (mr_recipe_set(&recipe, keys[0], keys[1], &err)) fail_msg("%s", err.text);
    if (mr_recipe_open(&recipe, &err)) fail_msg("%s", err.text);
    recipe.task->type = &actor;
    play.stop_at = stop_at;
    play.stop = 0;
    play.step = 0;
    if (mr_train(&recipe, ctx, dir, resume, &play.stop, &watch, &result, &err)) fail_msg("%s: %s", name, err.text);
    recipe.task->type = original;
    mr_recipe_free(&recipe);
    return result;
}

/* How many steps a model file has seen. */
static int64_t steps_of(const char *name, const char *file)
{
    char path[MR_TEXT_MAX], member[128];
    mr_net *net;
    mr_error err = {0};
    snprintf(member, sizeof member, "%s/%s", name, file);
    in_folder(member, path);
    if (mr_net_open(ctx, path, &net, &err)) fail_msg("%s", err.text);
    int64_t steps = mr_net_steps(net);
    mr_net_free(net);
    return steps;
}

/* Evaluates every token once and ranks the tokens by their loss. */
static int rank_tokens(void **state)
{
    static const char *const keys[] = {"steps", "8", "eval-every", "1", NULL};
    original = mr_task_type_find("selective-copy");
    actor = *original;
    actor.eval_batch = play_batch;
    actor.best_by_accuracy = 0;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    options.device = "cpu", options.threads = 1;
    if (make_folder(state) || mr_context_new(&options, &ctx, NULL)) return -1;
    for (int i = 0; i < TOKENS; i++) play.token_of[i] = i;
    play.ranks = "01234567", play.every = 1;
    run("ranking", keys, 0, 0);
    for (int i = 0; i < TOKENS; i++) {
        int rank = 0;
        for (int k = 0; k < TOKENS; k++) rank += play.seen[k].loss < play.seen[i].loss;
        play.token_of[rank] = i;
    }
    return 0;
}

static int put_away(void **state)
{
    mr_context_free(ctx);
    return remove_folder(state);
}

/* ---- the table ---- */

static void check_result(const script *s, const char *name, const mr_train_result *r)
{
    if (r->best_step != s->best_step || r->step != s->end_step || r->end != s->end)
        fail_msg("%s (losses %s): best %lld, ended at %lld (%d), not best %lld, at %lld (%d)", name, s->ranks,
                 (long long)r->best_step, (long long)r->step, (int)r->end, (long long)s->best_step,
                 (long long)s->end_step, (int)s->end);
    assert_int_equal(steps_of(name, "model.safetensors"), s->best_step);
    assert_int_equal(steps_of(name, "last.safetensors"), s->end_step);
    for (int i = 0; i < play.evaluations; i++)
        if (play.seen[i].step == s->best_step)
            assert_true(play.seen[i].best && play.seen[i].loss == r->best_loss &&
                        play.seen[i].accuracy == r->best_accuracy);
}

static void keys_of(const script *s, const char *keys[7])
{
    const char *const list[] = {"steps", s->steps, "eval-every", s->every, "patience", s->patience, NULL};
    memcpy(keys, list, sizeof list);
    play.ranks = s->ranks;
    play.every = strtol(s->every, NULL, 10);
    play.evaluations = 0;
}

static void test_best_and_patience(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        const script *s = &scripts[i];
        const char *keys[7];
        char name[32];
        snprintf(name, sizeof name, "whole-%zu", i);
        keys_of(s, keys);
        mr_train_result result = run(name, keys, 0, 0);
        check_result(s, name, &result);
        /* every evaluation took place once, in order, at its step */
        assert_int_equal(play.evaluations, (s->end_step + play.every - 1) / play.every);
        for (int k = 0; k < play.evaluations; k++) {
            int64_t due = (k + 1) * play.every;
            assert_int_equal(play.seen[k].step, due < s->end_step ? due : s->end_step);
        }
    }
}

/* Stopped after each step in turn, then resumed: the evaluations of both calls together are those of a whole run. */
static void test_stopped_anywhere_and_resumed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
        const script *s = &scripts[i];
        const char *keys[7];
        char name[64];
        keys_of(s, keys);
        snprintf(name, sizeof name, "unstopped-%zu", i);
        run(name, keys, 0, 0);
        const int count = play.evaluations;
        evaluation whole[MOST];
        memcpy(whole, play.seen, sizeof whole);
        for (int64_t at = 1; at < s->end_step; at += 1 + s->end_step / 5) {
            snprintf(name, sizeof name, "stopped-%zu-%lld", i, (long long)at);
            keys_of(s, keys);
            mr_train_result first = run(name, keys, 0, at);
            assert_int_equal(first.end, MR_END_STOPPED);
            assert_int_equal(first.step, at);
            mr_train_result result = run(name, keys, 1, 0);
            check_result(s, name, &result);
            assert_int_equal(play.evaluations, count);
            assert_memory_equal(play.seen, whole, (size_t)count * sizeof *whole);
        }
    }
}

/* A run that patience ended stays ended; one whose steps are done continues when it gets more. */
static void test_resumed_after_the_end(void **state)
{
    (void)state;
    const char *keys[7];
    const script *patient = &scripts[3];
    keys_of(patient, keys);
    run("over", keys, 0, 0);
    const int before = play.evaluations;
    mr_train_result again = run("over", keys, 1, 0);
    check_result(patient, "over", &again);
    assert_int_equal(play.evaluations, before);

    const script more = {"3210", "2", "8", "0", 8, 8, MR_END_STEPS};
    keys_of(&more, keys);
    keys[1] = "4";
    mr_train_result half = run("more", keys, 0, 0);
    assert_int_equal(half.best_step, 4);
    keys[1] = "8";
    mr_train_result rest = run("more", keys, 1, 0);
    check_result(&more, "more", &rest);
    assert_int_equal(play.evaluations, 4);
}

/* ---- accuracy ---- */

/* Where accuracy decides, a higher one is better whatever its loss; the loss decides between equal ones. */
static void test_accuracy_decides(void **state)
{
    (void)state;
    static const char *const keys[] = {"steps", "8", "eval-every", "1", NULL};
    int high = -1, low = -1;
    play.ranks = "01234567", play.every = 1, play.evaluations = 0;
    run("accuracies", keys, 0, 0); /* by rank: losses rise */
    for (int i = 0; i < TOKENS; i++)
        for (int k = 0; k < TOKENS; k++)
            if (play.seen[i].accuracy > play.seen[k].accuracy) high = i, low = k;
    if (high < 0) fail_msg("all tokens have the same accuracy: no case to test");
    /* from high to low it gets worse, from low to high better; as high again is not better */
    char ranks[5] = {(char)('0' + low), (char)('0' + high), (char)('0' + low), (char)('0' + high), 0};
    const script s = {ranks, "1", "4", "0", 2, 4, MR_END_STEPS};
    const char *list[7];
    keys_of(&s, list);
    actor.best_by_accuracy = 1;
    mr_train_result result = run("by-accuracy", list, 0, 0);
    check_result(&s, "by-accuracy", &result);
    actor.best_by_accuracy = 0;
}

static void test_loss_decides_between_equal_accuracies(void **state)
{
    (void)state;
    static const char *const keys[] = {"steps", "8", "eval-every", "1", NULL};
    int better = -1, worse = -1;
    play.ranks = "01234567", play.every = 1, play.evaluations = 0;
    run("equals", keys, 0, 0);
    for (int i = 0; i < TOKENS; i++)
        for (int k = i + 1; k < TOKENS; k++)
            if (play.seen[i].accuracy == play.seen[k].accuracy) better = i, worse = k;
    if (better < 0) fail_msg("no two tokens have the same accuracy: no case to test");
    char ranks[4] = {(char)('0' + worse), (char)('0' + better), (char)('0' + worse), 0};
    const script s = {ranks, "1", "3", "0", 2, 3, MR_END_STEPS};
    const char *list[7];
    keys_of(&s, list);
    actor.best_by_accuracy = 1;
    mr_train_result result = run("equal-accuracy", list, 0, 0);
    check_result(&s, "equal-accuracy", &result);
    actor.best_by_accuracy = 0;
}

/* ---- what is saved ---- */

/* With a rate that is not 0: the best model has the weights of its own step, not of the last one. */
static void test_best_weights_are_those_of_their_step(void **state)
{
    (void)state;
    static const char *const whole[] = {"steps", "6", "eval-every", "2", "lr", "1e-6", NULL};
    static const char *const part[] = {"steps", "4", "eval-every", "2", "lr", "1e-6", NULL};
    char *best, *there, *last, path[MR_TEXT_MAX];
    size_t sizes[3];
    play.ranks = "315", play.every = 2, play.evaluations = 0;
    assert_int_equal(run("six", whole, 0, 0).best_step, 4);
    run("four", part, 0, 0);
    in_folder("six/model.safetensors", path);
    assert_int_equal(mr_file_read(path, 1 << 24, &best, &sizes[0], NULL), 0);
    in_folder("four/last.safetensors", path);
    assert_int_equal(mr_file_read(path, 1 << 24, &there, &sizes[1], NULL), 0);
    in_folder("six/last.safetensors", path);
    assert_int_equal(mr_file_read(path, 1 << 24, &last, &sizes[2], NULL), 0);
    /* the files end with the weights; their heads differ in the recipe's steps */
    const size_t tail = 256;
    assert_true(sizes[0] > tail && sizes[1] > tail && sizes[2] > tail);
    assert_memory_equal(best + sizes[0] - tail, there + sizes[1] - tail, tail);
    assert_memory_not_equal(best + sizes[0] - tail, last + sizes[2] - tail, tail);
    mr_free(best), mr_free(there), mr_free(last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_and_patience),
        cmocka_unit_test(test_stopped_anywhere_and_resumed),
        cmocka_unit_test(test_resumed_after_the_end),
        cmocka_unit_test(test_accuracy_decides),
        cmocka_unit_test(test_loss_decides_between_equal_accuracies),
        cmocka_unit_test(test_best_weights_are_those_of_their_step),
    };
    return cmocka_run_group_tests(tests, rank_tokens, put_away);
}
