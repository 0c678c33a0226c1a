/* minrnn info: what a model file holds, or the weights of another program. It checks the file as the other commands do.
 */
#include "train/session.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/foreign_view.h"
#include "commands/json_out.h"

#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

static const mr_option flags[] = {MR_COMMON_FLAGS, {0}};

typedef struct view {
    const mr_session *session;
    const char *task; /* its name, or NULL */
    int vocab;        /* tokens of the vocabulary; 0: none */
    long long bytes, state_bytes;
} view;

static void print_shape(const mr_tensor *t)
{
    for (int i = 0; i < t->ndim; i++) printf("%s%lld", i ? " × " : "", (long long)t->shape[i]);
}

/* The next tensor of the net; 0: no more. */
static int next_tensor(const mr_net *net, int i, mr_tensor *t)
{
    *t = (mr_tensor)MR_TENSOR;
    return i < mr_net_tensors(net) && !mr_net_tensor(net, i, t, NULL);
}

/* The keys that a mixer uses, of those that not every mixer does. A mixer without a row here uses all. */
static const struct {
    const char *mixer, *keys;
} mixer_keys[] = {
    {"mingru", " candidate scan transition h0 gate-init expansion width mixer-bias "},
    {"minlstm", " candidate scan transition h0 gate-init expansion width mixer-bias normalize-gates "},
    {"gru", " h0 gate-init expansion width gru-reset "},
    {"lstm", " h0 gate-init expansion width "},
    {"attention", " heads positions window mixer-bias "},
    {"mamba", " expansion width states mixer-conv dt-rank mixer-bias "},
};

static int is_used(const char *key, const mr_net *net)
{
    char mixer[MR_TEXT_MAX], word[MR_TEXT_MAX];
    int used = 0, has_row = 0, in_a_row = 0;
    if (mr_net_setting(net, "mixer", mixer, sizeof mixer, NULL)) return 1;
    snprintf(word, sizeof word, " %s ", key);
    for (size_t i = 0; i < sizeof mixer_keys / sizeof *mixer_keys; i++) {
        const int own = !strcmp(mixer_keys[i].mixer, mixer), listed = strstr(mixer_keys[i].keys, word) != NULL;
        has_row |= own;
        in_a_row |= listed;
        used |= own && listed;
    }
    return used || !has_row || !in_a_row;
}

static void print_text(const view *v)
{
    char value[MR_TEXT_MAX];
    const mr_net *net = v->session->net;
    mr_tensor t;
    printf("task %s, training step %lld\n\n", v->task ? v->task : "none", (long long)mr_net_steps(net));
    for (const mr_option *o = mr_model_table(); o->key; o++)
        if (is_used(o->key, net) && !mr_net_setting(net, o->key, value, sizeof value, NULL))
            printf("  %-16s %s\n", o->key, value);
    if (v->vocab)
        printf("  %-16s %d %s\n", "vocabulary", v->vocab,
               mr_vocab_is_bytes(mr_net_vocab(net)) ? "bytes" : "characters");
    printf("\n");
    for (int i = 0; next_tensor(net, i, &t); i++) {
        printf("  %-36s %-3s ", t.name, t.dtype);
        print_shape(&t);
        printf("\n");
    }
    printf("\n%lld parameters, %lld bytes; the state of a stream is %lld bytes\n", (long long)mr_net_parameters(net),
           v->bytes, v->state_bytes);
}

static void write_config(mr_json_writer *w, const mr_net *net)
{
    char value[MR_TEXT_MAX];
    mr_json_write_key(w, "config");
    mr_json_write_open(w, '{');
    for (const mr_option *o = mr_model_table(); o->key; o++) {
        mr_net_setting(net, o->key, value, sizeof value, NULL);
        mr_json_write_key(w, o->key);
        if (o->type == MR_OPT_INT || o->type == MR_OPT_REAL) mr_json_write_word(w, value);
        else mr_json_write_string(w, value, strlen(value));
    }
    mr_json_write_close(w, '}');
}

static void write_tensors(mr_json_writer *w, const mr_net *net)
{
    mr_tensor t;
    mr_json_write_key(w, "parameters");
    mr_json_write_open(w, '[');
    for (int i = 0; next_tensor(net, i, &t); i++) {
        mr_json_write_open(w, '{');
        mr_json_field_text(w, "name", t.name);
        mr_json_write_key(w, "shape");
        mr_json_write_open(w, '[');
        for (int k = 0; k < t.ndim; k++) mr_json_write_whole(w, t.shape[k]);
        mr_json_write_close(w, ']');
        mr_json_field_text(w, "dtype", t.dtype);
        mr_json_write_close(w, '}');
    }
    mr_json_write_close(w, ']');
}

static int print_json(const view *v, mr_error *err)
{
    const mr_net *net = v->session->net;
    mr_json_out out;
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_field_text(w, "task", v->task);
    mr_json_field_whole(w, "step", mr_net_steps(net));
    write_config(w, net);
    write_tensors(w, net);
    mr_json_field_whole(w, "total_parameters", (int64_t)mr_net_parameters(net));
    mr_json_field_whole(w, "file_bytes", v->bytes);
    mr_json_field_whole(w, "state_bytes", v->state_bytes);
    mr_json_field_whole(w, "vocabulary", v->vocab);
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", err);
}

static int show_model(const mr_common *set, const char *given, mr_error *err)
{
    mr_context *ctx = NULL;
    mr_session session;
    struct stat st = {0};
    int status = mr_open_context(set, &ctx, err);
    if (!status) status = mr_session_open(&session, given, ctx, err);
    if (!status) {
        stat(session.path, &st);
        const view v = {&session, session.recipe.task ? session.recipe.task->type->name : NULL,
                        mr_net_vocab(session.net) ? mr_vocab_size(mr_net_vocab(session.net)) : 0, (long long)st.st_size,
                        (long long)mr_net_state_bytes(session.net)};
        if (set->json) status = print_json(&v, err);
        else print_text(&v);
        mr_session_close(&session);
    }
    mr_context_free(ctx);
    return status;
}

int mr_cmd_info(int argc, char **argv)
{
    mr_common set = {0};
    mr_args args = {.command = "info",
                    .flags = flags,
                    .settings = &set,
                    .operands = "MODEL",
                    .min = 1,
                    .max = 1,
                    .usage = "usage: minrnn info MODEL [--json]\n\nConfiguration, parameters and sizes of a model "
                             "file (or of the folder of a run), after checking all of it.\nOf weights of another "
                             "program (a file, an index, a folder): the tensors, whose they are, and how to import\n"
                             "them.\n",
                    .examples = "  minrnn info runs/book\n  minrnn info runs/book/last.safetensors --json\n"
                                "  minrnn info mamba-130m-hf\n"};
    mr_foreign *foreign = NULL;
    mr_error err;
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    int status = mr_foreign_view_open(args.given[0], &foreign, &err);
    if (!status && foreign) status = mr_foreign_view_print(foreign, args.given[0], set.json, &err);
    else if (!status) status = show_model(&set, args.given[0], &err);
    mr_foreign_close(foreign);
    return status ? mr_report("info", &err) : MR_EXIT_DONE;
}
