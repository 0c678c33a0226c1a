/* minrnn import: a model file from the weights of another program. */
#include "core/file.h"
#include "core/mem.h"
#include "weights/formats.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/json_out.h"
#include "commands/text_input.h"

#include <stddef.h>
#include <string.h>

static const char *const layouts[] = {"auto", "lucidrains", "borealis", "mamba", "torch", NULL};
static const char *const vocabs[] = {"none", "bytes", "chars", NULL};

enum { VOCAB_NONE, VOCAB_BYTES, VOCAB_CHARS, TEXT_LIMIT = 1 << 30 };

typedef struct settings {
    mr_common common;
    char out[MR_TEXT_MAX], text[MR_TEXT_MAX];
    int from, vocab;
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"out", MR_OPT_TEXT, offsetof(settings, out), "", 0, 0, NULL, "the model file to write", MR_OPT_PATH},
    {"from", MR_OPT_CHOICE, offsetof(settings, from), "auto", 0, 0, layouts, "whose weights they are", 0},
    {"vocab", MR_OPT_CHOICE, offsetof(settings, vocab), "none", 0, 0, vocabs,
     "how tokens become text; chars: the characters of --text in ascending order", 0},
    {"text", MR_OPT_TEXT, offsetof(settings, text), "", 0, 0, NULL, "with --vocab chars: the text", MR_OPT_PATH},
    {0}};

static void more_help(FILE *to, const char *topic)
{
    (void)topic;
    fprintf(to, "\n--from:\n");
    for (const mr_format *f = mr_formats; f->name; f++)
        if (f->import) fprintf(to, "  %-11s %s\n", f->name, f->about);
    fprintf(to, "\nWhat the weights do not tell is taken from a config.json beside them, else it is:\n"
                "  norm-eps         lucidrains: 1.1920929e-07, as nn.RMSNorm has it; mamba: 1e-5\n"
                "  normalize-gates  borealis, minlstm: no, as in the authors' code\n"
                "  heads, window, positions, norm, candidate, …\n"
                "                   torch: the default of a new model\n"
                "Any key of a model may be given as a flag and then holds: --norm-eps 1e-6 "
                "(`minrnn train --help` lists them).\n");
}

/* ---- the vocabulary ---- */

static int print_vocab(const mr_vocab *vocab, char **out, mr_error *err)
{
    size_t needed = 0;
    mr_vocab_print(vocab, NULL, 0, &needed, NULL);
    *out = mr_alloc(needed + 1, 1);
    return *out ? mr_vocab_print(vocab, *out, needed + 1, &needed, err) : mr_no_memory(err, "the vocabulary");
}

/* The vocabulary as the key `vocab` has it, in new memory; NULL: none. */
static int read_vocab(const settings *set, char **out, mr_error *err)
{
    mr_vocab *vocab = NULL;
    char *text = NULL;
    size_t size = 0;
    *out = NULL;
    if (set->vocab == VOCAB_NONE) return 0;
    const mr_vocab_kind kind = set->vocab == VOCAB_BYTES ? MR_VOCAB_BYTES : MR_VOCAB_CHARS;
    mr_error inner;
    int status = set->vocab == VOCAB_CHARS ? mr_text_input_all(set->text, TEXT_LIMIT, &text, &size, err) : 0;
    const int read = !status;
    if (read) status = mr_vocab_build(kind, text, size, &vocab, &inner);
    if (read && status) mr_fail(err, status, "--text %.200s: %s", set->text, inner.text);
    if (!status) status = print_vocab(vocab, out, err);
    mr_vocab_free(vocab);
    mr_free(text);
    return status;
}

/* ---- checks ---- */

/* The pairs as settings of a net. Returns −1 to continue, otherwise the exit status. */
static int take_pairs(const mr_args *args, const char *list[2 * MR_PAIRS_MAX + 1])
{
    int n = 0;
    for (int i = 0; i < args->pair_count; i++) {
        const mr_flag_pair *p = &args->pairs[i];
        const mr_key *key = mr_key_find(p->key);
        const char *near = key ? NULL : mr_key_nearest(p->key); /* a key of training is as near as can be */
        if (!key || (key->flags & MR_KEY_LEARN) || !strcmp(p->key, "weights") || !strcmp(p->key, "scaler"))
            return mr_misused("import", "--%s is neither a flag nor a key of a model%s%s%s", p->key,
                              near ? "; did you mean --" : "", near ? near : "", near ? "?" : "");
        if (!p->value) return mr_misused("import", "--%s needs a value", p->key);
        list[n++] = p->key;
        list[n++] = p->value;
    }
    list[n] = NULL;
    return -1;
}

