/* Moving the numbers of tensors, one tensor of theirs at a time. */
#include "core/mem.h"
#include "weights/transfer.h"

#include <stdio.h>
#include <string.h>

enum { SHOWN = 100 /* bytes of a name that an error message repeats */ };

/* ---- shapes ---- */

static void print_shape(char out[200], int ndim, const int64_t *shape)
{
    size_t at = 0;
    snprintf(out, 200, "no sizes");
    for (int i = 0; i < ndim && at < 180; i++)
        at += (size_t)snprintf(out + at, 200 - at, "%s%lld", i ? " × " : "", (long long)shape[i]);
}

static int same_shape(const mr_st_tensor *at, int ndim, const int64_t *shape)
{
    int same = at->ndim == ndim;
    for (int i = 0; same && i < ndim; i++) same = at->shape[i] == shape[i];
    return same;
}

/* A tensor of theirs, which is used from now on; NULL, with the failure set: it is missing. */
static const mr_foreign_tensor *find_theirs(mr_transfer *t, const char *name)
{
    if (t->status) return NULL;
    const mr_foreign_tensor *theirs = mr_foreign_find(t->from, name);
    if (!theirs) mr_transfer_fail(t, "has no tensor %.*s, which a %s has", SHOWN, name, t->layout);
    else t->used[theirs - t->from->tensors] = 1;
    return theirs;
}

static void check_shape(mr_transfer *t, const mr_foreign_tensor *theirs, int ndim, const int64_t *shape)
{
    char is[200], wanted[200];
    if (same_shape(theirs->at, ndim, shape)) return;
    print_shape(is, theirs->at->ndim, theirs->at->shape);
    print_shape(wanted, ndim, shape);
    const int turned = ndim == 2 && same_shape(theirs->at, 2, (int64_t[]){shape[1], shape[0]});
    mr_transfer_fail(t, "tensor %.*s is %s, not %s%s", SHOWN, theirs->at->name, is, wanted,
                     turned ? ": it is transposed" : "");
}

