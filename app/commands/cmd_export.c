/* minrnn export: a model's weights as another program stores them. */
#include "core/file.h"
#include "core/mem.h"
#include "train/session.h"
#include "weights/formats.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/json_out.h"

#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

typedef struct settings {
    mr_common common;
    char out[MR_TEXT_MAX], to[MR_TEXT_MAX];
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"out", MR_OPT_TEXT, offsetof(settings, out), "", 0, 0, NULL, "the file to write", MR_OPT_PATH},
    {"to", MR_OPT_TEXT, offsetof(settings, to), "", 0, 0, NULL, "the layout", 0},
    {0}};

static int is_written(const mr_format *f) { return f->export || f->write; }

static void more_help(FILE *to, const char *topic)
{
    (void)topic;
    fprintf(to, "\n--to:\n");
    for (const mr_format *f = mr_formats; f->name; f++)
        if (is_written(f)) fprintf(to, "  %-11s %s\n", f->name, f->about);
}

/* The layout of --to. Returns −1 to continue, otherwise the exit status. */
static int choose(const settings *set, const mr_format **format)
{
    const char *names[16] = {NULL};
    int count = 0;
    if (!set->out[0]) return mr_misused("export", "--out FILE is missing; see `minrnn export --help`");
    if (!set->to[0]) return mr_misused("export", "--to LAYOUT is missing; see `minrnn export --help`");
    *format = mr_format_find(set->to);
    if (*format && is_written(*format)) return -1;
    for (const mr_format *f = mr_formats; f->name && count < 15; f++)
        if (is_written(f)) names[count++] = f->name;
    return mr_unknown_name("export", "layout", set->to, names);
}

static int same_file(const char *a, const char *b)
{
    struct stat x, y;
    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int print_result(const settings *set, const mr_net *net, mr_error *err)
{
    mr_json_out out;
    struct stat st = {0};
    stat(set->out, &st);
    if (!set->common.json) {
        printf("%s: %s, %lld parameters, %lld bytes\n", set->out, set->to, (long long)mr_net_parameters(net),
               (long long)st.st_size);
        return 0;
    }
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_field_text(w, "to", set->to);
    mr_json_field_text(w, "out", set->out);
    mr_json_field_whole(w, "parameters", mr_net_parameters(net));
    mr_json_field_whole(w, "file_bytes", (int64_t)st.st_size);
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", err);
}

static int export(const settings *set, const mr_format *format, const char *given, mr_context *ctx, mr_error *err)
{
    char *path = NULL;
    mr_net *net = NULL;
    int status = mr_model_path(given, &path, err);
    if (!status && same_file(path, set->out))
        status =
            mr_fail(err, MR_EINVAL, "--out %s is the model itself, which would be lost; name another file", set->out);
    if (!status) status = mr_export_check(set->out, err);
    if (!status) status = mr_net_open(ctx, path, &net, err);
    if (!status) status = mr_tidy_on_signals(set->out, err);
    if (!status) status = mr_export(net, format, set->out, err);
    if (!status) status = print_result(set, net, err);
    mr_net_free(net);
    mr_free(path);
    return status;
}

int mr_cmd_export(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {.command = "export",
                    .flags = flags,
                    .settings = &set,
                    .operands = "MODEL",
                    .min = 1,
                    .max = 1,
                    .more_help = more_help,
                    .usage = "usage: minrnn export MODEL --to LAYOUT --out FILE [--json]\n\n"
                             "Writes a model's weights as another program stores them, each number as it is. MODEL is "
                             "a model file or the\n"
                             "folder of a run. What the layout cannot express is refused. A FILE that exists is "
                             "replaced only if it is an\n"
                             "export, too.\n",
                    .examples = "  minrnn export runs/book --to torch --out book-torch.safetensors\n"
                                "  minrnn export model.safetensors --to lucidrains --out minlm.safetensors\n"};
    const mr_format *format = NULL;
    mr_context *ctx = NULL;
    mr_error err;
    int code = mr_args_parse(&args, argc, argv);
    if (code < 0) code = choose(&set, &format);
    if (code >= 0) return code;
    int status = mr_open_context(&set.common, &ctx, &err);
    if (!status) status = export(&set, format, args.given[0], ctx, &err);
    mr_context_free(ctx);
    return status ? mr_report("export", &err) : MR_EXIT_DONE;
}
