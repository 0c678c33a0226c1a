/* Layouts of other programs: what is moved both ways keeps its bits, what the settings make of it, and what a layout
 * cannot have. cli_import.sh tests the commands; cli_peers.sh compares with the programs themselves. */
#include "core/mem.h"
#include "scratch.h"
#include "weights/formats.h"

static mr_context *context;

static int open_context(void **state)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    options.device = "cpu";
    options.threads = 1;
    return make_folder(state) || mr_context_new(&options, &context, NULL);
}

static int close_context(void **state)
{
    mr_context_free(context);
    return remove_folder(state);
}

static mr_net *create(const char *const *settings)
{
    mr_net *net;
    mr_error err = {0};
    if (mr_net_create(context, settings, &net, &err)) fail_msg("%s", err.text);
    return net;
}

static mr_net *import_at(const char *path, const char *from, const char *const *settings)
{
    const mr_import_options options = {from, NULL, settings, NULL};
    const mr_format *format;
    mr_foreign *f;
    mr_net *net = NULL;
    mr_error err = {0};
    assert_int_equal(mr_foreign_open(path, &f, &err), 0);
    if (mr_import(f, &options, context, &net, &format, &err)) fail_msg("%s", err.text);
    mr_foreign_close(f);
    return net;
}

static void refuse_at(const char *path, const char *from, const char *vocab, const char *says)
{
    const mr_import_options options = {from, vocab, NULL, NULL};
    const mr_format *format;
    mr_foreign *f;
    mr_net *net = NULL;
    mr_error err = {0};
    assert_int_equal(mr_foreign_open(path, &f, &err), 0);
    if (!mr_import(f, &options, context, &net, &format, &err)) fail_msg("imported; \"%s\" was expected", says);
    assert_null(net);
    assert_says(&err, says);
    mr_foreign_close(f);
}

/* Every tensor of both nets has the same numbers. */
static void assert_same(mr_net *a, mr_net *b)
{
    assert_int_equal(mr_net_tensors(a), mr_net_tensors(b));
    for (int i = 0; i < mr_net_tensors(a); i++) {
        mr_tensor t = MR_TENSOR;
        assert_int_equal(mr_net_tensor(a, i, &t, NULL), 0);
        float *left = mr_alloc(t.count, sizeof *left), *right = mr_alloc(t.count, sizeof *right);
        assert_int_equal(mr_net_get(a, MR_WEIGHTS, t.name, left, t.count, NULL), 0);
        assert_int_equal(mr_net_get(b, MR_WEIGHTS, t.name, right, t.count, NULL), 0);
        if (memcmp(left, right, t.count * sizeof *left)) fail_msg("%s differs", t.name);
        mr_free(left);
        mr_free(right);
    }
}

static void assert_setting(const mr_net *net, const char *key, const char *value)
{
    char text[MR_TEXT_MAX];
    assert_int_equal(mr_net_setting(net, key, text, sizeof text, NULL), 0);
    assert_string_equal(text, value);
}

/* ---- there and back */

static void round_trip(const char *format, const char *const *settings)
{
    char path[MR_TEXT_MAX];
    mr_error err = {0};
    mr_net *net = create(settings), *again;
    in_folder("out.safetensors", path);
    if (mr_export(net, mr_format_find(format), path, &err)) fail_msg("%s", err.text);
    again = import_at(path, "auto", NULL);
    assert_same(net, again);
    assert_setting(again, "mixer", settings[1]);
    mr_net_free(net);
    mr_net_free(again);
}

#define MINLM(...)                                                                                                     \
    (const char *const[])                                                                                              \
    {                                                                                                                  \
        __VA_ARGS__, "vocab", "bytes", "dim", "6", "layers", "2", "mlp", "2", "gelu", "erf", "norm-eps",               \
            "1.1920929e-07", "mixer-bias", "no", NULL                                                                  \
    }

