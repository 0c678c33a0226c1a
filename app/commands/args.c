/* The command line: parsing, help, and what all commands do alike. */
#include "commands/args.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/strbuf.h"
#include "commands/commands.h"

#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- help ---- */

static void describe_values(const mr_option *o, char *out, size_t size)
{
    out[0] = 0;
    if (o->type == MR_OPT_INT) snprintf(out, size, "N");
    if (o->type == MR_OPT_REAL) snprintf(out, size, "X");
    if (o->type == MR_OPT_PAIR) snprintf(out, size, "X,Y");
    if (o->type == MR_OPT_TEXT) snprintf(out, size, "%s", o->flags & MR_OPT_PATH ? "FILE" : "TEXT");
    for (int i = 0; o->type == MR_OPT_CHOICE && o->choices[i]; i++) {
        size_t n = strlen(out);
        snprintf(out + n, size - n, "%s%s", i ? "|" : "", o->choices[i]);
    }
}

/* One row: the flag, its values, what it does, and in brackets its default. */
static void print_row(FILE *to, const mr_option *o, const char *value)
{
    char values[128], left[192];
    describe_values(o, values, sizeof values);
    snprintf(left, sizeof left, "--%s %s", o->key, values);
    const int bare = !*value || (o->type == MR_OPT_BOOL && !strcmp(value, "no"));
    fprintf(to, "  %-34s %s%s%s%s%s\n", left, o->help, o->flags & MR_OPT_MANY ? "; may be given several times" : "",
            bare ? "" : " (", bare ? "" : value, bare ? "" : ")");
}

void mr_args_print_options(FILE *to, const mr_option *table, unsigned hidden)
{
    for (const mr_option *o = table; o->key; o++)
        if (!(o->flags & hidden)) print_row(to, o, o->fallback);
}

void mr_args_print_values(FILE *to, const mr_option *table, const void *settings)
{
    char value[MR_TEXT_MAX];
    for (const mr_option *o = table; o->key; o++)
        if (!(o->flags & MR_OPT_DERIVED)) print_row(to, o, mr_option_print(o, settings, value));
}

int mr_args_print_option(FILE *to, const mr_option *table, const char *key)
{
    const mr_option *o = mr_option_find(table, key);
    if (o) print_row(to, o, o->fallback);
    return o != NULL;
}

static int print_help(const mr_args *a, const char *topic)
{
    if (a->help) return a->help(a, topic);
    printf("%s\n", a->usage);
    mr_args_print_options(stdout, a->flags, MR_OPT_DERIVED);
    if (a->more_help) a->more_help(stdout, topic);
    printf("\nexamples:\n%s", a->examples);
    return MR_EXIT_DONE;
}

/* --help is at argv[at]. Its topic is an operand before or after it. */
static int help_at(const mr_args *a, int argc, char **argv, int at)
{
    if (a->count) return print_help(a, a->given[0]);
    return print_help(a, at + 1 < argc && argv[at + 1][0] != '-' ? argv[at + 1] : NULL);
}

/* ---- parsing ---- */

static int usage_error(const mr_args *a, const char *format, const char *what)
{
    char sentence[300]; /* a longer argument is not repeated to its end */
    snprintf(sentence, sizeof sentence, format, what);
    return mr_misused(a->command, "%s; see `minrnn %s --help`", sentence, a->command);
}

static int unknown_flag(const mr_args *a, const char *flag, const mr_option *const *tables)
{
    const char *near = mr_option_nearest(tables, flag);
    if (!near) return usage_error(a, "unknown flag --%s", flag);
    return mr_misused(a->command, "unknown flag --%s; did you mean --%s?", flag, near);
}

/* A switch may stand alone: --json. A value may follow it: --json no. A value that looks like a flag
 * has to be given as --flag=value: more often it was forgotten. */
static int takes_next(const mr_option *o, const char *next)
{
    static const char *const words[] = {"yes", "no", "true", "false", "on", "off", NULL};
    if (!next || (!strncmp(next, "--", 2) && next[2])) return 0;
    if (!o || o->type != MR_OPT_BOOL) return 1;
    for (int i = 0; words[i]; i++)
        if (!strcmp(next, words[i])) return 1;
    return 0;
}

static int count_key(const mr_flag_pair *pairs, int count, const char *key)
{
    int found = 0;
    for (int i = 0; i < count; i++) found += !strcmp(pairs[i].key, key);
    return found;
}

static const char join_hint[] = "; `cat FILES… >ONE` makes one file of them, or a pipe: --data -";

