/* Files of a training: the best model, states with the caller's metadata, states of older libraries;
 * and weights that became NaN. */
#include "api_support.h"
#include "model/file.h"
#include "scratch.h"

static void meta_is(const char *path, const char *key, const char *want)
{
    char text[64];
    size_t needed;
    OK(mr_file_meta(path, key, text, sizeof text, &needed, &err));
    assert_string_equal(text, want);
}

/* ---- the best model */

static void the_best_model_is_kept_and_saved(void **state)
{
    (void)state;
    char best[MR_TEXT_MAX], training[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny), *then = net_of(ctx, tiny), *rest = net_of(ctx, tiny), *opened;
    in_folder("best.safetensors", best);
    in_folder("with-best.safetensors", training);
    FAILS(MR_EINVAL, "mr_net_mark_best", mr_net_save_best(net, best, &err));
    train(net, 0, 3);
    train(then, 0, 3);
    OK(mr_net_mark_best(net, &err));
    train(net, 3, 6);
    OK(mr_net_save_best(net, best, &err));
    OK(mr_net_open(ctx, best, &opened, &err));
    assert_int_equal(mr_net_steps(opened), 3);
    same_vectors("the best file", opened, then, MR_WEIGHTS, 0);
    same_vectors("the best vector", net, net, MR_BEST, 0);
    float *vector = get_all(net, MR_BEST), *want = get_all(then, MR_WEIGHTS);
    assert_memory_equal(vector, want, count_all(net) * sizeof *want);
    free(vector), free(want);
    mr_net_free(opened);

    OK(mr_net_save_training(net, training, NULL, &err)); /* the state contains it too */
    OK(mr_net_load_training(rest, training, &err));
    same_vectors("loaded best", rest, net, MR_BEST, 0);
    same_vectors("loaded weights", rest, net, MR_WEIGHTS, 0);
    OK(mr_net_save_best(rest, best, &err));
    OK(mr_net_open(ctx, best, &opened, &err));
    assert_int_equal(mr_net_steps(opened), 3);
    same_vectors("best of the state", opened, then, MR_WEIGHTS, 0);
    mr_net_free(opened);

    OK(mr_net_save_training(then, training, NULL, &err)); /* a state without a best model: the mark is dropped */
    OK(mr_net_load_training(rest, training, &err));
    FAILS(MR_EINVAL, "mr_net_mark_best", mr_net_save_best(rest, best, &err));
    OK(mr_net_mark_best(rest, &err));
    OK(mr_net_mark_best(rest, &err)); /* any number of times */
    mr_net_free(net), mr_net_free(then), mr_net_free(rest);
    mr_context_free(ctx);
}

/* ---- the caller's metadata */

