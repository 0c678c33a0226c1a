/* Cases of ops without a time axis: the shapes, options and aliased buffers that each of them allows. */
#include "ops/check/makers.h"

#include <math.h>

void mr_case_embed_fwd(mr_case *c)
{
    mr_embed_fwd_args *a = &c->args.embed_fwd;
    a->N = mr_case_rows(c) * (1 + mr_case_below(c, 4));
    a->D = mr_case_width(c);
    a->vocab = 1 + mr_case_below(c, 70);
    c->elements = (size_t)a->N * a->D;
    mr_case_say(c, "N=%d D=%d vocab=%d", a->N, a->D, a->vocab);
    mr_case_add(c, MR_FIELD(embed_fwd, ids), INT, IN, (size_t)a->N, MR_FILL_BELOW, a->vocab);
    mr_case_add(c, MR_FIELD(embed_fwd, table), REAL, IN, (size_t)a->vocab * a->D, NORMAL, 1);
    mr_case_add(c, MR_FIELD(embed_fwd, y), ACT, OUT, c->elements, EMPTY, 0);
}

void mr_case_embed_bwd(mr_case *c)
{
    mr_embed_bwd_args *a = &c->args.embed_bwd;
    a->N = mr_case_rows(c) * (1 + mr_case_below(c, 4));
    a->D = mr_case_width(c);
    a->vocab = 1 + mr_case_below(c, 70);
    int used = a->vocab;
    if (!c->speed && mr_case_chance(c, 4)) { /* a large vocabulary, all of it or a few tokens again and again */
        a->vocab = 4096 + mr_case_below(c, 2000);
        a->D = 1 + mr_case_below(c, 12);
        a->N = mr_case_chance(c, 50) ? 3000 + mr_case_below(c, 2000) : a->N;
        used = a->N < 3000 ? a->vocab : 1 + mr_case_below(c, 4);
    }
    c->elements = (size_t)a->N * a->D;
    mr_case_say(c, "N=%d D=%d vocab=%d", a->N, a->D, a->vocab);
    mr_case_add(c, MR_FIELD(embed_bwd, ids), INT, IN, (size_t)a->N, MR_FILL_BELOW, used);
    mr_case_add(c, MR_FIELD(embed_bwd, dy), ACT, IN, c->elements, NORMAL, 1);
    mr_case_add(c, MR_FIELD(embed_bwd, dtable), REAL, ADD, (size_t)a->vocab * a->D, NORMAL, 1);
}

/* M, N, K of a matrix product: one of them sweeps over all widths; sometimes they exceed the block
 * size of a blocked product. */
static void draw_product(mr_case *c, int *M, int *N, int *K)
{
    *M = mr_case_rows(c);
    *N = mr_case_width(c);
    *K = mr_case_other_width(c);
    if (mr_case_chance(c, 50)) {
        int swap = *N;
        *N = *K;
        *K = swap;
    }
    if (!c->speed && mr_case_chance(c, 8)) {
        static const int large[][3] = {{3, 20, 1700}, {5, 1100, 33}, {2000, 9, 17}, {260, 150, 130}, {70, 65, 600}};
        const int *shape = large[mr_case_below(c, 5)];
        *M = shape[0] + mr_case_below(c, 9);
        *N = shape[1] + mr_case_below(c, 9);
        *K = shape[2] + mr_case_below(c, 9);
    }
    c->elements = (size_t)*M * *N;
    mr_case_say(c, "M=%d N=%d K=%d", *M, *N, *K);
}

/* Sometimes rows lie further apart than they are wide: then what lies between must not change. */
static int draw_row(mr_case *c, int width)
{
    if (c->speed || !mr_case_chance(c, 20)) return 0;
    const int row = width + mr_case_below(c, 20);
    mr_case_say(c, " row=%d", row);
    return row;
}

