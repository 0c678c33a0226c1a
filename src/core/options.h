/* Options: one table row describes one key of a recipe, which is also a command-line flag and an entry of a model
 * file's metadata. All code that reads, prints, explains or compares settings loops over such tables. */
#ifndef MR_CORE_OPTIONS_H
#define MR_CORE_OPTIONS_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

#define MR_TEXT_MAX 1024 /* bytes of an MR_OPT_TEXT field, terminator included */

typedef enum mr_option_type {
    MR_OPT_INT,    /* int64_t */
    MR_OPT_REAL,   /* double */
    MR_OPT_BOOL,   /* int; yes, no */
    MR_OPT_CHOICE, /* int, or an enum of its size: index into choices */
    MR_OPT_PAIR,   /* double[2]; "0.9,0.99" */
    MR_OPT_TEXT,   /* char[MR_TEXT_MAX] */
} mr_option_type;

enum {
    MR_OPT_DERIVED = 1,    /* set by the task, not by the user: in model files, not in recipes or flags */
    MR_OPT_MAY_CHANGE = 2, /* a resumed run may use another value */
    MR_OPT_PATH = 4,       /* a path on this machine: never written into a model file */
    MR_OPT_SPARSE = 8,     /* written into a model file only when it differs from the default */
    MR_OPT_MANY = 16,      /* TEXT that may be given several times; the field holds the values, a line each */
    MR_OPT_RANDOM = 32     /* INT; the command line takes `random`, which draws a value */
};

typedef struct mr_option {
    const char *key; /* as in a recipe, "conv-place" */
    mr_option_type type;
    size_t offset;              /* of the field in its struct */
    const char *fallback;       /* the default, as text */
    double min, max;            /* inclusive; for INT, REAL and PAIR */
    const char *const *choices; /* NULL-terminated, for CHOICE */
    const char *help;
    unsigned flags;
} mr_option; /* a table ends with a row whose key is NULL */

/* Reads a finite decimal number, the same in every locale. Returns 0 when the text is not one. */
int mr_real_read(const char *text, double *value);

/* Sets every field of `settings` to its default. */
void mr_options_default(const mr_option *table, void *settings);

const mr_option *mr_option_find(const mr_option *table, const char *key);

/* Parses text into the row's field. The error message names the key, the value and what is allowed. */
int mr_option_parse(const mr_option *option, void *settings, const char *text, mr_error *err);

/* Adds a value to an MR_OPT_MANY field that has one already. */
int mr_option_add(const mr_option *option, void *settings, const char *text, mr_error *err);

/* The field's value as text that parses back to the same value (reals: the shortest such text). Returns `out`. */
char *mr_option_print(const mr_option *option, const void *settings, char out[MR_TEXT_MAX]);

/* The key in the tables (NULL-terminated list of tables) that a wrong one was probably meant as: what other programs
 * call it, or the nearest in spelling. NULL: none is near. */
const char *mr_option_nearest(const mr_option *const *tables, const char *key);

/* Of a NULL-terminated list of names, the nearest in spelling; NULL: none is near. */
const char *mr_name_nearest(const char *const *names, const char *name);

#endif
