/* The cells on the caller's buffers: checks the arguments and calls the ops. */
#include "api/raw.h"

enum { GPU_ROW = 16 }; /* alignment that bf16 products on a GPU require */

/* The parts of the workspace: the op's own, then fp32 copies if the device needs them. The backward writes the gradient
 * of pre over the copy of pre. */
typedef struct layout {
    void *work;
    float *x, *dx, *pre, *h, *dh;
    size_t bytes;
} layout;

typedef struct sizes {
    size_t x, pre, h;
} sizes;

static mr_cell cell_of(const mr_cell_args *a)
{
    return (mr_cell){.kind = a->kind,
                     .candidate = a->candidate,
                     .scan = a->scan,
                     .normalize = a->normalize,
                     .transition = a->transition};
}

/* call: MR_RAW_ANY, or the one whose arrays these are. */
static mr_raw raw_of(const mr_cell_args *a, const mr_cell *cell, mr_raw_call call)
{
    const int backward = call == MR_RAW_BACKWARD;
    const uintptr_t all = (uintptr_t)a->x | (uintptr_t)a->h | (backward ? (uintptr_t)a->dh : 0);
    return (mr_raw){.cell = cell,
                    .known = call != MR_RAW_ANY,
                    .backward = backward,
                    .dx = a->dx != NULL,
                    .aligned = all % GPU_ROW == 0,
                    .B = a->B,
                    .T = a->T,
                    .D = a->W ? a->D : 0,
                    .H = a->H,
                    .bf16 = a->dtype == MR_BF16,
                    .stream = a->stream,
                    .work = a->workspace};
}

static sizes sizes_of(const mr_cell_args *a)
{
    const mr_cell cell = cell_of(a);
    const size_t tokens = (size_t)a->B * (size_t)a->T, H = (size_t)a->H;
    return (sizes){.x = a->W ? tokens * (size_t)a->D : 0,
                   .pre = a->W ? 0 : tokens * H * (size_t)mr_cell_gates(&cell),
                   .h = tokens * H};
}

static layout lay_out(const mr_raw_lease *lease, const mr_cell_args *a, mr_raw_call call, void *base)
{
    const mr_cell cell = cell_of(a);
    const mr_raw raw = raw_of(a, &cell, call);
    const sizes n = sizes_of(a);
    const int any = call == MR_RAW_ANY, backward = any || call == MR_RAW_BACKWARD;
    mr_arena arena = {.base = base};
    layout l = {.work = mr_arena_take(&arena, lease->dev->raw_work(lease->dev, &raw) + 1)};
    l.x = mr_raw_copy(lease, &arena, n.x);
    l.dx = backward && (any || a->dx) ? mr_raw_copy(lease, &arena, n.x) : NULL;
    l.pre = mr_raw_copy(lease, &arena, n.pre);
    l.h = mr_raw_copy(lease, &arena, n.h);
    l.dh = backward ? mr_raw_copy(lease, &arena, n.h) : NULL;
    l.bytes = arena.used;
    return l;
}

static size_t saved_bytes(mr_dev *dev, const mr_cell_args *a)
{
    const mr_cell cell = cell_of(a);
    const size_t bytes = a->W ? dev->minrnn_saved(dev, &cell, a->B, a->T, a->D, a->H) : 0;
    return (bytes + MR_ALIGN - 1) / MR_ALIGN * MR_ALIGN;
}

static int check_kind(const mr_cell_args *a, mr_error *err)
{
    if ((unsigned)a->kind > MR_MINLSTM || (unsigned)a->candidate > MR_TANH || (unsigned)a->scan > MR_SCAN_LOG ||
        (unsigned)a->transition > MR_TRANSITION_SIGNED)
        return mr_fail(err, MR_EINVAL, "kind %d, candidate %d, scan %d, transition %d: no such cell", (int)a->kind,
                       (int)a->candidate, (int)a->scan, (int)a->transition);
    if (a->scan == MR_SCAN_LOG && a->candidate != MR_POSITIVE)
        return mr_fail(err, MR_EINVAL,
                       "cell: scan = log needs candidate = positive (negative states have no logarithm)");
    if (a->scan == MR_SCAN_LOG && a->transition == MR_TRANSITION_SIGNED)
        return mr_fail(err, MR_EINVAL,
                       "cell: scan = log needs transition = positive (negative gates have no logarithm)");
    return 0;
}

