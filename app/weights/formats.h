/* The layouts of other programs: one row each. A layout is known by its tensors' names, read into a net, written from
 * one, or some of these. */
#ifndef MR_APP_WEIGHTS_FORMATS_H
#define MR_APP_WEIGHTS_FORMATS_H

#include "weights/transfer.h"

typedef struct mr_format {
    const char *name;                             /* as in --from and --to */
    const char *about;                            /* for --help */
    const char *(*guess)(const mr_foreign *from); /* what the weights are, "a minGRU layer"; NULL: something else */
    void (*import)(mr_transfer *t);               /* NULL: it is written only */
    void (*export)(mr_transfer *t);               /* into a safetensors file; NULL: it is not */
    int (*write)(mr_net *net, const char *path, mr_error *err); /* into any other file; NULL: it is not */
} mr_format;

extern const mr_format mr_formats[]; /* ends with a row without a name */

const mr_format *mr_format_find(const char *name); /* or NULL */
/* The first that knows the weights, and what it says they are; NULL: none. what may be NULL. */
const mr_format *mr_format_guess(const mr_foreign *from, const char **what);

typedef struct mr_import_options {
    const char *from;            /* name of a format, or "auto" */
    const char *vocab;           /* as the key `vocab` has it, or NULL */
    const char *const *settings; /* keys that the weights do not tell: key, value, …, NULL; they win. Or NULL */
    char *assumed; /* MR_ASSUMED_ROOM bytes for the settings that nothing told, "heads = 1, …"; or NULL */
} mr_import_options;

/* A net from another program's weights. *format is set to the layout that was read. */
int mr_import(const mr_foreign *from, const mr_import_options *options, mr_context *ctx, mr_net **out,
              const mr_format **format, mr_error *err);
/* Writes a net in a layout that can be written, atomically. */
int mr_export(mr_net *net, const mr_format *format, const char *path, mr_error *err);
/* Refuses to write over anything but what mr_export wrote. */
int mr_export_check(const char *path, mr_error *err);

const char *mr_guess_lucidrains(const mr_foreign *from);
const char *mr_guess_borealis(const mr_foreign *from);
const char *mr_guess_mamba(const mr_foreign *from);
const char *mr_guess_torch(const mr_foreign *from);
void mr_import_lucidrains(mr_transfer *t);
void mr_import_borealis(mr_transfer *t);
void mr_import_mamba(mr_transfer *t);
void mr_import_torch(mr_transfer *t);
void mr_export_lucidrains(mr_transfer *t);
void mr_export_torch(mr_transfer *t);

#endif
