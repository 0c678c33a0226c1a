/* The scan on the caller's buffers: arguments checked, ops called. */
#include "api/raw.h"

/* The workspace: the op's, then fp32 copies where the device needs them. The backward leaves its gradients in those
 * of a and dh. */
typedef struct layout {
    void *work;
    float *a, *b, *h; /* b: dh in the backward */
    size_t bytes;
} layout;

static mr_raw raw_of(const mr_scan_args *a)
{
    return (mr_raw){
        .B = a->B, .T = a->T, .H = a->H, .bf16 = a->dtype == MR_BF16, .stream = a->stream, .work = a->workspace};
}

static size_t elements(const mr_scan_args *a) { return (size_t)a->B * (size_t)a->T * (size_t)a->H; }

static layout lay_out(const mr_raw_turn *turn, const mr_scan_args *a, void *base)
{
    const mr_raw raw = raw_of(a);
    mr_arena arena = {.base = base};
    layout l = {.work = mr_arena_take(&arena, turn->dev->raw_work(turn->dev, &raw) + 1)};
    l.a = mr_raw_copy(turn, &arena, elements(a));
    l.b = mr_raw_copy(turn, &arena, elements(a));
    l.h = mr_raw_copy(turn, &arena, elements(a));
    l.bytes = arena.used;
    return l;
}

static int take(mr_scan_args *a, const mr_scan_args *args, mr_error *err)
{
    int status = mr_sized_take(a, sizeof *a, args, "mr_scan_args", err);
    return status ? status : mr_raw_check_shape(a->B, a->T, 0, a->H, 1, err);
}

size_t mr_scan_workspace(mr_context *ctx, const mr_scan_args *args)
{
    mr_scan_args a;
    mr_raw_turn turn;
    if (take(&a, args, NULL) || mr_raw_turn_begin(&turn, ctx, a.dtype, a.stream, NULL)) return 0;
    const size_t bytes = lay_out(&turn, &a, NULL).bytes;
    mr_raw_turn_end(&turn);
    return bytes;
}

static int check(const mr_raw_turn *turn, const mr_scan_args *a, int down, mr_error *err)
{
    const mr_raw_array arrays[] = {
        {"a", a->a, turn->act, 1},
        {"b", a->b, turn->act, !down},
        {"h", a->h, turn->act, 1},
        {"dh", a->dh, turn->act, down},
        {"da", a->da, turn->act, down},
        {"db", a->db, turn->act, down},
        {"h_in", a->h_in, turn->wide, 0},
        {"h_out", a->h_out, turn->wide, 0},
        {"dh_in", a->dh_in, turn->wide, 0},
        {"dh_out", a->dh_out, turn->wide, 0},
        {"length", a->length, sizeof *a->length, 0},
    };
    int status = mr_raw_check_room("workspace", a->workspace, a->workspace_size, lay_out(turn, a, NULL).bytes, err);
    return status ? status : mr_raw_check_arrays(arrays, sizeof arrays / sizeof *arrays, err);
}

static void forward(const mr_raw_turn *turn, const mr_scan_args *a, const layout *l)
{
    const size_t n = elements(a);
    mr_scan_fwd_args f = {.B = a->B, .T = a->T, .H = a->H, .h_in = a->h_in, .reset = a->reset, .length = a->length};
    f.a = mr_raw_in(turn, a->a, l->a, n), f.b = mr_raw_in(turn, a->b, l->b, n);
    f.h = mr_raw_out(turn, a->h, l->h), f.h_out = a->h_out, f.work = l->work;
    turn->dev->ops.scan_fwd(turn->dev, &f);
    mr_raw_give(turn, a->h, l->h, n);
}

static void backward(const mr_raw_turn *turn, const mr_scan_args *a, const layout *l)
{
    const size_t n = elements(a);
    mr_scan_bwd_args g = {.B = a->B, .T = a->T, .H = a->H, .h_in = a->h_in, .reset = a->reset, .length = a->length};
    g.a = mr_raw_in(turn, a->a, l->a, n), g.h = mr_raw_in(turn, a->h, l->h, n), g.dh = mr_raw_in(turn, a->dh, l->b, n);
    g.da = mr_raw_out(turn, a->da, l->a), g.db = mr_raw_out(turn, a->db, l->b);
    g.dh_out = a->dh_out, g.dh_in = a->dh_in, g.work = l->work;
    turn->dev->ops.scan_bwd(turn->dev, &g);
    mr_raw_give(turn, a->da, l->a, n);
    mr_raw_give(turn, a->db, l->b, n);
}

static int run(mr_context *ctx, const mr_scan_args *args, int down, int step, mr_error *err)
{
    mr_scan_args a;
    mr_raw_turn turn;
    int status = take(&a, args, err);
    if (!status && step) status = mr_raw_one_token(a.T, err);
    if (!status) status = mr_raw_turn_begin(&turn, ctx, a.dtype, a.stream, err);
    if (status) return status;
    status = check(&turn, &a, down, err);
    if (!status) {
        const layout l = lay_out(&turn, &a, a.workspace);
        const mr_raw raw = raw_of(&a);
        turn.dev->raw_begin(turn.dev, &raw);
        if (down) backward(&turn, &a, &l);
        else forward(&turn, &a, &l);
        status = turn.dev->raw_end(turn.dev, err);
    }
    mr_raw_turn_end(&turn);
    return status;
}

int mr_scan_forward(mr_context *ctx, const mr_scan_args *args, mr_error *err) { return run(ctx, args, 0, 0, err); }
int mr_scan_backward(mr_context *ctx, const mr_scan_args *args, mr_error *err) { return run(ctx, args, 1, 0, err); }
int mr_scan_step(mr_context *ctx, const mr_scan_args *args, mr_error *err) { return run(ctx, args, 0, 1, err); }
