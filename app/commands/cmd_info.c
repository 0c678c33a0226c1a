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
    const mr_params *params;
    long long bytes, parameters, state_bytes;
} view;

static void print_shape(const mr_param *p, const char *between)
{
    for (int i = 0; i < p->ndim; i++) printf("%s%lld", i ? between : "", (long long)p->shape[i]);
}

static void print_text(const view *v)
{
    char value[MR_TEXT_MAX];
    const mr_recipe *r = &v->session->recipe;
    printf("task %s, training step %lld\n\n", r->task->type->name, (long long)v->session->step);
    for (const mr_option *o = mr_config_options; o->key; o++) printf("  %-16s %s\n", o->key, mr_option_print(o, &r->config, value));
    if (v->session->vocab.size) printf("  %-16s %d %s\n", "vocabulary", v->session->vocab.size, v->session->vocab.kind == MR_VOCAB_BYTES ? "bytes" : "characters");
    printf("\n");
    for (int i = 0; i < v->params->count; i++) {
        printf("  %-36s %-3s ", v->params->list[i].name, mr_model_dtype(v->session->model, i));
        print_shape(&v->params->list[i], " × ");
        printf("\n");
    }
    printf("\n%lld parameters, %lld bytes; the state of a stream is %lld bytes\n", v->parameters, v->bytes, v->state_bytes);
}

static void print_json(const view *v)
{
    char value[MR_TEXT_MAX];
    const mr_recipe *r = &v->session->recipe;
    printf("{\"task\": \"%s\", \"step\": %lld, \"config\": {", r->task->type->name, (long long)v->session->step);
    for (const mr_option *o = mr_config_options; o->key; o++) {
        printf("%s\"%s\": ", o == mr_config_options ? "" : ", ", o->key);
        mr_option_print(o, &r->config, value);
        if (o->type == MR_OPT_INT || o->type == MR_OPT_REAL) printf("%s", value);
        else mr_print_json_string(stdout, value, strlen(value));
    }
    printf("}, \"parameters\": [");
    for (int i = 0; i < v->params->count; i++) {
        printf("%s{\"name\": \"%s\", \"shape\": [", i ? ", " : "", v->params->list[i].name);
        print_shape(&v->params->list[i], ", ");
        printf("], \"dtype\": \"%s\"}", mr_model_dtype(v->session->model, i));
    }
    printf("], \"total_parameters\": %lld, \"file_bytes\": %lld, \"state_bytes\": %lld, \"vocabulary\": %d}\n", v->parameters, v->bytes,
           v->state_bytes, v->session->vocab.size);
}

int mr_cmd_info(int argc, char **argv)
{
    mr_common set = {0};
    mr_args args = {.command = "info", .flags = flags, .settings = &set, .min = 1, .max = 1,
        .usage = "usage: minrnn info MODEL [--json]\n\nConfiguration, parameters and sizes of a model file, after checking all of it.\n",
        .examples = "  minrnn info runs/book/model.safetensors\n"};
    mr_dev *dev = NULL;
    mr_session session;
    mr_error err;
    struct stat st = {0};
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    int status = mr_open_device(&set, NULL, &dev, &err);
    if (!status) status = mr_session_open(&session, args.given[0], dev, 0, 0, &err);
    if (!status) {
        stat(args.given[0], &st);
        view v = {&session, mr_model_params(session.model), (long long)st.st_size, (long long)mr_model_count(session.model),
                  (long long)(mr_model_state_reals(session.model) * sizeof(float))};
        (set.json ? print_json : print_text)(&v);
        mr_session_close(&session);
    }
    mr_dev_close(dev);
    return status ? mr_report("info", &err) : MR_EXIT_DONE;
}
