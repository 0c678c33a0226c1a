/* Fuzzes weights of other programs. The input is a safetensors file, and after its end a config.json or an index; each
 * layout must refuse it with a sentence, or make a net that computes. Names of layouts' tensors are in the corpus. */
#include "input.h"
#include "weights/formats.h"

#include <string.h>

enum { LARGEST = 1 << 14, TOKENS = 3 };

static mr_context *the_context(void)
{
    static mr_context *ctx;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_error err;
    options.device = "cpu";
    options.threads = 1;
    if (!ctx) must(!mr_context_new(&options, &ctx, &err), "there is a CPU");
    return ctx;
}

static void run_net(mr_net *net)
{
    static float scores[1 << 16], values[TOKENS << 12];
    static int32_t ids[TOKENS];
    mr_error err = {0};
    mr_batch batch = MR_BATCH;
    batch.B = 1;
    batch.T = TOKENS;
    if (mr_net_input(net) == MR_INPUT_TOKENS) batch.ids = ids;
    else batch.values = values;
    if (mr_net_inputs(net) > 1 << 12 || mr_net_outputs(net) > 1 << 12 || mr_net_head(net) > MR_HEAD_MEAN) return;
    must(!mr_net_forward(net, &batch, scores, sizeof scores / sizeof *scores, &err), "an imported net computes");
}

/* What was imported can be exported in its own layout, or a sentence says why not. */
static void write_again(mr_net *net, const mr_format *format)
{
    mr_error err = {0};
    mr_transfer t;
    if (!format->export) return;
    if (!mr_transfer_export(&t, net, &err)) format->export(&t);
    mr_transfer_finish(&t);
    must(!t.status || err.text[0], "an error says why");
    mr_transfer_free(&t);
}

static void try_layout(const mr_foreign *f, const char *layout)
{
    static const char *const settings[] = {"layers", "2", NULL};
    for (int given = 0; given < 2; given++) {
        const mr_import_options options = {layout, NULL, given ? settings : NULL, NULL};
        const mr_format *format;
        mr_net *net = NULL;
        mr_error err = {0};
        const int status = mr_import(f, &options, the_context(), &net, &format, &err);
        must((status == 0) == (net != NULL), "a net or an error");
        must(!status || (status == err.status && err.text[0]), "an error says why");
        if (net) {
            run_net(net);
            write_again(net, format);
        }
        mr_net_free(net);
    }
}

/* The JSON of an index and of a config.json. */
static void check_sidecar(const char *text, size_t size)
{
    for (int inside = 0; inside < 2; inside++) {
        mr_sidecar s;
        mr_error err = {0};
        if (mr_sidecar_read(&s, "input", text, size, inside ? "weight_map" : NULL, &err)) {
            must(err.text[0] != 0, "an error says why");
            continue;
        }
        for (int i = 0; i < s.count; i++)
            must(mr_sidecar_find(&s, s.entries[i].key) == &s.entries[i], "a key is found");
        mr_sidecar_free(&s);
    }
}

/* Where the safetensors file ends: a line of its own with three dashes. */
static size_t end_of_file(const uint8_t *data, size_t size)
{
    static const char mark[] = "\n---\n";
    for (size_t i = 0; i + sizeof mark - 1 <= size; i++)
        if (!memcmp(data + i, mark, sizeof mark - 1)) return i;
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > LARGEST) return 0;
    const size_t end = end_of_file(data, size);
    const char *config = end < size ? (const char *)data + end + 5 : NULL;
    const size_t config_size = config ? size - end - 5 : 0;
    mr_foreign *f = NULL;
    mr_error err = {0};
    check_sidecar(config ? config : (const char *)data, config ? config_size : size);
    if (mr_foreign_open_memory(data, end, config, config_size, &f, &err)) {
        must(err.text[0] != 0 && !f, "an error says why");
        return 0;
    }
    try_layout(f, "auto");
    for (const mr_format *format = mr_formats; format->name; format++)
        if (format->import) try_layout(f, format->name);
    mr_foreign_close(f);
    return 0;
}
