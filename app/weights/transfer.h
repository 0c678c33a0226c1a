/* Moving weights between a net and the tensors of another program. The same description of a layout serves both ways:
 * mr_move copies a tensor of theirs into one of ours when it imports, and ours into theirs when it exports. Numbers are
 * copied as they are.
 *
 * The first failure is kept in `status` and `err`, and everything after it does nothing: a layout is described without
 * a check after each line. */
#ifndef MR_APP_WEIGHTS_TRANSFER_H
#define MR_APP_WEIGHTS_TRANSFER_H

#include "core/strbuf.h"
#include "minrnn_experimental.h"
#include "weights/foreign.h"

enum { MR_KEYS_MAX = 64, MR_KEY_ROOM = 64, MR_ASSUMED_ROOM = 256 };

typedef struct mr_setting {
    char key[MR_KEY_ROOM];
    char *value;
} mr_setting;

typedef struct mr_transfer {
    int status;
    mr_error *err;
    const char *layout; /* what theirs is called in messages: "minLM" */
    mr_context *ctx;
    mr_net *net;         /* when importing: made by mr_transfer_create */
    unsigned char *done; /* of ours: moved or filled */
    /* importing */
    const mr_foreign *from;   /* NULL: this exports */
    unsigned char *used;      /* of theirs */
    const char *const *given; /* settings that the user gave: key, value, …, NULL; they win */
    const char *vocab;        /* as the key `vocab` has it, or NULL */
    mr_setting keys[MR_KEYS_MAX];
    int key_count;
    char assumed[MR_ASSUMED_ROOM]; /* what nothing told: "heads = 1, positions = rotary" */
    float *taken;                  /* by mr_take */
    /* exporting */
    mr_st_writer *to;
    void **lent; /* what the writer borrows */
    int lent_count, lent_room;
} mr_transfer;

/* A name made from a format; it lives until the end of the full expression that makes it. */
typedef struct mr_name {
    char text[160];
} mr_name;
mr_name mr_name_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

int mr_transfer_import(mr_transfer *t, const mr_foreign *from, mr_context *ctx, mr_error *err);
int mr_transfer_export(mr_transfer *t, mr_net *net, mr_error *err);
/* Checks that every tensor of ours was written, and of theirs used. */
void mr_transfer_finish(mr_transfer *t);
/* Frees everything, the net too when it was made here. */
void mr_transfer_free(mr_transfer *t);

/* Sets the failure, unless there is one. */
void mr_transfer_fail(mr_transfer *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Exporting: the memory is freed when the file is written. */
void mr_transfer_lend(mr_transfer *t, void *memory);

/* ---- settings ---- */

/* Importing: the value of a key of the net to be made. What the user gave wins. */
void mr_set(mr_transfer *t, const char *key, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same where nothing told the value: unless the user gave it, it is named among those that were assumed. value
 * NULL: the default of a new model. */
void mr_assume(mr_transfer *t, const char *key, const char *value);
/* The channels of the state as a multiple of dim where they are one, and in the same way those of the MLP. */
void mr_set_width(mr_transfer *t, int64_t width, int64_t dim);
void mr_set_mlp_width(mr_transfer *t, int64_t width, int64_t dim);
/* Makes the net. */
void mr_transfer_create(mr_transfer *t);

/* The value of a key of the net; "" where this minrnn has no such key. */
mr_name mr_setting_of(const mr_transfer *t, const char *key);
int64_t mr_whole_of(const mr_transfer *t, const char *key);
/* Exporting: fails where the key has another value than the layout needs. */
void mr_need(mr_transfer *t, const char *key, const char *value);
int mr_is_set(const mr_transfer *t, const char *key, const char *value);

/* ---- tensors ---- */

/* A tensor of theirs that must be there with `ndim` sizes; the sizes. Importing only. Never NULL. */
const int64_t *mr_sizes_of(mr_transfer *t, const char *theirs, int ndim);
/* Does the net have this tensor? */
int mr_has_ours(const mr_transfer *t, const char *ours);
/* One of the sizes of a tensor of ours; 0: there is no such tensor. */
int64_t mr_size_of(const mr_transfer *t, const char *ours, int which);

/* A part of ours: `rows` rows from `row`, `columns` columns from `column`; 0: all of them. Around it ours is 0. */
typedef struct mr_part {
    const char *ours;
    int64_t row, rows, column, columns;
} mr_part;

/* A tensor of the same shape. */
void mr_move(mr_transfer *t, const char *theirs, const char *ours);
/* Theirs is the rows of several of ours, one after another, and has `ones` more sizes of 1 at the end. */
void mr_move_parts(mr_transfer *t, const char *theirs, const mr_part *parts, int count, int ones);

/* What theirs does not have: ours is `value` everywhere, or an identity of `size` at row, column, and 0 around it. */
void mr_fill(mr_transfer *t, const char *ours, float value);
void mr_fill_eye(mr_transfer *t, const char *ours, int64_t row, int64_t column, int64_t size);
/* Exporting: does ours have just that? */
int mr_is_eye(mr_transfer *t, const char *ours, int64_t row, int64_t column, int64_t size);
int mr_is_filled(mr_transfer *t, const char *ours, float value);

/* Importing, for what is computed: a tensor of theirs with this shape (valid until the next take; NULL after a
 * failure), one of theirs that means nothing here, and the numbers of ours. */
float *mr_take(mr_transfer *t, const char *theirs, int ndim, const int64_t *shape);
void mr_ignore(mr_transfer *t, const char *theirs);
void mr_put(mr_transfer *t, const char *ours, const float *numbers, size_t count);

#endif
