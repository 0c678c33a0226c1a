/* The ONNX exporter without onnxruntime: the bytes of the protobuf writer, and exported files read back by a small
 * reader of their own: every value is defined before its use, names are unique, tensors have the size of their shape.
 * tests/cli_onnx.sh compares the scores. */
#include "api_support.h"
#include "scratch.h"
#include "core/mem.h"
#include "weights/onnx.h"
#include "weights/onnx_parts.h"
#include "weights/protobuf.h"

/* ---- a reader of the wire format */

typedef struct span {
    const unsigned char *at;
    size_t size;
} span;

typedef struct field {
    int number;
    uint64_t whole; /* of a varint */
    span bytes;     /* of a length-delimited field */
} field;

static uint64_t read_varint(span *message)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        assert_that(message->size, >, 0);
        const unsigned char byte = *message->at++;
        message->size--;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
    fail_msg("a varint of more than 10 bytes");
    return 0;
}

/* The next field; 0 at the end. All that the exporter writes are varints and length-delimited fields. */
static int next_field(span *message, field *out)
{
    if (!message->size) return 0;
    const uint64_t tag = read_varint(message);
    *out = (field){.number = (int)(tag >> 3)};
    assert_that(out->number, >, 0);
    if ((tag & 7) == 0) {
        out->whole = read_varint(message);
        return 1;
    }
    assert_int_equal(tag & 7, 2);
    const uint64_t size = read_varint(message);
    assert_that(size, <=, message->size);
    out->bytes = (span){message->at, (size_t)size};
    message->at += size;
    message->size -= (size_t)size;
    return 1;
}

/* The first field with this number. */
static int find_field(span message, int number, field *out)
{
    while (next_field(&message, out))
        if (out->number == number) return 1;
    return 0;
}

static int is_text(span s, const char *text) { return s.size == strlen(text) && !memcmp(s.at, text, s.size); }
static int same_span(span a, span b) { return a.size == b.size && !memcmp(a.at, b.at, a.size); }

/* ---- names */

enum { MOST = 20000 };
static span visible[MOST], made[MOST], used[MOST];
static int visibles, mades, useds;

static int is_in(const span *list, int count, span name)
{
    for (int i = 0; i < count; i++)
        if (same_span(list[i], name)) return 1;
    return 0;
}

static void define(span name)
{
    assert_that(name.size, >, 0);
    if (is_in(made, mades, name)) fail_msg("the name %.*s is there twice", (int)name.size, (const char *)name.at);
    assert_that(mades, <, MOST);
    made[mades++] = visible[visibles++] = name;
}

static void use(span name)
{
    if (!name.size) return; /* an optional input that is left out */
    if (!is_in(visible, visibles, name))
        fail_msg("%.*s is used before it is defined", (int)name.size, (const char *)name.at);
    assert_that(useds, <, MOST);
    used[useds++] = name;
}

/* ---- the parts of a graph */

static void check_graph(span graph);

static void check_tensor(span tensor)
{
    field f;
    size_t count = 1, type = 0, bytes = 0;
    span name = {0};
    while (next_field(&tensor, &f)) {
        if (f.number == 1) count *= f.whole;
        else if (f.number == 2) type = f.whole;
        else if (f.number == 8) name = f.bytes;
        else if (f.number == 9) bytes = f.bytes.size;
        else fail_msg("a tensor with a field %d", f.number);
    }
    define(name);
    assert_true(type == 1 || type == 7 || type == 11); /* float, int64, double */
    if (bytes != count * (type == 1 ? 4 : 8) || !bytes)
        fail_msg("%.*s: %zu bytes for %zu elements", (int)name.size, (const char *)name.at, bytes, count);
}

static span name_of_info(span info)
{
    field name, type, tensor, part;
    assert_true(find_field(info, 1, &name) && find_field(info, 2, &type) && find_field(type.bytes, 1, &tensor));
    assert_true(find_field(tensor.bytes, 1, &part) && find_field(tensor.bytes, 2, &part));
    return name.bytes;
}