static void a_state_keeps_the_callers_metadata(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], none[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    in_folder("extra.safetensors", path);
    in_folder("none.safetensors", none);
    train(net, 0, 2);
    OK(mr_net_save_training(net, path, (const char *[]){"mine.epoch", "7", "mine.note", "später", NULL}, &err));
    meta_is(path, "mine.epoch", "7");
    meta_is(path, "mine.note", "später");
    meta_is(path, "state.step", "2");
    meta_is(path, "mine.nothing", "");
    OK(mr_net_load_training(net, path, &err));
#define REFUSED(word, ...)                                                                                             \
    FAILS(MR_EINVAL, word, mr_net_save_training(net, none, (const char *[]){__VA_ARGS__, NULL}, &err))
    REFUSED("epoch", "epoch", "7");
    REFUSED("model.dim", "model.dim", "7");
    REFUSED("state.step", "state.step", "7");
    REFUSED("state.best-step", "state.best-step", "7");
    REFUSED("before its value", "mine.epoch");
    REFUSED("twice", "mine.epoch", "7", "mine.epoch", "8");
    assert_int_not_equal(access(none, F_OK), 0);
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- states of older libraries */

/* Writes a state like the library before 0.2 (weights and moments), or like its command
 * (also `best.`, zero at first). */
static void write_older(mr_net *net, const char *path, int command)
{
    const char *const prefixes[] = {"weights.", "moment1.", "moment2.", "best."};
    const mr_vector which[] = {MR_WEIGHTS, MR_MOMENT1, MR_MOMENT2, MR_WEIGHTS};
    mr_st_writer *w = mr_st_writer_new();
    float *data[4];
    assert_int_equal(mr_st_add_meta(w, "format", "minrnn") | mr_st_add_meta(w, "version", "1"), 0);
    for (int i = 0; mr_key_at(i); i++) {
        const mr_key *k = mr_key_at(i);
        char name[64], value[128];
        if (k->flags & (MR_KEY_LEARN | MR_KEY_SPARSE)) continue;
        snprintf(name, sizeof name, "model.%s", k->name);
        OK(mr_net_setting(net, k->name, value, sizeof value, &err));
        assert_int_equal(mr_st_add_meta(w, name, value), 0);
    }
    assert_int_equal(mr_st_add_meta(w, "state.step", "5"), 0);
    if (command) assert_int_equal(mr_st_add_meta(w, "state.best-step", "0"), 0);
    for (int v = 0; v < (command ? 4 : 3); v++) {
        size_t at = 0;
        data[v] = get_all(net, which[v]);
        if (v == 3) memset(data[v], 0, count_all(net) * sizeof **data);
        for (int i = 0; i < mr_net_tensors(net); i++) {
            mr_tensor t = MR_TENSOR;
            char name[128];
            OK(mr_net_tensor(net, i, &t, &err));
            snprintf(name, sizeof name, "%s%s", prefixes[v], t.name);
            assert_int_equal(mr_st_add(w, name, MR_ST_F32, t.ndim, t.shape, data[v] + at), 0);
            at += t.count;
        }
    }
    OK(mr_st_write(w, path, &err));
    for (int v = 0; v < (command ? 4 : 3); v++) free(data[v]);
    mr_st_writer_free(w);
}

static void states_of_older_libraries_are_read(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], best[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny);
    in_folder("older.safetensors", path);
    in_folder("no-best.safetensors", best);
    train(net, 0, 5);
    for (int command = 0; command < 2; command++) {
        mr_net *later = net_of(ctx, tiny);
        write_older(net, path, command);
        OK(mr_net_mark_best(later, &err));
        OK(mr_net_load_training(later, path, &err));
        assert_int_equal(mr_net_steps(later), 5);
        same_vectors("weights", later, net, MR_WEIGHTS, 0);
        same_vectors("first moments", later, net, MR_MOMENT1, 0);
        same_vectors("second moments", later, net, MR_MOMENT2, 0);
        FAILS(MR_EINVAL, "mr_net_mark_best", mr_net_save_best(later, best, &err));
        mr_net_free(later);
    }
    mr_net_free(net);
    mr_context_free(ctx);
}

static void a_best_model_of_before_the_first_step_is_kept(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], best[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny), *later = net_of(ctx, tiny);
    in_folder("marked.safetensors", path);
    in_folder("marked-best.safetensors", best);
    OK(mr_net_mark_best(net, &err));
    OK(mr_net_save_training(net, path, NULL, &err));
    OK(mr_net_load_training(later, path, &err));
    OK(mr_net_save_best(later, best, &err));
    mr_net_free(net), mr_net_free(later);
    mr_context_free(ctx);
}

/* A refused state changes nothing. */
static void a_refused_state_changes_nothing(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], best[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny), *twin = net_of(ctx, tiny), *other = net_of(ctx, tiny_lstm);
    in_folder("refused.safetensors", path);
    in_folder("still-best.safetensors", best);
    train(net, 0, 3), train(twin, 0, 3);
    OK(mr_net_mark_best(net, &err));
    OK(mr_net_save_training(other, path, NULL, &err));
    FAILS(MR_EINVAL, "mixer", mr_net_load_training(net, path, &err));
    FAILS(MR_EIO, "nowhere", mr_net_load_training(net, "/nowhere/at/all", &err));
    assert_int_equal(mr_net_steps(net), 3);
    OK(mr_net_save_best(net, best, &err));
    train(net, 3, 5), train(twin, 3, 5);
    same_vectors("weights", net, twin, MR_WEIGHTS, 0);
    mr_net_free(net), mr_net_free(twin), mr_net_free(other);
    mr_context_free(ctx);
}

/* ---- weights that became NaN */

