/* The scan and the cells on the caller's buffers: arguments checked, ops called. */
#include "api/api.h"

#include <limits.h>

enum { ALIGN = 256 };

static size_t round_up(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }
static const mr_real *reals(const float *p) { return (const mr_real *)p; }
static const mr_act *acts(const float *p) { return (const mr_act *)p; }

static int check_shape(int B, int T, int H, int wide, mr_error *err)
{
    if (B < 1 || T < 1 || H < 1 || T > INT_MAX / B || H > INT_MAX / 2 / wide)
        return mr_fail(err, MR_EINVAL, "B = %d, T = %d, H = %d: each must be 1 or more, and B·T and all channels of a token ints", B, T, H);
    return 0;
}

static int check_workspace(const void *workspace, size_t size, size_t needed, mr_error *err)
{
    if (size < needed || !workspace) return mr_fail(err, MR_EINVAL, "workspace: %zu bytes where %zu are needed", workspace ? size : 0, needed);
    if ((uintptr_t)workspace % MR_ALIGN) return mr_fail(err, MR_EINVAL, "workspace: must be aligned to %d bytes", MR_ALIGN);
    return 0;
}

static int missing(const char *what, mr_error *err) { return mr_fail(err, MR_EINVAL, "%s is NULL", what); }

/* In a half-precision context activations are not floats, and these are. */
static int check_device(const mr_dev *dev, mr_error *err)
{
    if (dev->act_size == sizeof(float)) return 0;
    return mr_fail(err, MR_EINVAL, "scan and cells work in fp32: make the context without bf16");
}

/* ---- the scan ---- */

static size_t scan_workspace(mr_dev *dev, const mr_scan_args *a) { return round_up(dev->scan_work(dev, a->B, a->T, a->H) + 1); }

static int take_scan(mr_scan_args *a, const mr_scan_args *args, mr_error *err)
{
    int status = mr_sized_take(a, sizeof *a, args, "mr_scan_args", err);
    return status ? status : check_shape(a->B, a->T, a->H, 1, err);
}

size_t mr_scan_workspace(mr_context *ctx, const mr_scan_args *args)
{
    mr_scan_args a;
    if (take_scan(&a, args, NULL)) return 0;
    mr_dev *dev = mr_context_borrow(ctx);
    const size_t bytes = scan_workspace(dev, &a);
    mr_context_return(ctx, dev);
    return bytes;
}

static int scan_forward(mr_dev *dev, const mr_scan_args *a, mr_error *err)
{
    int status = check_device(dev, err);
    if (!status) status = check_workspace(a->workspace, a->workspace_size, scan_workspace(dev, a), err);
    if (!status && (!a->a || !a->b || !a->h)) status = missing(!a->a ? "a" : !a->b ? "b" : "h", err);
    if (status) return status;
    dev->ops.scan_fwd(dev, &(mr_scan_fwd_args){
        .B = a->B, .T = a->T, .H = a->H, .a = acts(a->a), .b = acts(a->b), .h_in = reals(a->h_in), .reset = a->reset,
        .length = a->length, .h = (mr_act *)a->h, .h_out = (mr_real *)a->h_out, .work = a->workspace});
    return 0;
}

static int scan_backward(mr_dev *dev, const mr_scan_args *a, mr_error *err)
{
    int status = check_device(dev, err);
    if (!status) status = check_workspace(a->workspace, a->workspace_size, scan_workspace(dev, a), err);
    if (!status && (!a->a || !a->h || !a->dh)) status = missing(!a->a ? "a" : !a->h ? "h" : "dh", err);
    if (!status && (!a->da || !a->db)) status = missing(!a->da ? "da" : "db", err);
    if (status) return status;
    dev->ops.scan_bwd(dev, &(mr_scan_bwd_args){
        .B = a->B, .T = a->T, .H = a->H, .a = acts(a->a), .h_in = reals(a->h_in), .reset = a->reset, .length = a->length,
        .h = acts(a->h), .dh = acts(a->dh), .dh_out = reals(a->dh_out), .da = (mr_act *)a->da, .db = (mr_act *)a->db,
        .dh_in = (mr_real *)a->dh_in, .work = a->workspace});
    return 0;
}

static int with_scan(mr_context *ctx, const mr_scan_args *args, int (*run)(mr_dev *, const mr_scan_args *, mr_error *), mr_error *err)
{
    mr_scan_args a;
    int status = take_scan(&a, args, err);
    if (status) return status;
    mr_dev *dev = mr_context_borrow(ctx);
    status = run(dev, &a, err);
    mr_context_return(ctx, dev);
    return status;
}

int mr_scan_forward(mr_context *ctx, const mr_scan_args *args, mr_error *err) { return with_scan(ctx, args, scan_forward, err); }
int mr_scan_backward(mr_context *ctx, const mr_scan_args *args, mr_error *err) { return with_scan(ctx, args, scan_backward, err); }

static int one_token(int T, mr_error *err) { return T == 1 ? 0 : mr_fail(err, MR_EINVAL, "T = %d: a step takes one token", T); }

int mr_scan_step(mr_context *ctx, const mr_scan_args *args, mr_error *err)
{
    mr_scan_args a;
    int status = take_scan(&a, args, err);
    if (!status) status = one_token(a.T, err);
    return status ? status : mr_scan_forward(ctx, args, err);
}

/* ---- the cells ---- */