void mr_case_linear_fwd(mr_case *c)
{
    mr_linear_fwd_args *a = &c->args.linear_fwd;
    draw_product(c, &a->M, &a->N, &a->K);
    size_t M = (size_t)a->M, N = (size_t)a->N, K = (size_t)a->K;
    mr_case_buffer *x = mr_case_add(c, MR_FIELD(linear_fwd, x), ACT, IN, M * K, NORMAL, 1);
    mr_case_add(c, MR_FIELD(linear_fwd, W), REAL, IN, N * K, NORMAL, 1 / sqrt((double)K));
    int saturated = mr_case_chance(c, 15);
    if (mr_case_chance(c, 70))
        mr_case_add(c, MR_FIELD(linear_fwd, b), REAL, IN, N, saturated ? MR_FILL_SATURATED : NORMAL,
                    saturated ? 100 : 1);
    a->row = draw_row(c, a->N);
    a->gelu = !a->row && mr_case_chance(c, 50);
    if (a->gelu) mr_case_say(c, " gelu");
    const int pre = !a->row && mr_case_chance(c, a->gelu ? 70 : 20);
    if (pre) mr_case_add(c, MR_FIELD(linear_fwd, pre), ACT, OUT, M * N, EMPTY, 0);
    mr_case_add_dropout(c, &a->drop, offsetof(mr_linear_fwd_args, drop), a->row ? 0 : 30);
    if (a->drop.p == 0 && mr_case_chance(c, 10)) { /* a NaN must show up, and only in its own row */
        x->plant = (size_t)mr_case_below(c, (int)(M * K));
        c->planted = 1;
        mr_case_say(c, " NaN in x");
    }
    int residual = a->row ? 0 : mr_case_below(c, 3);
    if (residual == 1) mr_case_add(c, MR_FIELD(linear_fwd, residual), ACT, IN, M * N, NORMAL, 1);
    const int keeps = residual == 2 || a->row;
    mr_case_buffer *y = mr_case_add(c, MR_FIELD(linear_fwd, y), ACT, keeps ? ADD : OUT, M * mr_row_step(a->row, a->N),
                                    keeps ? NORMAL : EMPTY, 1);
    if (residual == 2) y->alias = offsetof(mr_linear_fwd_args, residual);
    mr_case_say(c, "%s", residual == 2 ? " residual=y" : residual ? " residual" : "");
}

void mr_case_linear_q_fwd(mr_case *c)
{
    mr_linear_q_fwd_args *a = &c->args.linear_q_fwd;
    draw_product(c, &a->M, &a->N, &a->K);
    if (!c->speed && mr_case_chance(c, 2)) { /* sums that exceed 32 bits */
        a->M = a->N = 1 + mr_case_below(c, 3);
        a->K = 66000 + mr_case_below(c, 5000);
        mr_case_say(c, " but M=N=%d K=%d", a->M, a->K);
    }
    size_t M = (size_t)a->M, N = (size_t)a->N, K = (size_t)a->K;
    /* −1, 0 and 1 round to 8 bits without error, so such cases are exact. The others see the rounding; rows of W then
     * have norm 0.1, so that the tolerance is six standard deviations of it. */
    int sharp = mr_case_chance(c, 70);
    double unit = 1 / (73.3 * sqrt((double)K));
    if (sharp) c->tolerance = 5e-6;
    mr_case_say(c, "%s", sharp ? " sharp" : "");
    mr_case_buffer *x = mr_case_add(c, MR_FIELD(linear_q_fwd, x), ACT, IN, M * K, sharp ? MR_FILL_SIGNED : NORMAL, 1);
    mr_case_add(c, MR_FIELD(linear_q_fwd, Wq), BYTE, IN, N * K, MR_FILL_SIGNED, 127);
    mr_case_add(c, MR_FIELD(linear_q_fwd, scale), REAL, IN, N, sharp ? NORMAL : MR_FILL_CONSTANT,
                sharp ? unit : 0.1 * unit);
    if (mr_case_chance(c, 70)) mr_case_add(c, MR_FIELD(linear_q_fwd, b), REAL, IN, N, NORMAL, 1);
    a->gelu = mr_case_chance(c, 50);
    if (a->gelu) mr_case_say(c, " gelu");
    if (mr_case_chance(c, 10)) { /* a NaN must show up, and only in its own row */
        x->plant = (size_t)mr_case_below(c, (int)(M * K));
        c->planted = 1;
        mr_case_say(c, " NaN in x");
    }
    int residual = mr_case_below(c, 3);
    if (residual == 1) mr_case_add(c, MR_FIELD(linear_q_fwd, residual), ACT, IN, M * N, NORMAL, 1);
    mr_case_buffer *y = mr_case_add(c, MR_FIELD(linear_q_fwd, y), ACT, residual == 2 ? ADD : OUT, M * N,
                                    residual == 2 ? NORMAL : EMPTY, 1);
    if (residual == 2) y->alias = offsetof(mr_linear_q_fwd_args, residual);
    mr_case_say(c, "%s", residual == 2 ? " residual=y" : residual ? " residual" : "");
}