static void check_node(span node)
{
    field f, part;
    span rest = node;
    for (span ins = node; next_field(&ins, &f);)
        if (f.number == 1) use(f.bytes);
    while (next_field(&rest, &f))
        if (f.number == 5) {
            assert_true(find_field(f.bytes, 1, &part) && find_field(f.bytes, 20, &part));
            if (find_field(f.bytes, 6, &part)) check_graph(part.bytes);
        }
    for (span outs = node; next_field(&outs, &f);)
        if (f.number == 2) define(f.bytes);
}

/* Calls check for each field with this number. */
static int each(span graph, int number, void (*check)(span))
{
    field f;
    int count = 0;
    while (next_field(&graph, &f))
        if (f.number == number) check(f.bytes), count++;
    return count;
}

static void define_input(span info) { define(name_of_info(info)); }
static void check_output(span info) { use(name_of_info(info)); }

static void check_graph(span graph)
{
    const int before = visibles;
    field name;
    assert_true(find_field(graph, 2, &name));
    assert_that(each(graph, 11, define_input), >, 0);
    each(graph, 5, check_tensor);
    assert_that(each(graph, 1, check_node), >, 0);
    assert_that(each(graph, 12, check_output), >, 0);
    visibles = before;
}

/* Each input after the first is a part of the state; the outputs are the scores and the parts in the same order, with
 * the same types and shapes. */
static void check_states(span graph)
{
    span inputs = graph, outputs = graph;
    field in, out, a, b;
    int first = 1;
    while (next_field(&inputs, &in)) {
        if (in.number != 11) continue;
        do assert_true(next_field(&outputs, &out));
        while (out.number != 12);
        const span input = name_of_info(in.bytes), output = name_of_info(out.bytes);
        if (first) assert_true(is_text(output, "scores"));
        else {
            assert_true(output.size == input.size + 5 && !memcmp(output.at, "next_state.", 11));
            assert_memory_equal(output.at + 5, input.at, input.size);
            assert_true(find_field(in.bytes, 2, &a) && find_field(out.bytes, 2, &b) && same_span(a.bytes, b.bytes));
        }
        first = 0;
    }
    while (next_field(&outputs, &out)) assert_int_not_equal(out.number, 12);
}

static int has_meta(span model, const char *key, const char *value)
{
    field entry, k, v;
    while (next_field(&model, &entry))
        if (entry.number == 14 && find_field(entry.bytes, 1, &k) && is_text(k.bytes, key))
            return find_field(entry.bytes, 2, &v) && is_text(v.bytes, value);
    return 0;
}

static void check_model(span model)
{
    field f, part;
    visibles = mades = useds = 0;
    assert_true(find_field(model, 1, &f) && f.whole == 7);
    assert_true(find_field(model, 2, &f) && is_text(f.bytes, "minrnn"));
    assert_true(find_field(model, 3, &f) && is_text(f.bytes, MR_VERSION));
    assert_true(find_field(model, 8, &f) && find_field(f.bytes, 2, &part) && part.whole == 13);
    assert_true(find_field(model, 7, &f));
    check_graph(f.bytes);
    check_states(f.bytes);
    for (int i = 0; i < mades; i++) /* a tensor or a result that nothing reads */
        if (!is_in(used, useds, made[i])) fail_msg("%.*s is of no use", (int)made[i].size, (const char *)made[i].at);
}

/* ---- models */

static char *export(mr_net *net, const char *name, size_t *size)
{
    char path[MR_TEXT_MAX], *data;
    in_folder(name, path);
    OK(mr_export_onnx(net, path, &err));
    OK(mr_file_read(path, UINT64_MAX, &data, size, &err));
    return data;
}

