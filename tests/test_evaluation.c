/* Evaluation: which part of a test set it scores, and what a run does at its end: the whole test set, as far as
 * --max-seconds and Ctrl-C let it. No case depends on how fast the machine is. */
#include "scratch.h"

#include "core/clock.h"
#include "core/mem.h"
#include "train/train.h"

#include <math.h>

enum { BATCH = 2, CONTEXT = 8, TEST_TOKENS = 1600, EVAL_BATCHES = TEST_TOKENS / BATCH / CONTEXT };

static mr_task_type recording; /* the task's type, with the two functions below */
static int scored[8 * EVAL_BATCHES], scored_count, groups;

static void note_batch(const mr_task *task, int index, mr_batch *batch)
{
    assert_true(scored_count < 8 * EVAL_BATCHES);
    scored[scored_count++] = index;
    mr_task_type_find("text")->eval_batch(task, index, batch);
}

static int group_of(const mr_task *task, int index) { return groups ? index * groups / task->eval_batches : 0; }

/* A recipe whose test part has TEST_TOKENS predictions. */
static mr_recipe new_recipe(const char *const *keys)
{
    static char text[3 * TEST_TOKENS + 2], path[MR_TEXT_MAX];
    mr_recipe r;
    mr_error err = {0};
    for (size_t i = 0; i < sizeof text; i++) text[i] = (char)("abcdefgh"[i * i % 7] + i % 3);
    write_file("text.txt", text, sizeof text, path);
    const char *const all[] = {"data", path,     "split",   "0.6666", "batch",  "2",          "context", "8",   "dim",
                               "4",    "layers", "1",       "steps",  "3",      "eval-every", "1",       "mlp", "0",
                               "conv", "0",      "dropout", "0",      "warmup", "0",          NULL};
    if (mr_recipe_load(&r, "text", &err)) fail_msg("%s", err.text);
    for (int i = 0; all[i]; i += 2)
        if (mr_recipe_set(&r, all[i], all[i + 1], &err)) fail_msg("%s", err.text);
    for (int i = 0; keys[i]; i += 2)
        if (mr_recipe_set(&r, keys[i], keys[i + 1], &err)) fail_msg("%s", err.text);
    if (mr_recipe_open(&r, &err)) fail_msg("%s", err.text);
    assert_int_equal(r.task->eval_batches, EVAL_BATCHES);
    recording = *r.task->type;
    recording.eval_batch = note_batch;
    recording.eval_group = group_of;
    r.task->type = &recording;
    scored_count = groups = 0;
    return r;
}

static mr_context *new_context(void)
{
    mr_context *ctx;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    options.device = "cpu";
    options.threads = 1;
    assert_int_equal(mr_context_new(&options, &ctx, NULL), 0);
    return ctx;
}

/* ---- which batches */

static mr_score score(const mr_eval_options *options, int in_groups)
{
    static const char *const none[] = {NULL};
    mr_recipe r = new_recipe(none);
    mr_context *ctx = new_context();
    mr_net *net;
    mr_batch batch;
    mr_score score;
    mr_error err = {0};
    groups = in_groups;
    if (mr_recipe_net(&r, ctx, &net, &err)) fail_msg("%s", err.text);
    assert_int_equal(mr_batch_new(&batch, &r.task->interface, BATCH, CONTEXT), 0);
    if (mr_evaluate(net, r.task, &batch, options, &score, &err)) fail_msg("%s", err.text);
    mr_batch_free(&batch);
    mr_net_free(net);
    mr_context_free(ctx);
    mr_recipe_free(&r);
    assert_int_equal(score.batches, scored_count);
    return score;
}

static void a_part_is_spread_evenly(void **unused)
{
    (void)unused;
    const mr_eval_options four = {.tokens = 4 * BATCH * CONTEXT}, less = {.tokens = 3 * BATCH * CONTEXT + 1},
                          one = {.tokens = 1};
    const mr_score first = score(&four, 0);
    assert_int_equal(scored_count, 4);
    static const int places[] = {EVAL_BATCHES / 8, 3 * EVAL_BATCHES / 8, 5 * EVAL_BATCHES / 8, 7 * EVAL_BATCHES / 8};
    for (int i = 0; i < 4; i++) assert_int_equal(scored[i], places[i]);
    assert_int_equal(first.rows, 4 * BATCH * CONTEXT);
    assert_int_equal(first.out_of_time, 0);
    const mr_score again = score(&less, 0); /* whole batches, as few as have this many tokens */
    assert_int_equal(scored_count, 4);
    assert_memory_equal(&first, &again, sizeof first);
    score(&one, 0);
    assert_int_equal(scored_count, 1);
    assert_int_equal(scored[0], EVAL_BATCHES / 2);
}

