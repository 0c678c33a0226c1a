/* minrnn: the command. */
#include "core/options.h"
#include "minrnn_experimental.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "control/env.h"
#include "control/hdf5_file.h"

#include <stdio.h>
#include <string.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *about;
} commands[] = {{"train", mr_cmd_train, "train a model from a recipe"},
                {"eval", mr_cmd_eval, "score a model on its task's test data"},
                {"generate", mr_cmd_generate, "continue a prompt"},
                {"score", mr_cmd_score, "log-probability of a text"},
                {"info", mr_cmd_info, "what a model file holds"},
                {"quantize", mr_cmd_quantize, "weights in 8 bits, to run a model faster"},
                {"import", mr_cmd_import, "a model from the weights of another program"},
                {"export", mr_cmd_export, "the weights of a model for another program"},
                {"rollout", mr_cmd_rollout, "let a policy act in its environment"},
                {"bench", mr_cmd_bench, "times, and their share of this machine's limits"},
                {"check", mr_cmd_check, "every op on this machine against the reference"},
                {"reproduce", mr_cmd_reproduce, "the paper's experiments: its numbers and ours"},
                {"data", mr_cmd_data, "data sets: list, get, path, make"},
                {0}};

static void print_help(FILE *to)
{
    fprintf(to, "minrnn: train and run minGRU and minLSTM\n\nusage: minrnn COMMAND …\n\n");
    for (const struct command *c = commands; c->name; c++) fprintf(to, "  %-10s %s\n", c->name, c->about);
    fprintf(to, "\n`minrnn help COMMAND` explains one, with examples. `minrnn --version` lists what is built in.\n"
                "\nexamples:\n"
                "  minrnn train text --data book.txt --out runs/book     a model of any text\n"
                "  minrnn generate runs/book --prompt \"Once\"\n");
}

static int print_version(void)
{
    printf("minrnn %s\n", mr_version());
    printf("cpu:");
    for (const char *const *isa = mr_cpu_isas(); *isa; isa++) printf(" %s", *isa);
    printf("\ncuda: %s\n", mr_cuda_version());
#ifdef MINRNN_WITH_CURL
    printf("curl: yes\n");
#else
    printf("curl: no\n");
#endif
    printf("cblas: %s\n", mr_uses_cblas() ? "yes" : "no");
    printf("hdf5: %s\n", mr_hdf5_version() ? mr_hdf5_version() : "no");
    printf("mujoco: %s\n", mr_mujoco_version() ? mr_mujoco_version() : "no");
    return MR_EXIT_DONE;
}

static int unknown_command(const char *name)
{
    const char *names[sizeof commands / sizeof *commands] = {NULL};
    for (int i = 0; commands[i].name; i++) names[i] = commands[i].name;
    return mr_unknown_name("", "command", name, names);
}

/* Fails a command whose output was lost (a full disk, say). */
static int check_stdout(int code, const char *command)
{
    if (!fflush(stdout) && !ferror(stdout)) return code;
    if (code == MR_EXIT_DONE) fprintf(stderr, "minrnn %s: standard output cannot be written\n", command);
    return code == MR_EXIT_DONE ? MR_EXIT_FAILED : code;
}

static const struct command *find(const char *name)
{
    for (const struct command *c = commands; c->name; c++)
        if (!strcmp(name, c->name)) return c;
    return NULL;
}

/* `minrnn help train text` is `minrnn train text --help`. argv[0] is "help". */
static int help(int argc, char **argv)
{
    char flag[] = "--help", *words[4] = {NULL};
    int count = 0;
    if (argc == 1) return print_help(stdout), MR_EXIT_DONE;
    const struct command *c = find(argv[1]);
    if (!c) return unknown_command(argv[1]);
    if (argc > 3) return mr_misused("", "help takes a command and at most one topic; see `minrnn --help`");
    words[count++] = argv[1];
    if (argc > 2) words[count++] = argv[2];
    words[count++] = flag;
    return c->run(count, words);
}

int main(int argc, char **argv)
{
    if (argc < 2) return print_help(stderr), MR_EXIT_USAGE;
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help"))
        return check_stdout(help(argc - 1, argv + 1), "help");
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V") || !strcmp(argv[1], "version"))
        return check_stdout(print_version(), "--version");
    const struct command *c = find(argv[1]);
    return c ? check_stdout(c->run(argc - 1, argv + 1), c->name) : unknown_command(argv[1]);
}