static void fill_tensor(mr_net *net, mr_vector which, const char *name, size_t count, float value)
{
    float *all = room(count * sizeof *all);
    for (size_t i = 0; i < count; i++) all[i] = i % 2 ? value : -value;
    OK(mr_net_put(net, which, name, all, count, &err));
    free(all);
}

static void the_first_nonfinite_tensor_is_found(void **state)
{
    (void)state;
    char where[128] = "#", path[MR_TEXT_MAX], tiny_room[5];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny), *twin = net_of(ctx, tiny);
    lesson l;
    mr_result result = MR_RESULT;
    make_lesson(&l, 1);
    assert_int_equal(mr_net_find_nonfinite(net, where, sizeof where), 0);
    assert_string_equal(where, "");
    train(net, 0, 2), train(twin, 0, 2);
    assert_int_equal(mr_net_find_nonfinite(net, where, sizeof where), 0);
    assert_string_equal(where, "");
    OK(mr_net_reserve(net, &(mr_shape){8, 40}, &(mr_shape){16, 20}, &err)); /* memory that was never written */
    assert_int_equal(mr_net_find_nonfinite(net, where, sizeof where), 0);
    fill_tensor(net, MR_WEIGHTS, "blocks.1.mixer.down.weight", 16 * 32, 3e38f);
    float *before = get_all(net, MR_WEIGHTS), *moments = get_all(net, MR_MOMENT2);
    FAILS(MR_ENONFINITE, "blocks.1.mixer", mr_net_train(net, &l.data, &result, &err));
    assert_true(mr_net_find_nonfinite(net, where, sizeof where));
    assert_memory_equal(where, "blocks.1.mixer", 14);
    assert_true(mr_net_find_nonfinite(net, tiny_room, sizeof tiny_room)); /* truncated to its room */
    assert_string_equal(tiny_room, "bloc");
    float *after = get_all(net, MR_WEIGHTS), *moments_after = get_all(net, MR_MOMENT2);
    assert_memory_equal(before, after, count_all(net) * sizeof *before); /* and nothing has changed */
    assert_memory_equal(moments, moments_after, count_all(net) * sizeof *before);
    assert_int_equal(mr_net_steps(net), 2);
    free(before), free(after), free(moments), free(moments_after);
    in_folder("nan.safetensors", path);
    OK(mr_net_save(net, path, &err)); /* its weights are finite */
    mr_net_free(net), mr_net_free(twin);
    mr_context_free(ctx);
}

/* A step is done and counted, or neither, even where the loss overflows and the gradient does not. */
static void overflowing_steps_are_done_or_not_at_all(void **state)
{
    (void)state;
    const char *const devices[] = {"cpu", "ref"};
    for (int d = 0; d < 2; d++)
        for (int power = 10; power <= 34; power += 4) {
            mr_context *ctx = context_on(devices[d]);
            mr_net *net = net_of(ctx, tiny_values);
            float values[3] = {1, 2, 3}, target[2] = {powf(10, (float)power), -powf(10, (float)power)};
            mr_batch data = MR_BATCH;
            data.B = data.T = 1, data.values = values, data.target_values = target;
            float *before = get_all(net, MR_WEIGHTS);
            const int status = mr_net_train(net, &data, NULL, NULL);
            float *after = get_all(net, MR_WEIGHTS);
            const int changed = memcmp(before, after, count_all(net) * sizeof *before) != 0;
            if (status != (changed ? 0 : MR_ENONFINITE))
                fail_msg("%s: 1e%d: status %d, changed %d", devices[d], power, status, changed);
            assert_int_equal(mr_net_steps(net), changed);
            free(before), free(after);
            mr_net_free(net);
            mr_context_free(ctx);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_model_is_kept_and_saved),
        cmocka_unit_test(a_state_keeps_the_callers_metadata),
        cmocka_unit_test(states_of_older_libraries_are_read),
        cmocka_unit_test(a_best_model_of_before_the_first_step_is_kept),
        cmocka_unit_test(a_refused_state_changes_nothing),
        cmocka_unit_test(the_first_nonfinite_tensor_is_found),
        cmocka_unit_test(overflowing_steps_are_done_or_not_at_all),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