static int check_cell(const mr_cell *c, mr_error *err)
{
    if ((unsigned)c->kind > MR_MINLSTM || (unsigned)c->candidate > MR_TANH || (unsigned)c->scan > MR_SCAN_LOG)
        return mr_fail(err, MR_EINVAL, "cell: kind %d, candidate %d, scan %d: no such cell", (int)c->kind, (int)c->candidate, (int)c->scan);
    if (c->scan == MR_SCAN_LOG && c->candidate != MR_POSITIVE)
        return mr_fail(err, MR_EINVAL, "cell: scan = log needs candidate = positive (logarithms of negative states do not exist)");
    return 0;
}

static int take_cell(mr_cell_args *a, const mr_cell_args *args, mr_error *err)
{
    int status = mr_sized_take(a, sizeof *a, args, "mr_cell_args", err);
    if (!status) status = check_cell(&a->cell, err);
    if (!status) status = check_shape(a->B, a->T, a->H, mr_cell_gates(&a->cell), err);
    if (!status && a->W && a->D < 1) status = mr_fail(err, MR_EINVAL, "D = %d: must be 1 or more with W", a->D);
    return status;
}

/* With W: what the forward keeps, then scratch. */
static size_t saved_bytes(mr_dev *dev, const mr_cell_args *a)
{
    return a->W ? round_up(dev->minrnn_saved(dev, &a->cell, a->B, a->T, a->D, a->H)) : 0;
}

static size_t cell_workspace(mr_dev *dev, const mr_cell_args *a)
{
    return saved_bytes(dev, a) + round_up(dev->scan_work(dev, a->B, a->T, a->H) + 1);
}

size_t mr_cell_workspace(mr_context *ctx, const mr_cell_args *args)
{
    mr_cell_args a;
    if (take_cell(&a, args, NULL)) return 0;
    mr_dev *dev = mr_context_borrow(ctx);
    const size_t bytes = cell_workspace(dev, &a);
    mr_context_return(ctx, dev);
    return bytes;
}

static int check_buffers(mr_dev *dev, const mr_cell_args *a, mr_error *err)
{
    int status = check_device(dev, err);
    if (!status) status = check_workspace(a->workspace, a->workspace_size, cell_workspace(dev, a), err);
    if (status) return status;
    if (a->W && (!a->x || !a->bias)) return missing(a->x ? "bias" : "x", err);
    if (!a->W && !a->pre) return missing("pre, and W too: one of them is needed", err);
    return a->h ? 0 : missing("h", err);
}

static int cell_forward(mr_dev *dev, const mr_cell_args *a, mr_error *err)
{
    int status = check_buffers(dev, a, err);
    if (status) return status;
    dev->ops.minrnn_fwd(dev, &(mr_minrnn_fwd_args){
        .cell = a->cell, .B = a->B, .T = a->T, .D = a->D, .H = a->H, .x = acts(a->x), .W = reals(a->W), .b = reals(a->bias),
        .h_in = reals(a->h_in), .h_init = reals(a->h_init), .reset = a->reset, .length = a->length,
        .saved = a->W ? a->workspace : (void *)a->pre, /* the forward only reads it */
        .h = (mr_act *)a->h, .h_out = (mr_real *)a->h_out, .work = (char *)a->workspace + saved_bytes(dev, a)});
    return 0;
}

static int cell_backward(mr_dev *dev, const mr_cell_args *a, mr_error *err)
{
    int status = check_buffers(dev, a, err);
    if (!status && !a->dh) status = missing("dh", err);
    if (!status && a->W && (!a->dx || !a->dW || !a->dbias)) status = missing(!a->dx ? "dx" : !a->dW ? "dW" : "dbias", err);
    if (!status && !a->W && !a->dpre) status = missing("dpre", err);
    if (status) return status;
    const size_t count = (size_t)a->B * (size_t)a->T * (size_t)a->H * (size_t)mr_cell_gates(&a->cell);
    if (!a->W && a->dpre != a->pre) dev->copy(dev, a->dpre, a->pre, count * sizeof *a->pre);
    dev->ops.minrnn_bwd(dev, &(mr_minrnn_bwd_args){
        .cell = a->cell, .B = a->B, .T = a->T, .D = a->D, .H = a->H, .x = acts(a->x), .W = reals(a->W), .b = reals(a->bias), .h_in = reals(a->h_in),
        .h_init = reals(a->h_init), .reset = a->reset, .length = a->length, .saved = a->W ? a->workspace : a->dpre,
        .h = acts(a->h), .dh = acts(a->dh), .dh_out = reals(a->dh_out), .dx = (mr_act *)a->dx, .dW = (mr_real *)a->dW,
        .db = (mr_real *)a->dbias, .dh_in = (mr_real *)a->dh_in, .dh_init = (mr_real *)a->dh_init,
        .work = (char *)a->workspace + saved_bytes(dev, a)});
    return 0;
}

static int with_cell(mr_context *ctx, const mr_cell_args *args, int (*run)(mr_dev *, const mr_cell_args *, mr_error *), mr_error *err)
{
    mr_cell_args a;
    int status = take_cell(&a, args, err);
    if (status) return status;
    mr_dev *dev = mr_context_borrow(ctx);
    status = run(dev, &a, err);
    mr_context_return(ctx, dev);
    return status;
}

int mr_cell_forward(mr_context *ctx, const mr_cell_args *args, mr_error *err) { return with_cell(ctx, args, cell_forward, err); }
int mr_cell_backward(mr_context *ctx, const mr_cell_args *args, mr_error *err) { return with_cell(ctx, args, cell_backward, err); }

int mr_cell_step(mr_context *ctx, const mr_cell_args *args, mr_error *err)
{
    mr_cell_args a;
    int status = take_cell(&a, args, err);
    if (!status) status = one_token(a.T, err);
    return status ? status : mr_cell_forward(ctx, args, err);
}