void mr_case_linear_bwd_x(mr_case *c)
{
    mr_linear_bwd_x_args *a = &c->args.linear_bwd_x;
    draw_product(c, &a->M, &a->N, &a->K);
    size_t M = (size_t)a->M, N = (size_t)a->N, K = (size_t)a->K;
    a->row = draw_row(c, a->N);
    mr_case_add(c, MR_FIELD(linear_bwd_x, dy), ACT, IN, M * mr_row_step(a->row, a->N), NORMAL, 1);
    mr_case_add(c, MR_FIELD(linear_bwd_x, W), REAL, IN, N * K, NORMAL, 1 / sqrt((double)N));
    if (mr_case_chance(c, 50)) {
        static const double scales[] = {1, 10, 1000};
        mr_case_add(c, MR_FIELD(linear_bwd_x, pre), ACT, IN, M * K, NORMAL, scales[mr_case_below(c, 3)]);
        mr_case_say(c, " pre");
    }
    a->accumulate = mr_case_chance(c, 50);
    if (a->accumulate) mr_case_say(c, " accumulate");
    mr_case_add(c, MR_FIELD(linear_bwd_x, dx), ACT, a->accumulate ? ADD : OUT, M * K, a->accumulate ? NORMAL : EMPTY,
                1);
}

void mr_case_linear_bwd_w(mr_case *c)
{
    mr_linear_bwd_w_args *a = &c->args.linear_bwd_w;
    draw_product(c, &a->M, &a->N, &a->K);
    size_t M = (size_t)a->M, N = (size_t)a->N, K = (size_t)a->K;
    a->row = draw_row(c, a->N);
    mr_case_add(c, MR_FIELD(linear_bwd_w, dy), ACT, IN, M * mr_row_step(a->row, a->N), NORMAL, 1);
    mr_case_add(c, MR_FIELD(linear_bwd_w, x), ACT, IN, M * K, NORMAL, 1);
    mr_case_add(c, MR_FIELD(linear_bwd_w, dW), REAL, ADD, N * K, NORMAL, 1);
    if (mr_case_chance(c, 70)) mr_case_add(c, MR_FIELD(linear_bwd_w, db), REAL, ADD, N, NORMAL, 1);
}

void mr_case_dropout_bwd(mr_case *c)
{
    mr_dropout_bwd_args *a = &c->args.dropout_bwd;
    a->n = c->elements = (size_t)mr_case_rows(c) * (size_t)mr_case_width(c);
    mr_case_say(c, "n=%zu", a->n);
    mr_case_add_dropout(c, &a->drop, offsetof(mr_dropout_bwd_args, drop), 85);
    int alias = mr_case_chance(c, 40);
    mr_case_buffer *dx =
        mr_case_add(c, MR_FIELD(dropout_bwd, dx), ACT, alias ? ADD : OUT, a->n, alias ? NORMAL : EMPTY, 1);
    if (alias) dx->alias = offsetof(mr_dropout_bwd_args, dy);
    else mr_case_add(c, MR_FIELD(dropout_bwd, dy), ACT, IN, a->n, NORMAL, 1);
    mr_case_say(c, "%s", alias ? " dx=dy" : "");
}

