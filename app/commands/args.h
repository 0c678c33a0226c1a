/* The command line: flags from option tables, so that parsing, --help and error messages have one source. */
#ifndef MR_APP_COMMANDS_ARGS_H
#define MR_APP_COMMANDS_ARGS_H

#include "core/options.h"
#include "core/stop.h"
#include "minrnn_experimental.h"

#include <stdio.h>

enum { MR_ARGS_MAX = 64, MR_PAIRS_MAX = 128 };

typedef struct mr_flag_pair {
    const char *key, *value; /* value NULL: none was given */
} mr_flag_pair;

typedef struct mr_args {
    const char *command;    /* "train" */
    const char *usage;      /* what --help prints first: the form, a paragraph */
    const char *examples;   /* and last */
    const mr_option *flags; /* the command's own, in `settings` */
    void *settings;
    int open; /* 1: flags of no table are collected in pairs (recipe keys) */
    /* Help may be asked for about a topic: `--help TOPIC` or `OPERAND --help`; NULL: none. */
    void (*more_help)(FILE *to, const char *topic); /* printed between, or NULL */
    /* prints all of it instead, or NULL; returns the exit status */
    int (*help)(const struct mr_args *args, const char *topic);
    const char *operands; /* names of the positional arguments, for errors: "MODEL FILE"; NULL: none is needed */
    int min, max;         /* how many */
    /* results */
    const char *given[MR_ARGS_MAX];
    int count;
    mr_flag_pair pairs[MR_PAIRS_MAX];
    int pair_count;
    mr_flag_pair set[MR_PAIRS_MAX]; /* the command's own flags that were given */
    int set_count;
    int64_t random_seed; /* the one that --seed random drew; −1: none */
} mr_args;

/* Flags that hold everywhere: a command's settings begin with this struct and its table with MR_COMMON_FLAGS. */
typedef struct mr_common {
    char device[MR_TEXT_MAX];
    int64_t threads, seed;
    int dtype, tf32, quiet, json;
} mr_common;

extern const char *const mr_dtypes[];

#define MR_COMMON_FLAGS                                                                                                \
    {"device",                                                                                                         \
     MR_OPT_TEXT,                                                                                                      \
     offsetof(mr_common, device),                                                                                      \
     "auto",                                                                                                           \
     0,                                                                                                                \
     0,                                                                                                                \
     NULL,                                                                                                             \
     "auto, cpu, cuda[:i], ref (slow: the specification)",                                                             \
     0},                                                                                                               \
        {"threads",                                                                                                    \
         MR_OPT_INT,                                                                                                   \
         offsetof(mr_common, threads),                                                                                 \
         "0",                                                                                                          \
         0,                                                                                                            \
         1024,                                                                                                         \
         NULL,                                                                                                         \
         "CPU threads; 0: all that this process may use",                                                              \
         0},                                                                                                           \
        {"dtype",                                                                                                      \
         MR_OPT_CHOICE,                                                                                                \
         offsetof(mr_common, dtype),                                                                                   \
         "f32",                                                                                                        \
         0,                                                                                                            \
         0,                                                                                                            \
         mr_dtypes,                                                                                                    \
         "what matrix products are computed in",                                                                       \
         0},                                                                                                           \
        {"tf32", MR_OPT_BOOL, offsetof(mr_common, tf32), "yes", 0, 0, NULL, "GPU: f32 products may round to TF32", 0}, \
        {"seed",                                                                                                       \
         MR_OPT_INT,                                                                                                   \
         offsetof(mr_common, seed),                                                                                    \
         "1",                                                                                                          \
         0,                                                                                                            \
         9e15,                                                                                                         \
         NULL,                                                                                                         \
         "of random numbers; random: a new one",                                                                       \
         MR_OPT_RANDOM},                                                                                               \
        {"quiet", MR_OPT_BOOL, offsetof(mr_common, quiet), "no", 0, 0, NULL, "print results and errors only", 0},      \
    {                                                                                                                  \
        "json", MR_OPT_BOOL, offsetof(mr_common, json), "no", 0, 0, NULL, "print the result as JSON", 0                \
    }

/* Parses argv into args. Returns −1 to continue, otherwise the exit status (help was printed, or the usage was
 * wrong). */
int mr_args_parse(mr_args *args, int argc, char **argv);
int mr_args_was_set(const mr_args *args, const char *key);
/* The values of one of the command's own MR_OPT_MANY flags, in order; NULL after the last. Unlike lines of the field,
 * they may contain line breaks. */
const char *mr_args_value(const mr_args *args, const char *key, int index);

/* Puts the collected pairs into the settings of whichever table knows their key; tables is NULL-terminated, settings
 * has one entry for each table. A key may be given once, or, with MR_OPT_MANY, several times. Returns −1 to continue,
 * otherwise the exit status. */
int mr_args_take_pairs(const mr_args *args, const mr_option *const *tables, void *const *settings);

/* One row per flag: name, values, default, help. */
void mr_args_print_options(FILE *to, const mr_option *table, unsigned hidden);
/* The same with the values that the settings have instead of the defaults. */
void mr_args_print_values(FILE *to, const mr_option *table, const void *settings);
/* One of the rows; 0 when the table has no such key. */
int mr_args_print_option(FILE *to, const mr_option *table, const char *key);

/* Prints "minrnn COMMAND: sentence" on stderr and returns MR_EXIT_FAILED. */
int mr_report(const char *command, const mr_error *err);

/* The same for wrong usage: one printable line whatever arguments it repeats; returns MR_EXIT_USAGE. command "":
 * none yet. */
int mr_misused(const char *command, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Wrong usage: a name that is not in a NULL-terminated list. Suggests the nearest, or lists all; `kind` is "recipe". */
int mr_unknown_name(const char *command, const char *kind, const char *name, const char *const *names);

/* "minrnn: line" on stderr, as mr_context_options.warn. */
void mr_print_notice(void *unused, const char *line);

/* A context as the flags have it; warnings go to stderr unless --quiet. */
int mr_open_context(const mr_common *common, mr_context **ctx, mr_error *err);

/* Signals. Ctrl-C, SIGTERM and SIGHUP set *mr_stop_flag() to the signal's number. A second Ctrl-C or SIGTERM ends the
 * process at once; a second SIGHUP does not, because a terminal that closes may send several. SIGHUP stays ignored
 * where it was (nohup). SIGUSR1 adds one to *mr_save_requests(). A file that outgrows a limit (ulimit -f) is an error
 * of that file, and no signal. */
mr_stop *mr_stop_flag(void);
mr_requests *mr_save_requests(void);
void mr_catch_signals(void);
/* For commands that write one file and have nothing to save: from now on, a signal that ends the process removes the
 * temporary file of `path` first. */
int mr_tidy_on_signals(const char *path, mr_error *err);
/* For commands that have work to save: a reader of their output that goes away stops them as SIGTERM does. */
void mr_catch_broken_pipe(void);

#endif