/* `before`: how often this flag was given before. */
static int take_value(const mr_args *a, const mr_option *o, void *settings, const char *value, int before)
{
    mr_error err;
    if (before && !(o->flags & MR_OPT_MANY)) return usage_error(a, "--%s is given twice; give it once", o->key);
    if (!value && o->type == MR_OPT_BOOL) value = "yes";
    if (!value) return usage_error(a, "--%s needs a value", o->key);
    const int broken = (o->flags & MR_OPT_MANY) && (o->flags & MR_OPT_PATH) && strchr(value, '\n');
    if ((o->flags & MR_OPT_RANDOM) && !strcmp(value, "random")) return -1;
    if (broken)
        mr_fail(&err, MR_EINVAL, "%s: a path with a line break cannot be kept; rename the file, or use a link", o->key);
    else if (!(before ? mr_option_add : mr_option_parse)(o, settings, value, &err)) return -1;
    const int too_many = before && (o->flags & MR_OPT_PATH);
    fprintf(stderr, "minrnn %s: --%s%s\n", a->command, err.text, too_many && !broken ? join_hint : "");
    return MR_EXIT_FAILED;
}

/* A seed that is short enough to be typed again. */
static void draw_seed(mr_args *a, const mr_option *o)
{
    uint32_t drawn = (uint32_t)time(NULL) ^ (uint32_t)getpid();
    FILE *random = fopen("/dev/urandom", "rb");
    if (random && fread(&drawn, sizeof drawn, 1, random) != 1) drawn ^= 1;
    if (random) fclose(random);
    *(int64_t *)((char *)a->settings + o->offset) = a->random_seed = drawn;
}

static int take_flag(mr_args *a, char *flag, const char *next, int *used)
{
    const mr_option *const tables[] = {a->flags, NULL};
    char *equals = strchr(flag, '=');
    if (equals) *equals = 0;
    const mr_option *o = mr_option_find(a->flags, flag);
    if (!o && !a->open) return unknown_flag(a, flag, tables);
    *used = !equals && takes_next(o, next);
    const char *value = equals ? equals + 1 : *used ? next : NULL;
    if (a->pair_count == MR_PAIRS_MAX || a->set_count == MR_PAIRS_MAX)
        return mr_misused(a->command, "at most %d flags can be given, and --%.100s is one too many%s", MR_PAIRS_MAX,
                          flag, strcmp(flag, "data") ? "" : join_hint);
    if (!o) {
        a->pairs[a->pair_count++] = (mr_flag_pair){flag, value};
        return -1;
    }
    const int before = count_key(a->set, a->set_count, o->key);
    a->set[a->set_count++] = (mr_flag_pair){o->key, value};
    if ((o->flags & MR_OPT_RANDOM) && value && !strcmp(value, "random")) draw_seed(a, o);
    return take_value(a, o, a->settings, value, before);
}

static int take_pair(const mr_args *a, int index, const mr_option *const *tables, void *const *settings)
{
    const mr_flag_pair *pair = &a->pairs[index];
    const mr_option *all[8] = {a->flags};
    for (int i = 0; tables[i]; i++) {
        const mr_option *o = mr_option_find(tables[i], pair->key);
        if (o && !(o->flags & MR_OPT_DERIVED))
            return take_value(a, o, settings[i], pair->value, count_key(a->pairs, index, pair->key));
        all[i + 1] = tables[i];
    }
    return unknown_flag(a, pair->key, all);
}

int mr_args_take_pairs(const mr_args *a, const mr_option *const *tables, void *const *settings)
{
    int code = -1;
    for (int i = 0; code < 0 && i < a->pair_count; i++) code = take_pair(a, i, tables, settings);
    return code;
}

/* Names what is missing: "MODEL is missing", "MODEL and FILE are missing". */
static int missing_operands(const mr_args *a)
{
    const char *names = a->operands;
    for (int i = 0; i < a->count; i++) names += strcspn(names, " ") + 1;
    const int first = (int)strcspn(names, " ");
    if (!names[first]) return mr_misused(a->command, "%s is missing; see `minrnn %s --help`", names, a->command);
    return mr_misused(a->command, "%.*s and %s are missing; see `minrnn %s --help`", first, names, names + first + 1,
                      a->command);
}