static void a_minlm_comes_back(void **state)
{
    (void)state;
    round_trip("lucidrains", MINLM("mixer", "mingru"));
    round_trip("lucidrains", MINLM("mixer", "minlstm", "width", "7"));
    round_trip("lucidrains", MINLM("mixer", "mingru", "conv", "3", "conv-place", "residual", "expansion", "1"));
    round_trip("lucidrains", MINLM("mixer", "minlstm", "mlp-width", "5", "conv", "1", "conv-place", "residual"));
}

static void every_mixer_comes_back_under_pytorchs_names(void **state)
{
    (void)state;
    static const char *const mixers[] = {"mingru", "minlstm", "gru", "lstm", "attention", "mamba"};
    for (size_t i = 0; i < sizeof mixers / sizeof *mixers; i++) {
        const char *reset = strcmp(mixers[i], "gru") ? "before" : "after";
        round_trip("torch", (const char *const[]){"mixer", mixers[i], "gru-reset", reset, "vocab", "bytes", "dim", "6",
                                                  "layers", "2", "conv", "2", "mlp", "1", "norm", "layer", NULL});
        round_trip("torch",
                   (const char *const[]){"mixer", mixers[i],  "gru-reset", reset,       "input", "reals", "inputs",
                                         "3",     "head",     "pair-mean", "outputs",   "4",     "loss",  "xent",
                                         "dim",   "4",        "layers",    "1",         "norm",  "none",  "mlp",
                                         "1",     "mlp-gate", "geglu",     "head-bias", "yes",   NULL});
    }
}

static void a_scaler_comes_back(void **state)
{
    (void)state;
    static const char *const kinds[] = {"input", "target", "both"};
    const double mean[] = {1, -2.5, 1e9}, scale[] = {0.1, 3, 1.0 / 3};
    char path[MR_TEXT_MAX];
    in_folder("scaler.safetensors", path);
    for (int i = 0; i < 3; i++) {
        const int in = i != 1, out = i != 0;
        double got[4][3] = {{0}};
        mr_error err = {0};
        mr_net *again, *net = create((const char *const[]){"input", "reals", "inputs", "3", "outputs", "2", "loss",
                                                           "mse", "head", "last", "dim", "4", "layers", "1", NULL});
        assert_int_equal(
            mr_net_set_scaler(net, in ? mean : NULL, in ? scale : NULL, out ? mean : NULL, out ? scale : NULL, &err),
            0);
        assert_int_equal(mr_export(net, mr_format_find("torch"), path, &err), 0);
        again = import_at(path, "torch", NULL);
        assert_setting(again, "scaler", kinds[i]);
        assert_int_equal(mr_net_scaler(again, got[0], got[1], 3, got[2], got[3], 2, &err), in + 2 * out);
        if (in) assert_memory_equal(got[0], mean, sizeof mean);
        if (in) assert_memory_equal(got[1], scale, sizeof scale);
        if (out) assert_memory_equal(got[2], mean, 2 * sizeof *mean);
        if (out) assert_memory_equal(got[3], scale, 2 * sizeof *scale);
        assert_same(net, again);
        mr_net_free(net);
        mr_net_free(again);
    }
}

/* ---- what a layout does not have */

static void refuse_export(const char *format, const char *const *settings, const char *says)
{
    char path[MR_TEXT_MAX];
    mr_error err = {0};
    mr_net *net = create(settings);
    in_folder("new.safetensors", path);
    assert_int_equal(mr_export(net, mr_format_find(format), path, &err), MR_ECONFIG);
    assert_says(&err, says);
    assert_int_equal(access(path, F_OK), -1);
    mr_net_free(net);
}

