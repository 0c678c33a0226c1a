/* Queries of nets, keys, settings and files. */
#include "api_support.h"
#include "scratch.h"

#include <time.h>

/* ---- shapes */

static void nets_describe_their_inputs_and_outputs(void **state)
{
    (void)state;
    static const char *const heads[] = {"token", "last", "mean", "pair-last", "pair-mean"};
    static const size_t rows[] = {24, 6, 6, 3, 3}; /* for 6 sequences of 4 tokens */
    mr_context *ctx = context_on("cpu");
    for (int h = 0; h < 5; h++)
        for (int mse = 0; mse < 2; mse++) {
            const char *const settings[] = {"head",    heads[h],
                                            "inputs",  "7",
                                            "outputs", "3",
                                            "loss",    mse ? "mse" : "xent",
                                            "input",   mse ? "reals" : "tokens",
                                            "dim",     "4",
                                            "layers",  "1",
                                            NULL};
            mr_net *net = net_of(ctx, settings);
            char text[16];
            assert_int_equal(mr_net_head(net), h);
            assert_int_equal(mr_net_loss(net), mse ? MR_LOSS_MSE : MR_LOSS_XENT);
            assert_int_equal(mr_net_input(net), mse ? MR_INPUT_REALS : MR_INPUT_TOKENS);
            assert_int_equal(mr_net_inputs(net), 7);
            assert_int_equal(mr_net_outputs(net), 3);
            assert_int_equal(mr_net_rows(net, 6, 4), rows[h]);
            assert_int_equal(mr_net_rows(net, 0, 4) + mr_net_rows(net, 2, -1), 0);
            OK(mr_net_setting(net, "head", text, sizeof text, &err));
            assert_string_equal(text, heads[h]);
            assert_that(mr_net_state_bytes(net), >, 0);
            assert_that(mr_net_state_bytes(net) % sizeof(float), ==, 0);
            assert_null(mr_net_vocab(net));
            mr_net_free(net);
        }
    mr_context_free(ctx);
}

static void contexts_say_what_they_are(void **state)
{
    (void)state;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *cpu, *ref = context_on("ref");
    options.device = "cpu", options.threads = 1;
    OK(mr_context_new(&options, &cpu, &err));
    assert_memory_equal(mr_context_device(cpu), "cpu", 3);
    assert_memory_equal(mr_context_device(ref), "ref", 3);
    assert_string_equal(mr_context_chip(cpu), "");
    assert_int_equal(mr_context_threads(cpu), 1);
    assert_non_null(mr_cpu_isas()[0]);
    assert_true(*mr_cuda_version());
    assert_true((mr_uses_cblas() == 0 || mr_uses_cblas() == 1));
    mr_context_free(cpu), mr_context_free(ref);
}

/* ---- keys */

static void every_key_has_its_default(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, (const char *[]){"outputs", "2", NULL});
    int count = 0, learn = 0;
    for (const mr_key *k; (k = mr_key_at(count)); count++) {
        char text[512];
        assert_true(*k->name);
        assert_true(*k->fallback);
        assert_true(*k->help);
        assert_ptr_equal(mr_key_find(k->name), k);
        OK(mr_net_setting(net, k->name, text, sizeof text, &err));
        if (k->type == MR_KEY_REAL)
            assert_that(strtod(text, NULL), ==, strtod(k->fallback, NULL)); /* 1e-8 is 1e-08 too */
        else if (strcmp(k->name, "outputs")) assert_string_equal(text, k->fallback);
        FAILS(MR_EINVAL, "room", mr_net_setting(net, k->name, text, strlen(text), &err));
        assert_int_equal(k->type == MR_KEY_CHOICE, k->choices != NULL);
        learn += (k->flags & MR_KEY_LEARN) != 0;
    }
    assert_that(count, >, 30);
    assert_that(learn, >=, 10);
    assert_that(count - learn, >, 20);
    assert_null(mr_key_at(count));
    assert_null(mr_key_at(-1));
    assert_null(mr_key_find("nothing"));
    mr_net_free(net);
    mr_context_free(ctx);
}