int mr_args_parse(mr_args *a, int argc, char **argv)
{
    mr_options_default(a->flags, a->settings);
    a->random_seed = -1;
    for (int i = 1, plain = 0; i < argc; i++) {
        if (!plain && (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))) return help_at(a, argc, argv, i);
        if (!plain && !strcmp(argv[i], "--")) plain = 1;
        else if (!plain && !strncmp(argv[i], "--", 2)) {
            int used = 0, status = take_flag(a, argv[i] + 2, i + 1 < argc ? argv[i + 1] : NULL, &used);
            if (status >= 0) return status;
            i += used;
        } else if (!plain && argv[i][0] == '-' && argv[i][1]) return usage_error(a, "unknown flag %s", argv[i]);
        else if (a->count == a->max) return usage_error(a, "unexpected argument \"%s\"", argv[i]);
        else a->given[a->count++] = argv[i];
    }
    if (a->count < a->min) return missing_operands(a);
    if (a->random_seed >= 0 && !((const mr_common *)a->settings)->quiet)
        fprintf(stderr, "minrnn %s: --seed %lld was drawn; give it to get the same again\n", a->command,
                (long long)a->random_seed);
    return -1;
}

int mr_args_was_set(const mr_args *a, const char *key) { return count_key(a->set, a->set_count, key) > 0; }

const char *mr_args_value(const mr_args *a, const char *key, int index)
{
    for (int i = 0; i < a->set_count; i++)
        if (!strcmp(a->set[i].key, key) && !index--) return a->set[i].value;
    return NULL;
}

/* ---- the rest of what commands share ---- */

int mr_report(const char *command, const mr_error *err)
{
    fprintf(stderr, "minrnn %s: %s\n", command, err->text);
    return MR_EXIT_FAILED;
}

int mr_misused(const char *command, const char *format, ...)
{
    mr_error err;
    char sentence[sizeof err.text];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    mr_fail(&err, MR_EINVAL, "%s", sentence);
    fprintf(stderr, "minrnn%s%s: %s\n", command[0] ? " " : "", command, err.text);
    return MR_EXIT_USAGE;
}

int mr_unknown_name(const char *command, const char *kind, const char *name, const char *const *names)
{
    char all[1024] = "";
    const char *near = mr_name_nearest(names, name);
    if (near) return mr_misused(command, "unknown %s %.100s; did you mean %s?", kind, name, near);
    for (; *names; names++) {
        const size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", *names);
    }
    return mr_misused(command, "unknown %s %.100s; there are: %s", kind, name, all);
}

const char *const mr_dtypes[] = {"f32", "bf16", NULL};

void mr_print_notice(void *unused, const char *line)
{
    (void)unused;
    fprintf(stderr, "minrnn: %s\n", line);
}

int mr_open_context(const mr_common *common, mr_context **ctx, mr_error *err)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    options.device = common->device;
    options.threads = (int)common->threads;
    options.bf16 = common->dtype == 1;
    options.exact = !common->tf32;
    options.warn = common->quiet ? NULL : mr_print_notice;
    return mr_context_new(&options, ctx, err);
}

static mr_stop stop_signal;
static mr_requests save_requests;

static void on_stop(int number)
{
    stop_signal = number;
    if (number != SIGHUP) signal(number, SIG_DFL);
}

/* Ctrl-C often ends the reader of a pipe, too: then it was Ctrl-C. */
static void on_broken_pipe(int number)
{
    if (!stop_signal) stop_signal = number;
}

static void on_save_request(int number)
{
    (void)number;
    save_requests++;
}

mr_stop *mr_stop_flag(void) { return &stop_signal; }
mr_requests *mr_save_requests(void) { return &save_requests; }

void mr_catch_signals(void)
{
    struct sigaction stop = {.sa_handler = on_stop}, save = {.sa_handler = on_save_request, .sa_flags = SA_RESTART};
    struct sigaction hangup;
    sigemptyset(&stop.sa_mask);
    sigemptyset(&save.sa_mask);
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    if (!sigaction(SIGHUP, NULL, &hangup) && hangup.sa_handler != SIG_IGN) sigaction(SIGHUP, &stop, NULL);
    sigaction(SIGUSR1, &save, NULL);
    signal(SIGXFSZ, SIG_IGN);
}

static char *temporary;

static void on_end(int number)
{
    unlink(temporary);
    signal(number, SIG_DFL);
    raise(number);
}

int mr_tidy_on_signals(const char *path, mr_error *err)
{
    static const int deadly[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction end = {.sa_handler = on_end}, before;
    sigemptyset(&end.sa_mask);
    if (!(temporary = mr_replace_name(path))) return mr_no_memory(err, path);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        if (!sigaction(deadly[i], NULL, &before) && before.sa_handler != SIG_IGN) sigaction(deadly[i], &end, NULL);
    signal(SIGXFSZ, SIG_IGN);
    return 0;
}

void mr_catch_broken_pipe(void)
{
    struct sigaction broken = {.sa_handler = on_broken_pipe}, before;
    sigemptyset(&broken.sa_mask);
    if (!sigaction(SIGPIPE, NULL, &before) && before.sa_handler != SIG_IGN) sigaction(SIGPIPE, &broken, NULL);
}