static mr_norm draw_norm(mr_case *c, int *M, int *D, double *eps)
{
    static const char *const names[] = {[MR_NORM_RMS] = "rms", [MR_NORM_LAYER] = "layer", [MR_NORM_NONE] = "none"};
    mr_norm kind = (mr_norm)mr_case_below(c, 3);
    static const int wide[] = {256, 384, 512, 767, 768, 1024, 1028, 1100, 2048, 2050, 3072, 4096};
    *M = mr_case_rows(c);
    *D = mr_case_width(c);
    /* widths of real models, for which a backend may have kernels of their own */
    if (!c->speed && mr_case_chance(c, 25)) {
        *D = wide[mr_case_below(c, sizeof wide / sizeof *wide)];
        *M = mr_case_chance(c, 10) ? 530 + mr_case_below(c, 100) : 1 + mr_case_below(c, 40);
    }
    c->elements = (size_t)*M * *D;
    if (kind == MR_NORM_LAYER && *D < 4) c->tolerance *= 20; /* so few values may be nearly equal: x − mean cancels */
    *eps = kind == MR_NORM_LAYER ? MR_LAYER_EPS : MR_RMS_EPS;
    if (mr_case_chance(c, 30)) *eps *= mr_case_chance(c, 50) ? 100 : 1000;
    mr_case_say(c, "M=%d D=%d %s eps=%g", *M, *D, names[kind], *eps);
    return kind;
}

void mr_case_norm_fwd(mr_case *c)
{
    static const double scales[] = {1, 1, 100, 1e-2};
    mr_norm_fwd_args *a = &c->args.norm_fwd;
    a->kind = draw_norm(c, &a->M, &a->D, &a->eps);
    size_t D = (size_t)a->D;
    mr_case_add(c, MR_FIELD(norm_fwd, x), ACT, IN, c->elements, NORMAL, scales[mr_case_below(c, 4)]);
    mr_case_add(c, MR_FIELD(norm_fwd, w), REAL, IN, D, NORMAL, 1);
    if (a->kind == MR_NORM_LAYER) mr_case_add(c, MR_FIELD(norm_fwd, b), REAL, IN, D, NORMAL, 1);
    mr_case_add(c, MR_FIELD(norm_fwd, y), ACT, OUT, c->elements, EMPTY, 0);
    if (mr_case_chance(c, 70)) mr_case_add(c, MR_FIELD(norm_fwd, stat), REAL, OUT, (size_t)a->M * 2, EMPTY, 0);
}

void mr_case_norm_bwd(mr_case *c)
{
    mr_norm_bwd_args *a = &c->args.norm_bwd;
    mr_norm_fwd_args *first = &c->first.norm_fwd;
    a->kind = first->kind = draw_norm(c, &a->M, &a->D, &first->eps);
    first->M = a->M;
    first->D = a->D;
    c->first_op = MR_OP_norm_fwd;
    size_t D = (size_t)a->D;
    mr_case_add(c, MR_FIELD(norm_bwd, x), ACT, IN, c->elements, NORMAL, 1)->in_first = offsetof(mr_norm_fwd_args, x);
    mr_case_add(c, MR_FIELD(norm_bwd, w), REAL, IN, D, NORMAL, 1)->in_first = offsetof(mr_norm_fwd_args, w);
    size_t stats = (size_t)a->M * 2;
    mr_case_add(c, MR_FIELD(norm_bwd, stat), REAL, IN, stats, EMPTY, 0)->in_first = offsetof(mr_norm_fwd_args, stat);
    mr_case_add(c, "y", MR_NO_FIELD, ACT, SCRATCH, c->elements, EMPTY, 0)->in_first = offsetof(mr_norm_fwd_args, y);
    mr_case_add(c, MR_FIELD(norm_bwd, dy), ACT, IN, c->elements, NORMAL, 1);
    a->accumulate = mr_case_chance(c, 50);
    if (a->accumulate) mr_case_say(c, " accumulate");
    mr_case_add(c, MR_FIELD(norm_bwd, dx), ACT, a->accumulate ? ADD : OUT, c->elements, a->accumulate ? NORMAL : EMPTY,
                1);
    mr_case_add(c, MR_FIELD(norm_bwd, dw), REAL, ADD, D, NORMAL, 1);
    if (a->kind == MR_NORM_LAYER) {
        mr_case_add(c, MR_FIELD(norm_bwd, db), REAL, ADD, D, NORMAL, 1);
        mr_case_add(c, "b", MR_NO_FIELD, REAL, IN, D, NORMAL, 1)->in_first = offsetof(mr_norm_fwd_args, b);
    }
}