/* A net created from all settings that another one reports is the same net. */
static void settings_make_the_same_net(void **state)
{
    (void)state;
    enum { MOST = 96 };
    mr_context *ctx = context_on("cpu");
    for (int m = 0; mixers()[m]; m++) {
        mr_net *net = net_with(ctx, mixers()[m]), *again;
        static char values[MOST][512];
        const char *settings[2 * MOST + 1];
        int n = 0;
        for (int i = 0; mr_key_at(i); i++) {
            const char *key = mr_key_at(i)->name;
            if (!strcmp(key, "weights") || !strcmp(key, "scaler"))
                continue; /* these come with a file or have their own calls */
            OK(mr_net_setting(net, key, values[i], sizeof values[0], &err));
            settings[n++] = key;
            settings[n++] = values[i];
        }
        settings[n] = NULL;
        OK(mr_net_create(ctx, settings, &again, &err));
        same_vectors(mixers()[m], again, net, MR_WEIGHTS, 0);
        mr_net_free(net), mr_net_free(again);
    }
    mr_context_free(ctx);
}

static void mistyped_keys_are_suggested(void **state)
{
    (void)state;
    assert_string_equal(mr_key_nearest("dimm"), "dim");
    assert_string_equal(mr_key_nearest("weigth-decay"), "weight-decay");
    assert_string_equal(mr_key_nearest("layer"), "layers");
    assert_null(mr_key_nearest("completely-different"));
    assert_int_equal(mr_key_find("betas")->type, MR_KEY_PAIR);
    assert_string_equal(mr_key_find("lr")->fallback, "0.001");
    assert_true(mr_key_find("inputs")->flags & MR_KEY_DERIVED);
    assert_true(mr_key_find("lr")->flags & MR_KEY_LEARN);
    assert_false(mr_key_find("dim")->flags & MR_KEY_LEARN);
}

static void settings_follow_changes(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny),
           *text_net = net_of(ctx, (const char *[]){"vocab", "[\"a\",\"b\"]", "dim", "4", NULL});
    char text[64];
    OK(mr_net_setting(net, "lr", text, sizeof text, &err));
    assert_string_equal(text, "0.01");
    OK(mr_net_set(net, "lr", "0.25", &err));
    OK(mr_net_setting(net, "lr", text, sizeof text, &err));
    assert_string_equal(text, "0.25");
    FAILS(MR_EINVAL, "nothing", mr_net_setting(net, "nothing", text, sizeof text, &err));
    FAILS(MR_EINVAL, "not stored", mr_net_setting(net, "horizon", text, sizeof text, &err));
    OK(mr_net_setting(text_net, "vocab", text, sizeof text, &err));
    mr_vocab *vocab;
    OK(mr_vocab_parse(text, &vocab, &err));
    assert_int_equal(mr_vocab_size(vocab), 2);
    mr_vocab_free(vocab);
    FAILS(MR_EINVAL, "vocab", mr_net_setting(net, "vocab", text, sizeof text, &err)); /* this net has none */
    FAILS(MR_EINVAL, "decay-set", mr_net_set(net, "decay-set", "all", &err));
    mr_net_free(net), mr_net_free(text_net);
    mr_context_free(ctx);
}

static void settings_are_checked_without_a_net(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    int64_t parameters = -1;
    for (int m = 0; mixers()[m]; m++) {
        const char *const settings[] = {"mixer",  mixers()[m], "vocab", "bytes", "dim", "24",
                                        "layers", "3",         "mlp",   "2",     NULL};
        mr_net *net = net_of(ctx, settings);
        OK(mr_settings_check(settings, &parameters, &err));
        assert_int_equal(parameters, mr_net_parameters(net));
        assert_int_equal(count_all(net), mr_net_parameters(net));
        OK(mr_settings_check(settings, NULL, &err));
        mr_net_free(net);
    }
    const clock_t start = clock();
    OK(mr_settings_check((const char *[]){"vocab", "bytes", "dim", "4096", "layers", "24", "mlp", "4", NULL},
                         &parameters, &err));
    assert_that(parameters, >, 1000000000);
    assert_that((double)(clock() - start) / CLOCKS_PER_SEC, <, 0.5); /* no weight was touched */
    parameters = -1;
    FAILS(MR_EINVAL, "did you mean dim", mr_settings_check((const char *[]){"dimm", "4", NULL}, &parameters, &err));
    FAILS(MR_ECONFIG, "outputs", mr_settings_check(NULL, &parameters, &err));
    assert_int_equal(parameters, -1);
    mr_context_free(ctx);
}