#define IDS "input", "tokens", "inputs", "7", "outputs", "5", "dim", "6", "layers", "2"
#define REALS "input", "reals", "inputs", "3", "outputs", "2", "loss", "mse", "dim", "6", "layers", "1"
static const char *const models[][40] = {
    {IDS, "mixer", "mingru", "h0", "learned", "conv", "4", "mlp", "2", "norm", "layer"},
    {IDS, "mixer", "mingru", "transition", "signed", "conv", "4", "conv-place", "residual", "norm", "none"},
    {IDS, "mixer", "minlstm", "normalize-gates", "yes", "head", "mean"},
    {IDS, "mixer", "minlstm", "normalize-gates", "no", "candidate", "tanh", "head", "last"},
    {IDS, "mixer", "gru", "h0", "learned", "head", "pair-last"},
    {IDS, "mixer", "lstm", "h0", "learned", "head", "pair-mean", "head-bias", "yes"},
    {IDS, "mixer", "mamba", "states", "3", "conv", "4"},
    {IDS, "mixer", "attention", "heads", "3", "window", "5"},
    {IDS, "mixer", "attention", "heads", "2", "window", "5", "positions", "learned", "head", "mean"},
    {REALS, "mixer", "mingru", "output", "tanh"},
};

/* Each is written twice: the same model gives the same bytes. */
static void files_are_whole(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        mr_net *net = net_of(ctx, models[i]);
        size_t size, again_size;
        char *data = export(net, "model.onnx", &size), *again = export(net, "again.onnx", &again_size);
        assert_int_equal(size, again_size);
        assert_memory_equal(data, again, size);
        check_model((span){(unsigned char *)data, size});
        mr_free(data), mr_free(again);
        mr_net_free(net);
    }
    mr_context_free(ctx);
}

/* A new mixer or key has to be built in app/weights/onnx_*.c and compared in onnx_cases.py. */
static void every_mixer_and_key_is_known(void **state)
{
    (void)state;
    mr_context *ctx = context_on("cpu");
    const mr_key *key;
    for (const char *const *mixer = mr_key_find("mixer")->choices; *mixer; mixer++) {
        mr_net *net = net_of(ctx, (const char *const[]){IDS, "mixer", *mixer, NULL});
        size_t size;
        char *data = export(net, "mixer.onnx", &size);
        check_model((span){(unsigned char *)data, size});
        mr_free(data);
        mr_net_free(net);
    }
    for (int i = 0; (key = mr_key_at(i)); i++)
        if (!(key->flags & MR_KEY_LEARN) && !mr_onnx_knows(key->name)) fail_msg("key %s", key->name);
    assert_false(mr_onnx_knows("lr"));
    mr_context_free(ctx);
}

static void scalers_are_in_the_graph(void **state)
{
    (void)state;
    static const double mean[] = {1, 2, 3}, scale[] = {4, 5, 6};
    static const char *const settings[] = {REALS, "mixer", "minlstm", "head", "token", NULL};
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, settings);
    size_t size;
    OK(mr_net_set_scaler(net, mean, scale, mean, scale, &err));
    char *data = export(net, "scaled.onnx", &size);
    check_model((span){(unsigned char *)data, size});
    assert_true(has_meta((span){(unsigned char *)data, size}, "model.scaler", "both"));
    static const char *const names[] = {"scaler.input.mean", "scaler.input.scale", "scaler.target.mean",
                                        "scaler.target.scale"};
    for (int i = 0; i < 4; i++)
        assert_true(is_in(made, mades, (span){(const unsigned char *)names[i], strlen(names[i])}));
    mr_free(data);
    mr_net_free(net);
    mr_context_free(ctx);
}

static void a_file_says_what_the_model_is(void **state)
{
    (void)state;
    static const char *const settings[] = {"vocab",   "[\"a\",\"é\",\"😀\"]", "dim", "8", "mixer",
                                           "minlstm", "head-bias",           "yes", NULL};
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, settings);
    size_t size;
    OK(mr_net_set_meta(net, "mine.author", "nobody", &err));
    char *data = export(net, "text.onnx", &size);
    const span model = {(unsigned char *)data, size};
    check_model(model);
    assert_true(has_meta(model, "vocab", "[\"a\",\"é\",\"😀\"]"));
    assert_true(has_meta(model, "model.mixer", "minlstm") && has_meta(model, "model.dim", "8"));
    assert_true(has_meta(model, "model.head-bias", "yes") && has_meta(model, "mine.author", "nobody"));
    assert_true(has_meta(model, "step", "0"));
    assert_false(has_meta(model, "model.gru-reset", "before")); /* keys of newer versions only where they matter */
    mr_free(data);
    mr_net_free(net);
    mr_context_free(ctx);
}