static int check_flags(const settings *set)
{
    if (!set->out[0]) return mr_misused("import", "--out MODEL is missing; see `minrnn import --help`");
    if ((set->vocab == VOCAB_CHARS) != (set->text[0] != 0))
        return mr_misused("import", "--vocab chars and --text FILE belong together");
    return -1;
}

/* Refuses to write over anything but a model. */
static int check_out(const char *out, mr_error *err)
{
    char format[16] = "";
    size_t needed = 0;
    if (!mr_path_exists(out)) return 0;
    if (!mr_file_meta(out, "format", format, sizeof format, &needed, NULL) && !strcmp(format, "minrnn")) return 0;
    return mr_fail(err, MR_EINVAL, "--out %s exists and is no model of minrnn; remove it first or give another name",
                   out);
}

/* ---- the command ---- */

static int print_result(const settings *set, const mr_foreign *from, const mr_format *format, const mr_net *net,
                        const char *assumed, mr_error *err)
{
    const char *what = format->guess ? format->guess(from) : NULL;
    mr_json_out out;
    if (*assumed && !set->common.quiet)
        fprintf(stderr, "minrnn import: nothing tells these settings, so they were assumed: %s (a flag sets each)\n",
                assumed);
    if (!set->common.json) {
        printf("%s: %s; %lld parameters\n", set->out, what ? what : format->name, (long long)mr_net_parameters(net));
        return 0;
    }
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_field_text(w, "from", format->name);
    mr_json_field_text(w, "what", what);
    mr_json_field_text(w, "out", set->out);
    mr_json_field_whole(w, "parameters", mr_net_parameters(net));
    mr_json_field_text(w, "assumed", assumed);
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", err);
}

static int import(const settings *set, const char *given, const char *const *keys, mr_context *ctx, mr_error *err)
{
    mr_foreign *from = NULL;
    mr_net *net = NULL;
    const mr_format *format;
    char *vocab = NULL, assumed[MR_ASSUMED_ROOM] = "";
    int status = check_out(set->out, err);
    if (!status) status = mr_foreign_open(given, &from, err);
    if (!status) status = read_vocab(set, &vocab, err);
    if (!status) {
        const mr_import_options options = {layouts[set->from], vocab, keys, assumed};
        status = mr_import(from, &options, ctx, &net, &format, err);
    }
    if (!status) status = mr_tidy_on_signals(set->out, err);
    if (!status) status = mr_net_save(net, set->out, err);
    if (!status) status = print_result(set, from, format, net, assumed, err);
    mr_net_free(net);
    mr_foreign_close(from);
    mr_free(vocab);
    return status;
}

int mr_cmd_import(int argc, char **argv)
{
    settings set = {0};
    mr_args args = {.command = "import",
                    .flags = flags,
                    .settings = &set,
                    .open = 1,
                    .operands = "FILE|DIR",
                    .min = 1,
                    .max = 1,
                    .more_help = more_help,
                    .usage =
                        "usage: minrnn import FILE|DIR --out MODEL [--from LAYOUT] [--vocab bytes] [--KEY VALUE …]\n"
                        "\n"
                        "Makes a model of the weights of another program: a safetensors file, an index of "
                        "shards, or a folder with\n"
                        "either. `minrnn info FILE|DIR` says what they are. What cannot be expressed is refused. "
                        "A MODEL that exists is\n"
                        "replaced only if it is a model of minrnn.\n",
                    .examples = "  minrnn import minlm.safetensors --out model.safetensors --vocab bytes\n"
                                "  minrnn import mamba-130m-hf --out mamba.safetensors\n"
                                "  minrnn import ours.safetensors --from torch --out model.safetensors --heads 4\n"};
    const char *keys[2 * MR_PAIRS_MAX + 1];
    mr_context *ctx = NULL;
    mr_error err;
    int code = mr_args_parse(&args, argc, argv);
    if (code < 0) code = check_flags(&set);
    if (code < 0) code = take_pairs(&args, keys);
    if (code >= 0) return code;
    int status = mr_open_context(&set.common, &ctx, &err);
    if (!status) status = import(&set, args.given[0], keys, ctx, &err);
    mr_context_free(ctx);
    return status ? mr_report("import", &err) : MR_EXIT_DONE;
}
