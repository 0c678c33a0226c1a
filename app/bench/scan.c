/* The recurrent ops: gates and scan alone (no projection, D = 0), and a whole layer. */
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

typedef struct recurrence {
    mr_dev *dev;
    mr_minrnn_fwd_args forward;
    mr_minrnn_bwd_args backward;
    void *blocks[16];
    int count, failed;
} recurrence;

static void run_forward(void *arg)
{
    recurrence *r = arg;
    r->dev->ops.minrnn_fwd(r->dev, &r->forward);
}
static void run_backward(void *arg)
{
    recurrence *r = arg;
    r->dev->ops.minrnn_bwd(r->dev, &r->backward);
}

static void run_both(void *arg)
{
    run_forward(arg);
    run_backward(arg);
}

/* Remembers a block that has to be freed. */
static void *keep(recurrence *r, void *block)
{
    if (block) r->blocks[r->count++] = block;
    else r->failed = 1;
    return block;
}

static int open_recurrence(recurrence *r, mr_dev *dev, mr_cell cell, int B, int T, int D, int H, mr_error *err)
{
    *r = (recurrence){.dev = dev};
    size_t N = (size_t)B * T, G = (size_t)mr_cell_gates(&cell) * H;
    if (!D) {
        mr_act *pre = keep(r, mr_bench_acts(dev, dev->minrnn_saved(dev, &cell, B, T, 0, H) / dev->act_size, 1));
        mr_act *state = keep(r, mr_bench_acts(dev, N * H, 0)), *dstate = keep(r, mr_bench_acts(dev, N * H, 1));
        r->forward = (mr_minrnn_fwd_args){.cell = cell, .B = B, .T = T, .H = H, .saved = pre, .h = state};
        r->backward =
            (mr_minrnn_bwd_args){.cell = cell, .B = B, .T = T, .H = H, .saved = pre, .h = state, .dh = dstate};
        return r->failed ? mr_no_memory(err, "a recurrent layer") : 0;
    }
    mr_act *x = keep(r, mr_bench_acts(dev, N * D, 1)), *h = keep(r, mr_bench_acts(dev, N * H, 0));
    mr_act *dx = keep(r, mr_bench_acts(dev, N * D, 0)), *dh = keep(r, mr_bench_acts(dev, N * H, 1));
    mr_real *W = keep(r, mr_bench_reals(dev, G * D, 0.1)), *bias = keep(r, mr_bench_reals(dev, G, 1));
    mr_real *dW = keep(r, mr_bench_reals(dev, G * D, 0)), *db = keep(r, mr_bench_reals(dev, G, 0));
    void *saved = keep(r, dev->alloc(dev, dev->minrnn_saved(dev, &cell, B, T, D, H)));
    r->forward = (mr_minrnn_fwd_args){
        .cell = cell, .B = B, .T = T, .D = D, .H = H, .x = x, .W = W, .b = bias, .saved = saved, .h = h};
    r->backward = (mr_minrnn_bwd_args){.cell = cell,
                                       .B = B,
                                       .T = T,
                                       .D = D,
                                       .H = H,
                                       .x = x,
                                       .W = W,
                                       .b = bias,
                                       .saved = saved,
                                       .h = h,
                                       .dh = dh,
                                       .dx = dx,
                                       .dW = dW,
                                       .db = db};
    return r->failed ? mr_no_memory(err, "a recurrent layer") : 0;
}

static void close_recurrence(recurrence *r)
{
    for (int i = 0; i < r->count; i++) r->dev->release(r->dev, r->blocks[i]);
}

typedef enum part { FORWARD, BACKWARD, BOTH } part;

/* Bytes: x, h and what is kept, written by the forward and read by the backward; the backward's own dh and dx. */
static void measure(mr_bench *b, recurrence *r, part which, const char *bench)
{
    static const char *const names[] = {"fwd", "bwd", "fwd+bwd"};
    static void (*const runs[])(void *) = {run_forward, run_backward, run_both};
    const mr_minrnn_fwd_args *a = &r->forward;
    double N = (double)a->B * a->T, act = (double)b->dev->act_size, gates = mr_cell_gates(&a->cell);
    double saved = (double)b->dev->minrnn_saved(b->dev, &a->cell, a->B, a->T, a->D, a->H);
    double again = a->D ? 0 : saved; /* the backward alone writes its gradient over what it read */
    double moved = N * (a->D + a->H) * act + saved, product = 2 * N * gates * a->H * a->D, scan = 2 * N * a->H;
    double forwards = which != BACKWARD, backwards = which != FORWARD;
    mr_bench_job job = {.bench = bench,
                        .run = runs[which],
                        .before = which == BACKWARD ? run_forward : NULL,
                        .arg = r,
                        .tokens = N,
                        .bytes = forwards * moved + backwards * (moved + again + N * (a->D + a->H) * act),
                        .flops = forwards * (product + scan) + backwards * (2 * product + 2 * scan)};
    snprintf(job.name, sizeof job.name, "%s %s B=%d T=%d %d->%d", a->cell.kind == MR_MINGRU ? "mingru" : "minlstm",
             names[which], a->B, a->T, a->D, a->H);
    mr_bench_measure(b, &job);
}

static const mr_cell cells[] = {{.kind = MR_MINGRU, .candidate = MR_POSITIVE},
                                {.kind = MR_MINLSTM, .candidate = MR_POSITIVE, .normalize = 1}};

static int bench_cells(mr_bench *b, const char *bench, int B, int T, int D, mr_error *err)
{
    int status = 0;
    for (int i = 0; i < 2 && status == 0; i++) {
        recurrence r;
        status = open_recurrence(&r, b->dev, cells[i], B, T, D, 384, err);
        for (int which = FORWARD; which <= BOTH && status == 0; which++) measure(b, &r, (part)which, bench);
        close_recurrence(&r);
    }
    return status;
}

int mr_bench_scan(mr_bench *b, mr_error *err)
{
    int gpu = !strcmp(b->dev->kind, "cuda");
    int status = bench_cells(b, "scan", b->quick ? 16 : 64, 512, 0, err);
    if (!status && !b->quick && gpu) status = bench_cells(b, "scan", 64, 4096, 0, err);
    if (!status && !b->quick) status = bench_cells(b, "scan", 1, 65536, 0, err);
    return status;
}

int mr_bench_layer(mr_bench *b, mr_error *err)
{
    int status = bench_cells(b, "layer", b->quick ? 16 : 64, 512, 64, err);
    return status || b->quick ? status : bench_cells(b, "layer", 8, 512, 64, err); /* its forward is a prefill */
}