static void enough_tokens_are_all(void **unused)
{
    (void)unused;
    const mr_score all = score(&(mr_eval_options){0}, 0);
    static const int64_t enough[] = {TEST_TOKENS - 1, TEST_TOKENS, TEST_TOKENS + 1, 200000, INT64_MAX};
    assert_int_equal(all.batches, EVAL_BATCHES);
    for (int i = 0; i < 5; i++) {
        const mr_score same = score(&(mr_eval_options){.tokens = enough[i]}, 0);
        assert_memory_equal(&all, &same, sizeof all);
        for (int k = 0; k < EVAL_BATCHES; k++) assert_int_equal(scored[k], k);
    }
    assert_int_equal(score(&(mr_eval_options){.tokens = TEST_TOKENS - BATCH * CONTEXT}, 0).batches, EVAL_BATCHES - 1);
}

/* Groups that are not among the chosen batches do not count, nor do they disturb the others. */
static void parts_of_groups(void **unused)
{
    (void)unused;
    const mr_score some = score(&(mr_eval_options){.tokens = 5 * BATCH * CONTEXT}, 10);
    assert_int_equal(some.batches, 5);
    assert_true(isfinite(some.loss) && some.loss > 0 && some.loss < 10);
    assert_int_equal(score(&(mr_eval_options){0}, 10).batches, EVAL_BATCHES);
}

static void a_deadline_in_the_past_leaves_one_batch(void **unused)
{
    (void)unused;
    const mr_score cut = score(&(mr_eval_options){.deadline = 1e-9}, 0);
    assert_int_equal(cut.batches, 1);
    assert_int_equal(cut.out_of_time, 1);
    assert_int_equal(cut.rows, BATCH * CONTEXT);
    assert_int_equal(score(&(mr_eval_options){.deadline = 1e-9}, 10).batches, 1);
    assert_int_equal(score(&(mr_eval_options){.deadline = mr_seconds() + 1e6}, 0).batches, EVAL_BATCHES);
}

/* ---- how a run ends */

typedef struct seen {
    mr_stop stop;
    int stop_in_whole; /* set `stop` in the evaluation of the whole test set */
    int64_t stop_at;   /* set `stop` after this step; 0: never */
    int evaluations, wholes;
} seen;

static void on_step(void *user, int64_t step, int64_t tokens, double loss)
{
    seen *s = user;
    (void)tokens, (void)loss;
    if (step == s->stop_at) s->stop = 2;
}

static void on_evaluating(void *user, int done, int batches)
{
    seen *s = user;
    if (done) return;
    if (batches == EVAL_BATCHES) s->wholes++;
    else s->evaluations++;
    if (batches == EVAL_BATCHES && s->stop_in_whole) s->stop = 2;
}

static mr_train_result train(const char *name, int resume, const char *const *keys, double began, seen *s)
{
    char dir[MR_TEXT_MAX];
    mr_recipe r = new_recipe(keys);
    mr_context *ctx = new_context();
    mr_train_result result;
    mr_error err = {0};
    const mr_train_watch watch = {.user = s, .began = began, .stepped = on_step, .evaluating = on_evaluating};
    in_folder(name, dir);
    if (mr_train(&r, ctx, dir, resume, &s->stop, &watch, &result, &err)) fail_msg("%s", err.text);
    mr_context_free(ctx);
    mr_recipe_free(&r);
    return result;
}

static int log_has(const char *name, const char *part)
{
    char path[MR_TEXT_MAX], *text;
    size_t size;
    snprintf(path, sizeof path, "%s/%s/log.jsonl", folder, name);
    assert_int_equal(mr_file_read(path, 1 << 20, &text, &size, NULL), 0);
    const int found = strstr(text, part) != NULL;
    mr_free(text);
    return found;
}

static const char *const part[] = {"eval-tokens", "64", NULL}, *const all[] = {"eval-tokens", "0", NULL};

static void the_best_is_scored_on_all(void **unused)
{
    (void)unused;
    seen s = {0}, t = {0};
    const mr_train_result r = train("part", 0, part, 0, &s);
    assert_int_equal(s.evaluations, 3);
    assert_int_equal(s.wholes, 1);
    assert_int_equal(r.whole, MR_WHOLE_AT_END);
    assert_int_equal(r.in_tokens, 1);
    assert_int_equal(r.test_size, TEST_TOKENS);
    assert_int_equal(r.scored, TEST_TOKENS);
    assert_true(log_has("part", "\"kind\":\"whole\""));
    /* the same weights, evaluated on everything each time */
    const mr_train_result whole = train("all", 0, all, 0, &t);
    assert_int_equal(t.wholes, 3);
    assert_int_equal(whole.whole, MR_WHOLE_ALWAYS);
    assert_int_equal(whole.scored, TEST_TOKENS);
    assert_false(log_has("all", "\"kind\":\"whole\""));
    assert_int_equal(r.best_step, whole.best_step);
    assert_memory_equal(&r.best_loss, &whole.best_loss, sizeof r.best_loss);
}