static void what_a_minlm_does_not_have_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *says;
    } cases[] = {
        {"mixer", "gru", "mixer = gru: a "},        {"candidate", "tanh", "candidate = tanh: a "},
        {"transition", "signed", "transition = "},  {"h0", "learned", "h0 = learned: a "},
        {"mixer-bias", "yes", "mixer-bias = yes"},  {"norm", "layer", "norm = layer: a minLM has norm = rms"},
        {"norm-eps", "1e-5", "norm-eps = 1e-05"},   {"gelu", "tanh", "gelu = tanh: a minLM has gelu = erf"},
        {"mlp-gate", "swiglu", "mlp-gate = swigl"}, {"mlp-bias", "no", "mlp-bias = no: a minLM"},
        {"head-bias", "yes", "head-bias = yes"},    {"tie-embeddings", "yes", "tie-embeddings = yes"},
        {"conv-place", "inside", "conv-place = "},  {"mlp", "0", "mlp = 0: a minLM has an MLP"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *settings[] = {
            "vocab",      "bytes", "dim",        "6",        "layers", "1",        "mlp",
            "2",          "gelu",  "erf",        "conv",     "3",      "norm-eps", "1.1920929e-07",
            "mixer-bias", "no",    "conv-place", "residual", NULL,     NULL,       NULL};
        settings[18] = cases[i].key;
        settings[19] = cases[i].value;
        if (!strcmp(cases[i].value, "gru")) settings[15] = "yes"; /* gru has no other */
        refuse_export("lucidrains", settings, cases[i].says);
    }
    refuse_export("lucidrains",
                  (const char *const[]){"inputs", "9", "outputs", "8", "mixer-bias", "no", "dim", "6", "mlp", "2",
                                        "gelu", "erf", "norm-eps", "1.1920929e-07", NULL},
                  "outputs = 8: a minLM has outputs = 9");
    refuse_export("torch", (const char *const[]){"vocab", "bytes", "mixer", "gru", "dim", "4", NULL},
                  "gru-reset = before: a model under PyTorch's names has gru-reset = after");
}

static void minlstm_must_normalize(void **state)
{
    (void)state;
    refuse_export("lucidrains", MINLM("mixer", "minlstm", "normalize-gates", "no"),
                  "normalize-gates = no: a minLSTM of minGRU-pytorch has normalize-gates = yes");
}

/* A layer alone reads and writes some channels only; a model that was trained since then may use the others. */
static void a_layer_that_outgrew_its_layout_is_refused(void **state)
{
    (void)state;
    float gates[12], all[6 * 5], one;
    char path[MR_TEXT_MAX], back[MR_TEXT_MAX];
    mr_error err = {0};
    for (int i = 0; i < 12; i++) gates[i] = (float)(i + 1);
    mr_st_writer *w = mr_st_writer_new();
    mr_st_add(w, "to_hidden_and_gate.weight", MR_ST_F32, 2, (int64_t[]){6, 2}, gates);
    in_folder("layer.safetensors", path);
    in_folder("back.safetensors", back);
    assert_int_equal(mr_st_write(w, path, &err), 0);
    mr_st_writer_free(w);
    mr_net *net = import_at(path, "lucidrains", NULL);
    assert_setting(net, "dim", "5"); /* 2 inputs, 3 outputs */
    assert_int_equal(mr_export(net, mr_format_find("lucidrains"), back, &err), 0);
    assert_int_equal(mr_net_get(net, MR_WEIGHTS, "blocks.0.mixer.linear_z.weight", all, 15, &err), 0);
    assert_true(all[0] == 7 && all[1] == 8 && all[2] == 0 && all[5] == 9); /* rows of 5, the first 2 are theirs */
    one = all[4];
    all[4] = 0.5F;
    assert_int_equal(mr_net_put(net, MR_WEIGHTS, "blocks.0.mixer.linear_z.weight", all, 15, &err), 0);
    assert_int_equal(mr_export(net, mr_format_find("lucidrains"), back, &err), MR_ECONFIG);
    assert_says(&err, "tensor blocks.0.mixer.linear_z.weight has numbers where a");
    all[4] = one;
    assert_int_equal(mr_net_put(net, MR_WEIGHTS, "blocks.0.mixer.linear_z.weight", all, 15, &err), 0);
    all[0] = 2; /* an embedding that is no copy: no layer any more, and no minLM either */
    assert_int_equal(mr_net_put(net, MR_WEIGHTS, "embed.bias", all, 5, &err), 0);
    assert_int_equal(mr_export(net, mr_format_find("lucidrains"), back, &err), MR_ECONFIG);
    assert_says(&err, "input = reals: a minLM has input = tokens");
    mr_net_free(net);
}

/* ---- settings beside the tensors */