static int take(mr_cell_args *a, const mr_cell_args *args, mr_error *err)
{
    int status = mr_sized_copy(a, sizeof *a, args, "mr_cell_args", err);
    if (!status) status = check_kind(a, err);
    if (status) return status;
    const mr_cell cell = cell_of(a);
    if (a->W && a->D < 1) return mr_fail(err, MR_EINVAL, "D = %d: must be 1 or more with W", a->D);
    return mr_raw_check_shape(a->B, a->T, a->W ? a->D : 0, a->H, mr_cell_gates(&cell), err);
}

/* The size of `saved`, or of the workspace of a call; 0: the arguments are refused. */
static size_t buffer_bytes(mr_context *ctx, const mr_cell_args *args, int saved, mr_raw_call call)
{
    mr_cell_args a;
    mr_raw_lease lease;
    if (take(&a, args, NULL) || mr_raw_lease_begin(&lease, ctx, a.dtype, a.stream, NULL)) return 0;
    const size_t bytes = saved ? saved_bytes(lease.dev, &a) : lay_out(&lease, &a, call, NULL).bytes;
    mr_raw_lease_end(&lease);
    return bytes;
}

size_t mr_cell_saved(mr_context *ctx, const mr_cell_args *args) { return buffer_bytes(ctx, args, 1, MR_RAW_ANY); }
size_t mr_cell_workspace(mr_context *ctx, const mr_cell_args *args) { return buffer_bytes(ctx, args, 0, MR_RAW_ANY); }

size_t mr_cell_forward_workspace(mr_context *ctx, const mr_cell_args *args)
{
    return buffer_bytes(ctx, args, 0, MR_RAW_FORWARD);
}

size_t mr_cell_backward_workspace(mr_context *ctx, const mr_cell_args *args)
{
    return buffer_bytes(ctx, args, 0, MR_RAW_BACKWARD);
}

static int check(const mr_raw_lease *lease, const mr_cell_args *a, mr_raw_call call, mr_error *err)
{
    const int bwd = call == MR_RAW_BACKWARD;
    const int W = a->W != NULL, bf16_products = W && lease->dev->act_size == sizeof(uint16_t);
    const mr_raw_array arrays[] = {
        {"pre", a->pre, lease->act, 0},
        {"x", a->x, bf16_products ? GPU_ROW : lease->act, W},
        {"W", a->W, lease->wide, 0},
        {"bias", a->bias, lease->wide, 0},
        {"h", a->h, lease->act, 1},
        {"h_in", a->h_in, lease->wide, 0},
        {"h_out", a->h_out, lease->wide, 0},
        {"h_init", a->h_init, lease->wide, 0},
        {"length", a->length, sizeof *a->length, 0},
        {"dh", a->dh, lease->act, bwd},
        {"dx", a->dx, lease->act, 0},
        {"dW", a->dW, lease->wide, bwd && W},
        {"dbias", a->dbias, lease->wide, bwd && W && a->bias},
        {"dpre", a->dpre, lease->act, bwd && !W},
        {"dh_out", a->dh_out, lease->wide, 0},
        {"dh_in", a->dh_in, lease->wide, 0},
        {"dh_init", a->dh_init, lease->wide, 0},
    };
    int status =
        mr_raw_check_buffer("workspace", a->workspace, a->workspace_size, lay_out(lease, a, call, NULL).bytes, err);
    if (!status && !W && !a->pre) status = mr_fail(err, MR_EINVAL, "pre and W are NULL: one of them is needed");
    if (!status && bwd && a->dh_init && !a->h_init) status = mr_fail(err, MR_EINVAL, "dh_init is set without h_init");
    if (!status) status = mr_raw_check_buffer("saved", a->saved, a->saved_size, saved_bytes(lease->dev, a), err);
    return status ? status : mr_raw_check_arrays(arrays, sizeof arrays / sizeof *arrays, err);
}

