/* minrnn info: what a model file holds. It checks the file as the other commands do. */
#include "train/session.h"
#include "commands/args.h"
#include "commands/commands.h"

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

static void print_shape(const mr_tensor *t, const char *between)
{
    for (int i = 0; i < t->ndim; i++) printf("%s%lld", i ? between : "", (long long)t->shape[i]);
}

/* The next tensor of the net; 0: no more. */
static int next_tensor(const mr_net *net, int i, mr_tensor *t)
{
    *t = (mr_tensor)MR_TENSOR;
    return i < mr_net_tensors(net) && !mr_net_tensor(net, i, t, NULL);
}

static void print_text(const view *v)
{
    char value[MR_TEXT_MAX];
    const mr_net *net = v->session->net;
    mr_tensor t;
    printf("task %s, training step %lld\n\n", v->task ? v->task : "none", (long long)mr_net_steps(net));
    for (const mr_option *o = mr_model_table(); o->key; o++)
        if (!mr_net_setting(net, o->key, value, sizeof value, NULL)) printf("  %-16s %s\n", o->key, value);
    if (v->vocab)
        printf("  %-16s %d %s\n", "vocabulary", v->vocab,
               mr_vocab_is_bytes(mr_net_vocab(net)) ? "bytes" : "characters");
    printf("\n");
    for (int i = 0; next_tensor(net, i, &t); i++) {
        printf("  %-36s %-3s ", t.name, t.dtype);
        print_shape(&t, " × ");
        printf("\n");
    }
    printf("\n%lld parameters, %lld bytes; the state of a stream is %lld bytes\n", (long long)mr_net_parameters(net),
           v->bytes, v->state_bytes);
}

static void print_json(const view *v)
{
    char value[MR_TEXT_MAX];
    const mr_net *net = v->session->net;
    mr_tensor t;
    printf("{\"task\": ");
    if (v->task) mr_print_json_string(stdout, v->task, strlen(v->task));
    else printf("null");
    printf(", \"step\": %lld, \"config\": {", (long long)mr_net_steps(net));
    for (const mr_option *o = mr_model_table(); o->key; o++) {
        printf("%s\"%s\": ", o == mr_model_table() ? "" : ", ", o->key);
        mr_net_setting(net, o->key, value, sizeof value, NULL);
        if (o->type == MR_OPT_INT || o->type == MR_OPT_REAL) printf("%s", value);
        else mr_print_json_string(stdout, value, strlen(value));
    }
    printf("}, \"parameters\": [");
    for (int i = 0; next_tensor(net, i, &t); i++) {
        printf("%s{\"name\": \"%s\", \"shape\": [", i ? ", " : "", t.name);
        print_shape(&t, ", ");
        printf("], \"dtype\": \"%s\"}", t.dtype);
    }
    printf("], \"total_parameters\": %lld, \"file_bytes\": %lld, \"state_bytes\": %lld, \"vocabulary\": %d}\n",
           (long long)mr_net_parameters(net), v->bytes, v->state_bytes, v->vocab);
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
                             "file (or of the folder of a run), after checking all of it.\n",
                    .examples = "  minrnn info runs/book\n  minrnn info runs/book/last.safetensors --json\n"};
    mr_context *ctx = NULL;
    mr_session session;
    mr_error err;
    struct stat st = {0};
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    int status = mr_open_context(&set, &ctx, &err);
    if (!status) status = mr_session_open(&session, args.given[0], ctx, &err);
    if (!status) {
        stat(session.path, &st);
        const view v = {&session, session.recipe.task ? session.recipe.task->type->name : NULL,
                        mr_net_vocab(session.net) ? mr_vocab_size(mr_net_vocab(session.net)) : 0, (long long)st.st_size,
                        (long long)mr_net_state_bytes(session.net)};
        (set.json ? print_json : print_text)(&v);
        mr_session_close(&session);
    }
    mr_context_free(ctx);
    return status ? mr_report("info", &err) : MR_EXIT_DONE;
}
