/* The table of layouts, and the way through one of them. */
#include "weights/formats.h"

#include "core/file.h"
#include "weights/onnx.h"

#include <string.h>

#define MARK "minrnn.export" /* metadata of files that may be replaced */

const mr_format mr_formats[] = {
    {"lucidrains", "minGRU-pytorch: a minLM, or one minGRU or minLSTM", mr_guess_lucidrains, mr_import_lucidrains,
     mr_export_lucidrains, NULL},
    {"borealis", "the paper's authors (BorealisAI): a model, or one layer", mr_guess_borealis, mr_import_borealis, NULL,
     NULL},
    {"mamba", "Mamba of Hugging Face's transformers", mr_guess_mamba, mr_import_mamba, NULL, NULL},
    {"torch", "our tensors with PyTorch's names; nn.GRU, nn.LSTM", mr_guess_torch, mr_import_torch, mr_export_torch,
     NULL},
    {"onnx", "a graph with its weights, for onnxruntime and others", NULL, NULL, NULL, mr_export_onnx},
    {0}};

const mr_format *mr_format_find(const char *name)
{
    for (const mr_format *f = mr_formats; f->name; f++)
        if (!strcmp(f->name, name)) return f;
    return NULL;
}

const mr_format *mr_format_guess(const mr_foreign *from, const char **what)
{
    for (const mr_format *f = mr_formats; f->name; f++) {
        const char *is = f->guess ? f->guess(from) : NULL;
        if (what) *what = is;
        if (is) return f;
    }
    return NULL;
}

/* ---- import ---- */

static int choose(const mr_foreign *from, const char *name, const mr_format **format, mr_error *err)
{
    const char *made = mr_foreign_meta(from, "format");
    if (made && !strcmp(made, "minrnn"))
        return mr_fail(err, MR_EFORMAT, "%s: already a file of minrnn, which needs no import", from->path);
    *format = strcmp(name, "auto") ? mr_format_find(name) : mr_format_guess(from, NULL);
    if (*format && (*format)->import) return 0;
    if (strcmp(name, "auto")) return mr_fail(err, MR_EINVAL, "--from %s: cannot be imported", name);
    return mr_fail(err, MR_EFORMAT,
                   "%s: not of a program that minrnn knows (%d tensors, the first is %.100s); name one with --from",
                   from->path, from->count, from->count ? from->tensors[0].at->name : "missing");
}

int mr_import(const mr_foreign *from, const mr_import_options *options, mr_context *ctx, mr_net **out,
              const mr_format **format, mr_error *err)
{
    mr_transfer t;
    *out = NULL;
    int status = choose(from, options->from, format, err);
    if (status) return status;
    status = mr_transfer_import(&t, from, ctx, err);
    t.given = options->settings;
    t.vocab = options->vocab;
    if (!status) (*format)->import(&t);
    mr_transfer_finish(&t);
    status = t.status;
    if (options->assumed) memcpy(options->assumed, t.assumed, sizeof t.assumed);
    if (!status) {
        *out = t.net;
        t.net = NULL;
    }
    mr_transfer_free(&t);
    return status;
}

/* ---- export ---- */

int mr_export_check(const char *path, mr_error *err)
{
    char mark[16] = "";
    size_t needed = 0;
    if (!mr_path_exists(path)) return 0;
    if (!mr_file_meta(path, MARK, mark, sizeof mark, &needed, NULL) && needed) return 0;
    if (mr_is_our_onnx(path)) return 0;
    return mr_fail(err, MR_EINVAL, "--out %s exists and is no export of minrnn; remove it first or give another name",
                   path);
}

int mr_export(mr_net *net, const mr_format *format, const char *path, mr_error *err)
{
    mr_transfer t;
    if (format->write) return format->write(net, path, err);
    int status = mr_transfer_export(&t, net, err);
    if (!status) format->export(&t);
    mr_transfer_finish(&t);
    if (!t.status) t.status = mr_st_add_meta(t.to, "format", "pt"); /* what libraries of PyTorch expect */
    if (!t.status) t.status = mr_st_add_meta(t.to, MARK, format->name);
    if (!t.status) t.status = mr_st_write(t.to, path, err);
    status = t.status;
    mr_transfer_free(&t);
    return status;
}