void mr_case_xent(mr_case *c)
{
    static const double scales[] = {1, 10, 1e4};
    mr_xent_args *a = &c->args.xent;
    a->R = mr_case_rows(c);
    a->C = mr_case_chance(c, 5) ? 1000 + mr_case_below(c, 40) : mr_case_width(c);
    if (!c->speed && mr_case_chance(c, 5)) a->R = 1 + mr_case_below(c, 9), a->C = 4090 + mr_case_below(c, 2000);
    double factor = mr_case_chance(c, 50) ? 1 : 0.01;
    c->elements = (size_t)a->R * a->C;
    int ties = mr_case_chance(c, 30), separate = mr_case_below(c, 3);
    double scale = ties ? 2 : scales[mr_case_below(c, 3)];
    mr_case_say(c, "R=%d C=%d logits=%g%s%s", a->R, a->C, scale, ties ? " ties" : "",
                separate == 0   ? " dlogits=logits"
                : separate == 1 ? " no dlogits"
                                : "");
    a->row = draw_row(c, a->C);
    const size_t all = (size_t)a->R * mr_row_step(a->row, a->C);
    mr_case_buffer *logits =
        mr_case_add(c, MR_FIELD(xent, logits), ACT, separate ? IN : ADD, all, ties ? MR_FILL_WHOLE : NORMAL, scale);
    if (separate == 0) logits->alias = offsetof(mr_xent_args, dlogits);
    if (separate == 2)
        mr_case_add(c, MR_FIELD(xent, dlogits), ACT, a->row ? ADD : OUT, all, a->row ? NORMAL : EMPTY, 1);
    mr_case_add(c, MR_FIELD(xent, scale), DOUBLE, IN, 1, MR_FILL_CONSTANT, factor);
    mr_case_add(c, MR_FIELD(xent, target), INT, IN, (size_t)a->R, MR_FILL_TARGET, a->C);
    mr_case_add(c, MR_FIELD(xent, row_loss), REAL, OUT, (size_t)a->R, EMPTY, 0);
    mr_case_add(c, MR_FIELD(xent, stats), DOUBLE, ADD, MR_STATS, NORMAL, 10);
}

void mr_case_mse(mr_case *c)
{
    mr_mse_args *a = &c->args.mse;
    a->R = mr_case_rows(c);
    a->C = mr_case_width(c);
    double factor = mr_case_chance(c, 50) ? 1 : 0.01;
    c->elements = (size_t)a->R * a->C;
    int separate = mr_case_below(c, 3);
    a->tanh = mr_case_chance(c, 50);
    mr_case_say(c, "R=%d C=%d%s%s", a->R, a->C, a->tanh ? " tanh" : "",
                separate == 0   ? " dpred=pred"
                : separate == 1 ? " no dpred"
                                : "");
    mr_case_buffer *pred = mr_case_add(c, MR_FIELD(mse, pred), ACT, separate ? IN : ADD, c->elements, NORMAL, 1);
    if (separate == 0) pred->alias = offsetof(mr_mse_args, dpred);
    if (separate == 2) mr_case_add(c, MR_FIELD(mse, dpred), ACT, OUT, c->elements, EMPTY, 0);
    mr_case_add(c, MR_FIELD(mse, scale), DOUBLE, IN, 1, MR_FILL_CONSTANT, factor);
    mr_case_add(c, MR_FIELD(mse, target), REAL, IN, c->elements, NORMAL, 1);
    if (mr_case_chance(c, 60)) mr_case_add(c, MR_FIELD(mse, mask), BYTE, IN, (size_t)a->R, MR_FILL_FLAG, 0.7);
    mr_case_add(c, MR_FIELD(mse, row_loss), REAL, OUT, (size_t)a->R, EMPTY, 0);
    mr_case_add(c, MR_FIELD(mse, stats), DOUBLE, ADD, MR_STATS, NORMAL, 10);
}