/* ---- metadata */

static void has_meta(const char *path, const char *key, const char *want)
{
    char text[64] = "#";
    size_t needed = 99;
    OK(mr_file_meta(path, key, text, sizeof text, &needed, &err));
    assert_string_equal(text, want ? want : "");
    assert_int_equal(needed, want ? strlen(want) + 1 : 0);
}

static void metadata_travels(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX], key[16], small[4];
    size_t needed;
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, tiny), *again;
    assert_null(mr_net_meta(net, "mine.author"));
    OK(mr_net_set_meta(net, "mine.author", "somebody", &err));
    OK(mr_net_set_meta(net, "mine.author", "Zoë \"Z\"\n", &err)); /* again, with special characters */
    for (int i = 0; i < 50; i++) {
        snprintf(key, sizeof key, "many.%d", i);
        OK(mr_net_set_meta(net, key, key, &err));
    }
    assert_string_equal(mr_net_meta(net, "mine.author"), "Zoë \"Z\"\n");
    in_folder("meta.safetensors", path);
    OK(mr_net_save(net, path, &err));
    OK(mr_net_open(ctx, path, &again, &err));
    int count = 0, found = 0;
    for (const char *name; (name = mr_net_meta_key(again, count)); count++) {
        found += !strcmp(name, "mine.author");
        assert_string_equal(mr_net_meta(again, name), mr_net_meta(net, name));
    }
    assert_int_equal(count, 51);
    assert_int_equal(found, 1);
    assert_null(mr_net_meta_key(again, -1));
    has_meta(path, "mine.author", "Zoë \"Z\"\n");
    has_meta(path, "model.mixer", "mingru");
    has_meta(path, "step", "0");
    has_meta(path, "nothing", NULL);
    FAILS(MR_EINVAL, "room for 4", mr_file_meta(path, "model.mixer", small, sizeof small, &needed, &err));
    assert_int_equal(needed, 7);
    FAILS(MR_EIO, "nowhere", mr_file_meta("/nowhere/at/all", "step", small, sizeof small, &needed, &err));
    assert_int_equal(needed, 0);
    static const char *const refused[] = {"format",      "version",    "step",  "vocab",
                                          "model.mixer", "state.step", "nodot", NULL};
    for (int i = 0; refused[i]; i++) FAILS(MR_EINVAL, refused[i], mr_net_set_meta(net, refused[i], "1", &err));
    mr_net_free(net), mr_net_free(again);
    mr_context_free(ctx);
}

/* heads = 0: 64 channels a head, or the next smaller number that divides dim, an even one where dim is even. */
static void heads_follow_from_dim(void **state)
{
    (void)state;
    static const char *const dims[] = {"8", "64", "128", "96", "130", "70", "77", "63"};
    static const char *const heads[] = {"1", "1", "2", "2", "5", "5", "7", "1"};
    mr_context *ctx = context_on("cpu");
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        const char *const settings[] = {"mixer", "attention", "positions", "none",   "inputs", "3", "outputs",
                                        "3",     "dim",       dims[i],     "layers", "1",      NULL};
        mr_net *net = net_of(ctx, settings);
        char text[16];
        OK(mr_net_setting(net, "heads", text, sizeof text, &err));
        if (strcmp(text, heads[i])) fail_msg("dim = %s: %s heads, not %s", dims[i], text, heads[i]);
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_follow_from_dim),      cmocka_unit_test(nets_describe_their_inputs_and_outputs),
        cmocka_unit_test(contexts_say_what_they_are), cmocka_unit_test(every_key_has_its_default),
        cmocka_unit_test(settings_make_the_same_net), cmocka_unit_test(mistyped_keys_are_suggested),
        cmocka_unit_test(settings_follow_changes),    cmocka_unit_test(settings_are_checked_without_a_net),
        cmocka_unit_test(metadata_travels),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
