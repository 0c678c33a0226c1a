/* The scan on the caller's buffers: checks the arguments and calls the ops. */
#include "api/raw.h"

/* The parts of the workspace: the op's own, then fp32 copies if the device needs them. The backward writes the
 * gradients da and db over the copies of a and dh. */
typedef struct layout {
    void *work;
    float *a, *b, *h; /* b holds dh in the backward */
    size_t bytes;
} layout;

static mr_raw raw_of(const mr_scan_args *a)
{
    return (mr_raw){
        .B = a->B, .T = a->T, .H = a->H, .bf16 = a->dtype == MR_BF16, .stream = a->stream, .work = a->workspace};
}

static size_t elements(const mr_scan_args *a) { return (size_t)a->B * (size_t)a->T * (size_t)a->H; }

static layout lay_out(const mr_raw_lease *lease, const mr_scan_args *a, void *base)
{
    const mr_raw raw = raw_of(a);
    mr_arena arena = {.base = base};
    layout l = {.work = mr_arena_take(&arena, lease->dev->raw_work(lease->dev, &raw) + 1)};
    l.a = mr_raw_copy(lease, &arena, elements(a));
    l.b = mr_raw_copy(lease, &arena, elements(a));
    l.h = mr_raw_copy(lease, &arena, elements(a));
    l.bytes = arena.used;
    return l;
}

static int take(mr_scan_args *a, const mr_scan_args *args, mr_error *err)
{
    int status = mr_sized_copy(a, sizeof *a, args, "mr_scan_args", err);
    return status ? status : mr_raw_check_shape(a->B, a->T, 0, a->H, 1, err);
}

size_t mr_scan_workspace(mr_context *ctx, const mr_scan_args *args)
{
    mr_scan_args a;
    mr_raw_lease lease;
    if (take(&a, args, NULL) || mr_raw_lease_begin(&lease, ctx, a.dtype, a.stream, NULL)) return 0;
    const size_t bytes = lay_out(&lease, &a, NULL).bytes;
    mr_raw_lease_end(&lease);
    return bytes;
}

static int check(const mr_raw_lease *lease, const mr_scan_args *a, mr_raw_call call, mr_error *err)
{
    const int bwd = call == MR_RAW_BACKWARD;
    const mr_raw_array arrays[] = {
        {"a", a->a, lease->act, 1},
        {"b", a->b, lease->act, !bwd},
        {"h", a->h, lease->act, 1},
        {"dh", a->dh, lease->act, bwd},
        {"da", a->da, lease->act, bwd},
        {"db", a->db, lease->act, bwd},
        {"h_in", a->h_in, lease->wide, 0},
        {"h_out", a->h_out, lease->wide, 0},
        {"dh_in", a->dh_in, lease->wide, 0},
        {"dh_out", a->dh_out, lease->wide, 0},
        {"length", a->length, sizeof *a->length, 0},
    };
    int status = mr_raw_check_buffer("workspace", a->workspace, a->workspace_size, lay_out(lease, a, NULL).bytes, err);
    return status ? status : mr_raw_check_arrays(arrays, sizeof arrays / sizeof *arrays, err);
}

static void forward(const mr_raw_lease *lease, const mr_scan_args *a, const layout *l)
{
    const size_t n = elements(a);
    mr_scan_fwd_args f = {.B = a->B, .T = a->T, .H = a->H, .h_in = a->h_in, .reset = a->reset, .length = a->length};
    f.a = mr_raw_in(lease, a->a, l->a, n), f.b = mr_raw_in(lease, a->b, l->b, n);
    f.h = mr_raw_out(lease, a->h, l->h), f.h_out = a->h_out, f.work = l->work;
    lease->dev->ops.scan_fwd(lease->dev, &f);
    mr_raw_return(lease, a->h, l->h, n);
}

static void backward(const mr_raw_lease *lease, const mr_scan_args *a, const layout *l)
{
    const size_t n = elements(a);
    mr_scan_bwd_args g = {.B = a->B, .T = a->T, .H = a->H, .h_in = a->h_in, .reset = a->reset, .length = a->length};
    g.a = mr_raw_in(lease, a->a, l->a, n), g.h = mr_raw_in(lease, a->h, l->h, n),
    g.dh = mr_raw_in(lease, a->dh, l->b, n);
    g.da = mr_raw_out(lease, a->da, l->a), g.db = mr_raw_out(lease, a->db, l->b);
    g.dh_out = a->dh_out, g.dh_in = a->dh_in, g.work = l->work;
    lease->dev->ops.scan_bwd(lease->dev, &g);
    mr_raw_return(lease, a->da, l->a, n);
    mr_raw_return(lease, a->db, l->b, n);
}

static int run(mr_context *ctx, const mr_scan_args *args, mr_raw_call call, mr_error *err)
{
    mr_scan_args a;
    mr_raw_lease lease;
    int status = take(&a, args, err);
    if (!status && call == MR_RAW_STEP) status = mr_raw_check_one_token(a.T, err);
    if (!status) status = mr_raw_lease_begin(&lease, ctx, a.dtype, a.stream, err);
    if (status) return status;
    status = check(&lease, &a, call, err);
    if (!status) {
        const layout l = lay_out(&lease, &a, a.workspace);
        const mr_raw raw = raw_of(&a);
        lease.dev->raw_begin(lease.dev, &raw);
        if (call == MR_RAW_BACKWARD) backward(&lease, &a, &l);
        else forward(&lease, &a, &l);
        status = lease.dev->raw_end(lease.dev, err);
    }
    mr_raw_lease_end(&lease);
    return status;
}

int mr_scan_forward(mr_context *ctx, const mr_scan_args *args, mr_error *err)
{
    return run(ctx, args, MR_RAW_FORWARD, err);
}

int mr_scan_backward(mr_context *ctx, const mr_scan_args *args, mr_error *err)
{
    return run(ctx, args, MR_RAW_BACKWARD, err);
}

int mr_scan_step(mr_context *ctx, const mr_scan_args *args, mr_error *err) { return run(ctx, args, MR_RAW_STEP, err); }