static void what_cannot_be_written_is_refused(void **state)
{
    (void)state;
    char path[MR_TEXT_MAX];
    mr_context *ctx = context_on("cpu");
    mr_net *net = net_of(ctx, models[0]);
    in_folder("missing/model.onnx", path);
    FAILS(MR_EIO, "missing/model.onnx", mr_export_onnx(net, path, &err));
    assert_false(mr_is_our_onnx(path));
    in_folder("model.onnx", path);
    OK(mr_export_onnx(net, path, &err));
    assert_true(mr_is_our_onnx(path));
    write_file("other.onnx", "\x08\x07\x12\x07pytorch and more", 20, path);
    assert_false(mr_is_our_onnx(path));
    write_file("short.onnx", "\x08\x07\x12\x06minrnn", 10, path);
    assert_false(mr_is_our_onnx(path));
    OK(mr_onnx_check_size(INT32_MAX, &err));
    FAILS(MR_ECONFIG, "2.1 GB", mr_onnx_check_size((int64_t)INT32_MAX + 1, &err));
    mr_net_free(net);
    mr_context_free(ctx);
}

/* ---- the writer */

static void check_bytes(mr_proto *message, const char *bytes, size_t size)
{
    assert_int_equal(message->failed, 0);
    assert_int_equal(message->size, size);
    assert_memory_equal(message->data, bytes, size);
    mr_proto_free(message);
}
#define WRITES(bytes, ...)                                                                                             \
    do {                                                                                                               \
        mr_proto m = {0};                                                                                              \
        __VA_ARGS__;                                                                                                   \
        check_bytes(&m, bytes, sizeof bytes - 1);                                                                      \
    } while (0)

static void fields_are_protobufs(void **state)
{
    (void)state;
    mr_proto inner = {0};
    WRITES("\x08\x00", mr_proto_whole(&m, 1, 0));
    WRITES("\x08\x7f", mr_proto_whole(&m, 1, 127));
    WRITES("\x08\x80\x01", mr_proto_whole(&m, 1, 128));
    WRITES("\x08\x96\x01\x10\xac\x02", mr_proto_whole(&m, 1, 150), mr_proto_whole(&m, 2, 300));
    WRITES("\xa0\x01\x07", mr_proto_whole(&m, 20, 7));
    WRITES("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", mr_proto_whole(&m, 1, -1));
    WRITES("\x12\x07testing", mr_proto_text(&m, 2, "testing"));
    WRITES("\x12\x00", mr_proto_text(&m, 2, ""));
    WRITES("\x1a\x03\x08\x96\x01\x1a\x00", mr_proto_whole(&inner, 1, 150), mr_proto_message(&m, 3, &inner),
           mr_proto_message(&m, 3, &inner)); /* empty the second time */
    WRITES("\x4a\x02pq", mr_proto_begin(&m, 9, 2), mr_proto_add(&m, "p", 1), mr_proto_add(&m, "q", 1));
    mr_proto_free(&inner);
}

static void long_fields_have_long_lengths(void **state)
{
    (void)state;
    mr_proto message = {0};
    char data[300];
    memset(data, 'x', sizeof data);
    for (int i = 0; i < 100; i++) mr_proto_bytes(&message, 2, data, sizeof data);
    assert_int_equal(message.size, 100 * 303);
    assert_memory_equal(message.data + 99 * 303, "\x12\xac\x02xxx", 6);
    mr_proto_free(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_are_protobufs),
        cmocka_unit_test(long_fields_have_long_lengths),
        cmocka_unit_test(files_are_whole),
        cmocka_unit_test(every_mixer_and_key_is_known),
        cmocka_unit_test(scalers_are_in_the_graph),
        cmocka_unit_test(a_file_says_what_the_model_is),
        cmocka_unit_test(what_cannot_be_written_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