static void ctrl_c_in_it_loses_nothing(void **unused)
{
    (void)unused;
    seen s = {.stop_in_whole = 1}, t = {0};
    const mr_train_result r = train("stopped", 0, part, 0, &s);
    assert_int_equal(r.end, MR_END_STEPS);
    assert_int_equal(r.whole, MR_WHOLE_STOPPED);
    assert_int_equal(r.scored, 64);
    assert_int_equal(r.step, 3);
    assert_true(isfinite(r.best_loss));
    const mr_train_result again = train("stopped", 1, part, 0, &t); /* nothing left but that */
    assert_int_equal(again.whole, MR_WHOLE_AT_END);
    assert_int_equal(t.evaluations, 0);
}

/* Time was up before the first step: one step, one batch, and a model. */
static void no_time_at_all(void **unused)
{
    (void)unused;
    static const char *const keys[] = {"eval-tokens", "64", "max-seconds", "1", NULL};
    seen s = {0};
    const mr_train_result r = train("late", 0, keys, mr_seconds() - 1e6, &s);
    assert_int_equal(r.end, MR_END_SECONDS);
    assert_int_equal(r.step, 1);
    assert_int_equal(r.best_step, 1);
    assert_int_equal(r.whole, MR_WHOLE_NO_TIME);
    assert_int_equal(r.scored, BATCH * CONTEXT);
    assert_int_equal(s.wholes, 0);
    /* the run's seconds are kept: its limit is used up for ever, until it is raised */
    seen t = {0}, u = {0};
    const mr_train_result again = train("late", 1, keys, 0, &t);
    assert_int_equal(again.end, MR_END_SECONDS);
    assert_int_equal(again.step, 1);
    static const char *const more[] = {"eval-tokens", "64", "max-seconds", "9e6", NULL};
    const mr_train_result end = train("late", 1, more, 0, &u);
    assert_int_equal(end.end, MR_END_STEPS);
    assert_int_equal(end.whole, MR_WHOLE_AT_END);
}

/* Time is up before the last step is evaluated as the others were: one batch is not compared with them, and the result
 * says so. */
static void a_last_step_without_its_evaluation(void **unused)
{
    (void)unused;
    static const char *const keys[] = {"eval-tokens", "64", "eval-every", "2", "steps", "9", NULL};
    static const char *const limit[] = {"eval-tokens", "64", "eval-every", "2", "steps", "9", "max-seconds", "1", NULL};
    seen s = {.stop_at = 3}, t = {0}, u = {0};
    const mr_train_result stopped = train("unscored", 0, keys, 0, &s);
    assert_int_equal(stopped.end, MR_END_STOPPED);
    assert_int_equal(stopped.step, 3);
    assert_int_equal(stopped.unscored, 0);
    const mr_train_result r = train("unscored", 1, limit, mr_seconds() - 1e6, &t);
    assert_int_equal(r.end, MR_END_SECONDS);
    assert_int_equal(r.step, 3);
    assert_int_equal(r.best_step, 2);
    assert_int_equal(t.evaluations, 1);
    assert_int_equal(r.unscored, 1);
    assert_true(r.seconds >= 1e6 && r.seconds < 2e6);
    const mr_train_result end = train("unscored", 1, keys, 0, &u);
    assert_int_equal(end.step, 9);
    assert_int_equal(end.unscored, 0);
}

/* A limit that is far away changes no bit, whatever the schedule. */
static void a_far_limit_changes_nothing(void **unused)
{
    (void)unused;
    static const char *const keys[] = {"max-seconds", "1e9", "eval-tokens", "0", NULL};
    seen s = {0}, t = {0};
    const mr_train_result a = train("far", 0, keys, 0, &s), b = train("none", 0, all, 0, &t);
    assert_memory_equal(&a.best_loss, &b.best_loss, sizeof a.best_loss);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_part_is_spread_evenly),
        cmocka_unit_test(enough_tokens_are_all),
        cmocka_unit_test(parts_of_groups),
        cmocka_unit_test(a_deadline_in_the_past_leaves_one_batch),
        cmocka_unit_test(the_best_is_scored_on_all),
        cmocka_unit_test(ctrl_c_in_it_loses_nothing),
        cmocka_unit_test(no_time_at_all),
        cmocka_unit_test(a_last_step_without_its_evaluation),
        cmocka_unit_test(a_far_limit_changes_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