const int64_t *mr_sizes_of(mr_transfer *t, const char *name, int ndim)
{
    static const int64_t none[MR_ST_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    if (t->status) return none;
    const mr_foreign_tensor *theirs = mr_foreign_find(t->from, name);
    if (!theirs) mr_transfer_fail(t, "has no tensor %.*s, which a %s has", SHOWN, name, t->layout);
    else if (theirs->at->ndim != ndim)
        mr_transfer_fail(t, "tensor %.*s has %d sizes, not %d", SHOWN, name, theirs->at->ndim, ndim);
    else if (!mr_st_elements(theirs->at)) mr_transfer_fail(t, "tensor %.*s is empty", SHOWN, name);
    return !t->status && theirs ? theirs->at->shape : none;
}

/* The row of the net's table with this name; −1: there is none. */
static int find_ours(const mr_transfer *t, const char *name, mr_tensor *ours)
{
    for (int i = 0; t->net && i < mr_net_tensors(t->net); i++) {
        *ours = (mr_tensor)MR_TENSOR;
        if (!mr_net_tensor(t->net, i, ours, NULL) && !strcmp(ours->name, name)) return i;
    }
    return -1;
}

int mr_has_ours(const mr_transfer *t, const char *name)
{
    mr_tensor ours;
    return find_ours(t, name, &ours) >= 0;
}

int64_t mr_size_of(const mr_transfer *t, const char *name, int which)
{
    mr_tensor ours;
    return find_ours(t, name, &ours) >= 0 && which < ours.ndim ? ours.shape[which] : 0;
}

/* The same where it must be there; a net without it has other settings than the layout needs. */
static int need_ours(mr_transfer *t, const char *name, mr_tensor *ours)
{
    if (t->status) return 0;
    const int row = find_ours(t, name, ours);
    if (row < 0) mr_transfer_fail(t, "the model has no tensor %s, which a %s has", name, t->layout);
    else t->done[row] = 1;
    return row >= 0;
}

/* ---- numbers ---- */

static float *new_numbers(mr_transfer *t, size_t count)
{
    float *numbers = t->status ? NULL : mr_alloc(count + !count, sizeof *numbers);
    if (!t->status && !numbers) t->status = mr_no_memory(t->err, "a tensor");
    return numbers;
}

float *mr_take(mr_transfer *t, const char *name, int ndim, const int64_t *shape)
{
    const mr_foreign_tensor *theirs = find_theirs(t, name);
    if (theirs) check_shape(t, theirs, ndim, shape);
    mr_free(t->taken);
    t->taken = theirs && !t->status ? new_numbers(t, mr_st_elements(theirs->at)) : NULL;
    if (!t->status) t->status = mr_foreign_read(t->from, theirs, t->taken, t->err);
    return t->status ? NULL : t->taken;
}

void mr_ignore(mr_transfer *t, const char *name)
{
    const mr_foreign_tensor *theirs = mr_foreign_find(t->from, name);
    if (theirs) t->used[theirs - t->from->tensors] = 1;
}

void mr_put(mr_transfer *t, const char *name, const float *numbers, size_t count)
{
    mr_tensor ours;
    if (need_ours(t, name, &ours)) t->status = mr_net_put(t->net, MR_WEIGHTS, name, numbers, count, t->err);
}

/* The numbers of ours in new memory. */
static float *get_ours(mr_transfer *t, const mr_tensor *ours)
{
    float *numbers = new_numbers(t, ours->count);
    if (numbers) t->status = mr_net_get(t->net, MR_WEIGHTS, ours->name, numbers, ours->count, t->err);
    return numbers;
}

void mr_transfer_lend(mr_transfer *t, void *memory)
{
    if (t->lent_count == t->lent_room) {
        const int room = 2 * t->lent_room + 64;
        void **larger = mr_alloc((size_t)room, sizeof *larger);
        if (!larger) {
            mr_free(memory);
            t->status = mr_no_memory(t->err, "the tensors");
            return;
        }
        if (t->lent_count) memcpy(larger, t->lent, (size_t)t->lent_count * sizeof *larger);
        mr_free(t->lent);
        t->lent = larger;
        t->lent_room = room;
    }
    t->lent[t->lent_count++] = memory;
}

/* Gives a tensor to the file that is written, which borrows it until the end. */
static void give(mr_transfer *t, const char *name, int ndim, const int64_t *shape, float *numbers)
{
    mr_transfer_lend(t, numbers);
    if (!t->status && mr_st_add(t->to, name, MR_ST_F32, ndim, shape, numbers))
        mr_transfer_fail(t, "%s cannot be written", name);
}

/* ---- parts of ours ---- */

typedef struct window {
    mr_tensor ours;
    int64_t row, rows, column, columns, across; /* across: columns of the whole tensor */
} window;

static void look(mr_transfer *t, const mr_part *part, window *w)
{
    *w = (window){0};
    if (!need_ours(t, part->ours, &w->ours)) return;
    w->across = w->ours.shape[0] ? (int64_t)w->ours.count / w->ours.shape[0] : 0;
    w->row = part->row;
    w->column = part->column;
    w->rows = part->rows ? part->rows : w->ours.shape[0];
    w->columns = part->columns ? part->columns : w->across;
}

/* Theirs as rows of all parts: its shape. */
static int shape_of_parts(const window *w, int count, int ones, int64_t shape[MR_ST_DIMS])
{
    const int cut = w->columns != w->across; /* only matrices are cut */
    int ndim = w->ours.ndim;
    shape[0] = 0;
    for (int i = 0; i < count; i++) shape[0] += w[i].rows;
    for (int i = 1; i < ndim; i++) shape[i] = cut ? w->columns : w->ours.shape[i];
    for (int i = 0; i < ones; i++) shape[ndim++] = 1;
    return ndim;
}

static void bring(mr_transfer *t, const window *w, const float *from)
{
    float *numbers = new_numbers(t, w->ours.count);
    for (int64_t r = 0; numbers && r < w->rows; r++)
        memcpy(numbers + (w->row + r) * w->across + w->column, from + r * w->columns,
               (size_t)w->columns * sizeof *numbers);
    if (numbers) t->status = mr_net_put(t->net, MR_WEIGHTS, w->ours.name, numbers, w->ours.count, t->err);
    mr_free(numbers);
}

static void carry(mr_transfer *t, const window *w, float *to)
{
    float *numbers = get_ours(t, &w->ours);
    if (!t->status && w->across)
        for (int64_t i = 0; i < (int64_t)w->ours.count; i++) {
            const int64_t r = i / w->across - w->row, c = i % w->across - w->column;
            if (r >= 0 && r < w->rows && c >= 0 && c < w->columns) to[r * w->columns + c] = numbers[i];
            else if (numbers[i] != 0)
                mr_transfer_fail(t, "tensor %s has numbers where a %s has none", w->ours.name, t->layout);
        }
    mr_free(numbers);
}

void mr_move_parts(mr_transfer *t, const char *theirs, const mr_part *parts, int count, int ones)
{
    window w[4] = {{.row = 0}};
    int64_t shape[MR_ST_DIMS];
    for (int i = 0; i < count; i++) look(t, &parts[i], &w[i]);
    if (t->status) return;
    const int ndim = shape_of_parts(w, count, ones, shape);
    size_t total = 0;
    for (int i = 0; i < count; i++) total += (size_t)(w[i].rows * w[i].columns);
    float *numbers = t->from ? mr_take(t, theirs, ndim, shape) : new_numbers(t, total), *at = numbers;
    for (int i = 0; !t->status && i < count; at += w[i].rows * w[i].columns, i++) {
        if (t->from) bring(t, &w[i], at);
        else carry(t, &w[i], at);
    }
    if (t->from) return;
    if (t->status) mr_free(numbers);
    else give(t, theirs, ndim, shape, numbers);
}

void mr_move(mr_transfer *t, const char *theirs, const char *ours)
{
    mr_move_parts(t, theirs, &(mr_part){.ours = ours}, 1, 0);
}

/* ---- what theirs does not have ---- */

/* `value` everywhere (size 0), or an identity. */
typedef struct pattern {
    float value;
    int64_t row, column, size;
} pattern;

static float pattern_at(const pattern *p, int64_t row, int64_t column)
{
    if (!p->size) return p->value;
    const int64_t i = row - p->row;
    return i >= 0 && i < p->size && column - p->column == i ? 1 : 0;
}

static int holds(mr_transfer *t, const char *name, const pattern *p)
{
    mr_tensor ours;
    if (t->status || find_ours(t, name, &ours) < 0) return 0;
    float *numbers = get_ours(t, &ours);
    int same = !t->status;
    const int64_t across = ours.shape[0] ? (int64_t)ours.count / ours.shape[0] : 1;
    for (int64_t i = 0; same && i < (int64_t)ours.count; i++)
        same = numbers[i] == pattern_at(p, i / across, i % across);
    mr_free(numbers);
    return same;
}

static void fill(mr_transfer *t, const char *name, const pattern *p)
{
    mr_tensor ours;
    if (!need_ours(t, name, &ours)) return;
    if (!t->from) {
        if (!holds(t, name, p))
            mr_transfer_fail(t, "tensor %s has numbers that a %s has no place for", name, t->layout);
        return;
    }
    float *numbers = new_numbers(t, ours.count);
    const int64_t across = ours.shape[0] ? (int64_t)ours.count / ours.shape[0] : 1;
    for (int64_t i = 0; numbers && i < (int64_t)ours.count; i++) numbers[i] = pattern_at(p, i / across, i % across);
    if (numbers) t->status = mr_net_put(t->net, MR_WEIGHTS, name, numbers, ours.count, t->err);
    mr_free(numbers);
}

void mr_fill(mr_transfer *t, const char *ours, float value) { fill(t, ours, &(pattern){.value = value}); }

void mr_fill_eye(mr_transfer *t, const char *ours, int64_t row, int64_t column, int64_t size)
{
    fill(t, ours, &(pattern){.row = row, .column = column, .size = size});
}

int mr_is_eye(mr_transfer *t, const char *ours, int64_t row, int64_t column, int64_t size)
{
    return holds(t, ours, &(pattern){.row = row, .column = column, .size = size});
}

int mr_is_filled(mr_transfer *t, const char *ours, float value) { return holds(t, ours, &(pattern){.value = value}); }