static void forward(const mr_raw_lease *lease, const mr_cell_args *a, const layout *l)
{
    const sizes n = sizes_of(a);
    mr_minrnn_fwd_args f = {.cell = cell_of(a), .B = a->B, .T = a->T, .D = a->D, .H = a->H};
    f.x = a->W ? mr_raw_in(lease, a->x, l->x, n.x) : NULL;
    f.W = a->W, f.b = a->bias, f.h_in = a->h_in, f.h_init = a->h_init, f.reset = a->reset, f.length = a->length;
    f.saved = a->W ? a->saved : (void *)mr_raw_in(lease, a->pre, l->pre, n.pre); /* the forward only reads it */
    f.h = mr_raw_out(lease, a->h, l->h), f.h_out = a->h_out, f.work = l->work;
    lease->dev->ops.minrnn_fwd(lease->dev, &f);
    mr_raw_return(lease, a->h, l->h, n.h);
}

/* The array in which the op replaces pre by its gradient. */
static void *gradient_of_pre(const mr_raw_lease *lease, const mr_cell_args *a, const layout *l, size_t n)
{
    if (lease->convert) return (void *)mr_raw_in(lease, a->pre, l->pre, n);
    if (a->dpre != a->pre) lease->dev->copy(lease->dev, a->dpre, a->pre, n * lease->act);
    return a->dpre;
}

static void backward(const mr_raw_lease *lease, const mr_cell_args *a, const layout *l)
{
    const sizes n = sizes_of(a);
    mr_minrnn_bwd_args g = {.cell = cell_of(a), .B = a->B, .T = a->T, .D = a->D, .H = a->H};
    g.x = a->W ? mr_raw_in(lease, a->x, l->x, n.x) : NULL;
    g.W = a->W, g.b = a->bias, g.h_in = a->h_in, g.h_init = a->h_init, g.reset = a->reset, g.length = a->length;
    g.saved = a->W ? a->saved : gradient_of_pre(lease, a, l, n.pre);
    g.h = mr_raw_in(lease, a->h, l->h, n.h), g.dh = mr_raw_in(lease, a->dh, l->dh, n.h), g.dh_out = a->dh_out;
    g.dx = mr_raw_out(lease, a->dx, l->dx), g.dW = a->dW, g.db = a->bias ? a->dbias : NULL, g.dh_in = a->dh_in,
    g.dh_init = a->dh_init;
    g.work = l->work, g.fresh = a->fresh;
    lease->dev->ops.minrnn_bwd(lease->dev, &g);
    if (a->W) mr_raw_return(lease, a->dx, l->dx, n.x);
    else mr_raw_return(lease, a->dpre, l->pre, n.pre);
}

static int run(mr_context *ctx, const mr_cell_args *args, mr_raw_call call, mr_error *err)
{
    mr_cell_args a;
    mr_raw_lease lease;
    int status = take(&a, args, err);
    if (!status && call == MR_RAW_STEP) status = mr_raw_check_one_token(a.T, err);
    if (!status) status = mr_raw_lease_begin(&lease, ctx, a.dtype, a.stream, err);
    if (status) return status;
    status = check(&lease, &a, call, err);
    if (!status) {
        const layout l = lay_out(&lease, &a, call, a.workspace);
        const mr_cell cell = cell_of(&a);
        const mr_raw raw = raw_of(&a, &cell, call);
        lease.dev->raw_begin(lease.dev, &raw);
        if (call == MR_RAW_BACKWARD) backward(&lease, &a, &l);
        else forward(&lease, &a, &l);
        status = lease.dev->raw_end(lease.dev, err);
    }
    mr_raw_lease_end(&lease);
    return status;
}

int mr_cell_forward(mr_context *ctx, const mr_cell_args *args, mr_error *err)
{
    return run(ctx, args, MR_RAW_FORWARD, err);
}

int mr_cell_backward(mr_context *ctx, const mr_cell_args *args, mr_error *err)
{
    return run(ctx, args, MR_RAW_BACKWARD, err);
}

int mr_cell_step(mr_context *ctx, const mr_cell_args *args, mr_error *err) { return run(ctx, args, MR_RAW_STEP, err); }