/* Writes a small model of ours under PyTorch's names, without its metadata but for one key. */
static void write_plain(const char *key, const char *value, char path[MR_TEXT_MAX])
{
    const float numbers[64] = {0};
    static const struct {
        const char *name;
        int ndim;
        int64_t shape[2];
    } tensors[] = {
        {"embed.weight", 2, {5, 4}},
        {"norm.weight", 1, {4}},
        {"head.weight", 2, {5, 4}},
        {"blocks.0.norm1.weight", 1, {4}},
        {"blocks.0.mixer.in_proj_weight", 2, {12, 4}},
        {"blocks.0.mixer.in_proj_bias", 1, {12}},
        {"blocks.0.mixer.out_proj.weight", 2, {4, 4}},
        {"blocks.0.mixer.out_proj.bias", 1, {4}},
    };
    mr_error err = {0};
    mr_st_writer *w = mr_st_writer_new();
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        mr_st_add(w, tensors[i].name, MR_ST_F32, tensors[i].ndim, tensors[i].shape, numbers);
    if (key) mr_st_add_meta(w, key, value);
    mr_st_add_meta(w, "author", "somebody");
    in_folder("plain.safetensors", path);
    assert_int_equal(mr_st_write(w, path, &err), 0);
    mr_st_writer_free(w);
}

static void write_config(const char *text)
{
    char path[MR_TEXT_MAX];
    write_file("config.json", text, strlen(text), path);
}

static void settings_come_from_flags_then_metadata_then_the_config(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    write_plain(NULL, NULL, path);
    write_config("{\"heads\": 1, \"positions\": \"none\", \"window\": 7}");
    mr_net *net = import_at(path, "auto", NULL);
    assert_setting(net, "heads", "1");
    assert_setting(net, "positions", "none");
    assert_setting(net, "window", "7");
    mr_net_free(net);
    write_plain("model.heads", "2", path);
    net = import_at(path, "auto", NULL);
    assert_setting(net, "heads", "2");
    mr_net_free(net);
    net = import_at(path, "auto", (const char *const[]){"heads", "4", "window", "9", NULL});
    assert_setting(net, "heads", "4");
    assert_setting(net, "window", "9");
    mr_net_free(net);
}

static void settings_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    write_config("{}");
    write_plain("model.teeth", "32", path);
    refuse_at(path, "torch", NULL, "unknown key teeth");
    write_plain("model.heads", "3", path);
    refuse_at(path, "torch", NULL, "heads = 3");
    write_plain("model.dim", "8", path);
    refuse_at(path, "torch", NULL, "embed.weight is 5 × 4, not 5 × 8");
    write_plain("model.layers", "2", path);
    refuse_at(path, "torch", NULL, "has no tensor blocks.1.");
    write_plain("model.dim", "60000", path);
    refuse_at(path, "torch", NULL, "the file has far fewer numbers");
    write_plain(NULL, NULL, path);
    write_config("{\"teeth\": 32}");
    refuse_at(path, "torch", NULL, "unknown key teeth");
    write_config("{\"heads\": [1]}");
    refuse_at(path, "torch", NULL, "heads is a list or an object");
    write_config("{\"lr\": 0.1}");
    refuse_at(path, "torch", NULL, "unknown key lr");
    write_config("{}");
    refuse_at(path, "torch", "bytes", "reads 5 tokens and has 5 outputs, the vocabulary has 256");
    refuse_at(path, "torch", "[1]", "vocab: ");
    refuse_at(path, "nothing", NULL, "--from nothing: cannot be imported");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_minlm_comes_back),
        cmocka_unit_test(every_mixer_comes_back_under_pytorchs_names),
        cmocka_unit_test(a_scaler_comes_back),
        cmocka_unit_test(what_a_minlm_does_not_have_is_refused),
        cmocka_unit_test(minlstm_must_normalize),
        cmocka_unit_test(a_layer_that_outgrew_its_layout_is_refused),
        cmocka_unit_test(settings_come_from_flags_then_metadata_then_the_config),
        cmocka_unit_test(settings_that_mean_nothing_are_refused),
    };
    return cmocka_run_group_tests(tests, open_context, close_context);
}