void mr_case_tanh_fwd(mr_case *c)
{
    mr_tanh_fwd_args *a = &c->args.tanh_fwd;
    a->n = c->elements = (size_t)mr_case_rows(c) * (size_t)mr_case_width(c);
    mr_case_say(c, "n=%zu", a->n);
    mr_case_add(c, MR_FIELD(tanh_fwd, x), ACT, IN, a->n, NORMAL, mr_case_chance(c, 50) ? 1 : 30);
    mr_case_add(c, MR_FIELD(tanh_fwd, y), REAL, OUT, a->n, EMPTY, 0);
}

void mr_case_tanh_bwd(mr_case *c)
{
    mr_tanh_bwd_args *a = &c->args.tanh_bwd;
    const int in_place = mr_case_chance(c, 50);
    a->n = c->elements = (size_t)mr_case_rows(c) * (size_t)mr_case_width(c);
    mr_case_say(c, "n=%zu%s", a->n, in_place ? " dx=x" : "");
    mr_case_buffer *x = mr_case_add(c, MR_FIELD(tanh_bwd, x), ACT, in_place ? ADD : IN, a->n, NORMAL, 1);
    if (in_place) x->alias = offsetof(mr_tanh_bwd_args, dx);
    else mr_case_add(c, MR_FIELD(tanh_bwd, dx), ACT, OUT, a->n, EMPTY, 0);
    mr_case_add(c, MR_FIELD(tanh_bwd, dy), REAL, IN, a->n, NORMAL, 1);
}

void mr_case_sample(mr_case *c)
{
    static const double positions[] = {0, 1, 17, 4294967295.0, 123456789012.0}, scales[] = {1, 4, 1e-3};
    mr_sample_args *a = &c->args.sample;
    a->R = c->speed ? 8 : 1 + mr_case_below(c, mr_case_chance(c, 80) ? 6 : 60);
    a->C = mr_case_chance(c, 5) ? 1000 + mr_case_below(c, 1500) : mr_case_width(c);
    size_t R = (size_t)a->R;
    c->elements = R * a->C;
    int ties = mr_case_chance(c, 30);
    mr_case_say(c, "R=%d C=%d%s", a->R, a->C, ties ? " ties" : "");
    mr_case_buffer *logits = mr_case_add(c, MR_FIELD(sample, logits), ACT, IN, c->elements,
                                         ties ? MR_FILL_WHOLE : NORMAL, ties ? 1 : scales[mr_case_below(c, 3)]);
    if (!c->speed && mr_case_chance(c, 20)) {
        logits->plant = (size_t)mr_case_below(c, (int)c->elements);
        mr_case_say(c, " NaN in logits");
    }
    mr_case_add(c, MR_FIELD(sample, how), SAMPLING, IN, 1, MR_FILL_SAMPLING, 0);
    mr_case_add(c, MR_FIELD(sample, position), DOUBLE, ADD, 1, MR_FILL_CONSTANT, positions[mr_case_below(c, 5)]);
    mr_case_add(c, MR_FIELD(sample, ids), INT, OUT, R, MR_FILL_CONSTANT, -7);
    mr_case_add(c, MR_FIELD(sample, drawn), INT, ADD, MR_DRAWN * R, MR_FILL_BELOW, a->C);
}
