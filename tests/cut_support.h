/* Models whose sequences are cut between ranks: what one rank computes, and how the ranks' results together compare
 * with those of a model that has the whole sequences. */
#ifndef MR_TESTS_CUT_SUPPORT_H
#define MR_TESTS_CUT_SUPPORT_H

#include "model/sequence.h"
#include "support.h"

enum { CUT_B = 3, CUT_T = 37, CUT_LAYERS = 2 };

static const mr_interface cut_text = {
    .input = MR_INPUT_TOKENS, .inputs = 11, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_XENT, .outputs = 11};
static const mr_interface cut_values = {
    .input = MR_INPUT_REALS, .inputs = 3, .head = MR_HEAD_TOKEN, .loss = MR_LOSS_MSE, .outputs = 2};

/* One answer for each sequence, or for two. */
static inline mr_interface cut_pooled(int i)
{
    static const mr_head heads[] = {MR_HEAD_LAST, MR_HEAD_MEAN, MR_HEAD_PAIR_LAST, MR_HEAD_PAIR_MEAN};
    mr_interface interface = i % 2 ? cut_text : cut_values;
    interface.head = heads[i / 2 % COUNT(heads)];
    return interface;
}

/* One case: a model and the kind of its batches. */
typedef struct cut_case {
    mr_interface interface;
    mr_config config;
    int form, resets, ragged, carried; /* carried: the batch continues after another one */
    char name[160];
} cut_case;

/* Every form of a model, four times each, with convolutions of 0 to 7 taps in both places. */
enum { CUT_CASES = 4 * MODEL_FORMS };

static inline cut_case cut_case_at(int i)
{
    static const int taps[] = {0, 4, 4, 2, 7};
    const int form = i % MODEL_FORMS, turn = i / MODEL_FORMS;
    cut_case k = {.form = form, .interface = i % 5 == 3 ? cut_values : i % 5 == 4 ? cut_pooled(i / 5) : cut_text};
    mr_config *c = &k.config;
    *c = model_config(form, &k.interface);
    c->layers = CUT_LAYERS;
    c->dim = 9;
    c->h0_learned = is_cell(form) && (form + turn) % 2;
    c->conv = taps[(form + turn) % COUNT(taps)];
    c->conv_place = turn % 2 ? MR_CONV_RESIDUAL : MR_CONV_INSIDE;
    c->mlp = turn % 2 ? 2 : 0;
    c->norm = turn < 3 ? MR_NORM_RMS : MR_NORM_LAYER;
    k.resets = turn == 1 || turn == 3;
    k.ragged = turn >= 2;
    k.carried = turn == 0 || turn == 3;
    snprintf(k.name, sizeof k.name, "%s, head %d, conv %d %s%s%s%s%s", model_name(form), (int)k.interface.head,
             (int)c->conv, c->conv_place == MR_CONV_INSIDE ? "inside" : "residual", c->h0_learned ? ", h0" : "",
             k.resets ? ", resets" : "", k.ragged ? ", ragged" : "", k.carried ? ", carried" : "");
    return k;
}

/* What a rank has computed, in doubles. */
typedef struct cut_result {
    size_t params, hidden, logits, state; /* how many */
    double *grads, *h, *scores;           /* of its tokens: h [layers, B, T, H], scores [rows, outputs] */
    double *after, *before;               /* the state after the batch, and the gradient of that before it */
    double *learned;                      /* gradients as mr_model_learn makes them */
    double loss, count;                   /* sums */
    uint64_t bytes;
    int status, T;
    mr_error why;
} cut_result;

static inline void cut_result_free(cut_result *r)
{
    double *const all[] = {r->grads, r->h, r->scores, r->after, r->before, r->learned};
    for (int i = 0; i < COUNT(all); i++) mr_free(all[i]);
}

/* What a rank works with. */
typedef struct cut_rank {
    const cut_case *k;
    mr_dev *dev;
    mr_sequence *sequence; /* NULL: whole sequences */
    mr_model *model;
    mr_state *state, *dout, *din;
} cut_rank;

static inline mr_batch cut_part(const cut_rank *r, uint32_t seed)
{
    mr_batch whole = make_batch(&r->k->interface, CUT_B, CUT_T, r->k->resets, r->k->ragged, seed), part;
    const int ranks = mr_sequence_ranks(r->sequence), rank = mr_sequence_rank(r->sequence);
    if (!r->sequence) return whole;
    if (mr_sequence_batch(&whole, &r->k->interface, ranks, rank, &part, NULL)) abort();
    mr_batch_free(&whole);
    return part;
}

static inline double *cut_read(mr_dev *dev, kind what, const void *from, size_t n)
{
    double *to = mr_alloc(n, sizeof *to);
    if (!to) abort();
    get_as(dev, what, to, from, n);
    return to;
}

/* The gradient that reaches the state after the batch: the same for all. */
static inline void cut_gradient_after(cut_rank *r, size_t n)
{
    mr_rng rng = mr_rng_at(31, MR_STREAM_SAMPLE, 0, 0);
    double *random = mr_alloc(n, sizeof *random);
    if (!random) abort();
    for (size_t i = 0; i < n; i++) random[i] = (float)(0.1 * mr_rng_normal(&rng));
    put_doubles(r->dev, r->dout->reals, random, n);
    mr_free(random);
}

static inline void cut_compute(cut_rank *r, cut_result *to)
{
    mr_batch before = cut_part(r, 41), batch = cut_part(r, 42);
    const size_t N = (size_t)batch.B * (size_t)batch.T, H = (size_t)mr_config_width(&r->k->config);
    to->T = batch.T;
    to->params = mr_model_params(r->model)->total;
    to->state = CUT_B * mr_model_state_reals(r->model);
    to->logits = mr_batch_rows(&batch, r->k->interface.head) * (size_t)r->k->interface.outputs;
    to->hidden = CUT_LAYERS * N * H;
    if (r->k->carried) mr_model_forward(r->model, &before, r->state, 0);
    else mr_state_reset(r->state);
    cut_gradient_after(r, to->state);
    mr_model_zero_grads(r->model);
    mr_model_zero_stats(r->model);
    mr_model_forward(r->model, &batch, r->state, 1);
    to->scores = cut_read(r->dev, ACTS, r->model->logits, to->logits);
    to->h = mr_alloc(to->hidden, sizeof *to->h);
    if (!to->h) abort();
    for (int i = 0; i < CUT_LAYERS; i++) get_as(r->dev, ACTS, to->h + (size_t)i * N * H, r->model->blocks[i].h, N * H);
    mr_model_loss(r->model, &batch, 1.0 / (double)batch.counted);
    mr_model_backward(r->model, &batch, r->k->ragged ? NULL : r->dout, r->din); /* see mr_sequence_conv_bwd */
    to->grads = cut_read(r->dev, REALS, r->model->grads, to->params);
    to->after = cut_read(r->dev, REALS, r->state->reals, to->state);
    to->before = cut_read(r->dev, REALS, r->din->reals, to->state);
    double stats[MR_STATS];
    mr_model_stats(r->model, stats);
    to->loss = stats[MR_STAT_LOSS];
    to->count = stats[MR_STAT_COUNT];
    to->bytes = r->sequence ? mr_sequence_bytes(r->sequence) : 0;
    if (r->k->form % 2) { /* blocks that are computed again exchange their messages again */
        mr_model_set_recompute(r->model, (mr_recomputing){MR_RECOMPUTE_BLOCKS, 0});
        if (mr_model_plan(r->model, CUT_B, batch.T, 1, NULL)) abort();
    }
    mr_model_learn(r->model, &batch, r->state, &(mr_step){.seed = 5}, 1.0 / (double)batch.counted, 1, 0);
    to->learned = cut_read(r->dev, REALS, r->model->grads, to->params);
    mr_batch_free(&before);
    mr_batch_free(&batch);
}

/* comm NULL: whole sequences. */
static inline void cut_run(const cut_case *k, mr_dev *dev, mr_comm *comm, cut_result *to)
{
    cut_rank r = {.k = k, .dev = dev};
    const int T = comm ? (CUT_T + comm->size - 1) / comm->size : CUT_T;
    /* half of the cases as beside an exchange of gradients, which has a courier */
    mr_courier *courier = comm && k->form % 2 ? mr_courier_new(comm, NULL) : NULL;
    *to = (cut_result){0};
    r.model = make_model(&k->config, dev, CUT_B, T, 1);
    if (comm) {
        to->status = mr_sequence_new(&k->config, dev, comm, courier, 0, comm->size, &r.sequence, &to->why);
        if (to->status) return;
        mr_model_cut(r.model, r.sequence);
        to->status = mr_model_plan(r.model, CUT_B, T, 1, &to->why);
        mr_model_set_step(r.model, &(mr_step){.seed = 5});
    }
    r.state = make_state(r.model, CUT_B), r.dout = make_state(r.model, CUT_B), r.din = make_state(r.model, CUT_B);
    cut_compute(&r, to);
    if (comm) to->status = mr_sequence_status(r.sequence, &to->why);
    mr_state_free(r.state);
    mr_state_free(r.dout);
    mr_state_free(r.din);
    mr_model_free(r.model);
    mr_sequence_free(r.sequence);
    mr_courier_free(courier);
}

/* ---- comparing */

/* In doubles; the weights of means are floats there, too. */
static inline double cut_exact(const cut_case *k)
{
    return k->interface.head == MR_HEAD_MEAN || k->interface.head == MR_HEAD_PAIR_MEAN ? 1e-6 : 1e-11;
}

static inline double cut_tolerance(const mr_dev *dev, const cut_case *k)
{
    if (dev->real_size == sizeof(double)) return cut_exact(k);
    return is_cell(k->form) && forms[k->form].cell.scan == MR_SCAN_LOG ? 2e-3 : 1e-4;
}

/* Numbers of all tokens, [outer, B, T, width], from those of the ranks' tokens. */
static inline double *cut_gather(const cut_result *parts, int ranks, size_t which, size_t outer, size_t width)
{
    double *all = mr_alloc(outer * CUT_B * CUT_T * width, sizeof *all);
    if (!all) abort();
    for (int r = 0; r < ranks; r++) {
        double *const *from = (double *const *)(const void *)((const char *)&parts[r] + which);
        const size_t T = (size_t)parts[r].T, first = (size_t)mr_sequence_cut(CUT_T, ranks, r);
        for (size_t i = 0; i < outer * CUT_B; i++)
            memcpy(all + (i * CUT_T + first) * width, *from + i * T * width, T * width * sizeof *all);
    }
    return all;
}

static inline void cut_compare_tokens(const char *name, const cut_result *parts, int ranks, size_t which, size_t outer,
                                      size_t width, const double *want, double tolerance)
{
    double *got = cut_gather(parts, ranks, which, outer, width);
    check_near(name, got, want, outer * CUT_B * CUT_T * width, tolerance);
    mr_free(got);
}

/* Gradients of every parameter, summed over the ranks in their order. */
static inline void cut_compare_gradients(const cut_case *k, const mr_dev *dev, const mr_params *params,
                                         const cut_result *parts, int ranks, const cut_result *want, int learned)
{
    const double tolerance = dev->real_size == sizeof(double) ? cut_exact(k) : 1e-4;
    const double *all = learned ? want->learned : want->grads;
    double *sum = mr_alloc(want->params, sizeof *sum);
    char name[256];
    assert_non_null(sum);
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < want->params; i++) sum[i] += learned ? parts[r].learned[i] : parts[r].grads[i];
    for (int p = 0; p < params->count; p++) {
        const mr_param *row = &params->list[p];
        snprintf(name, sizeof name, "%s, %d ranks: %s%s", k->name, ranks, row->name, learned ? ", learned" : "");
        check_norm(name, sum + row->offset, all + row->offset, row->count, tolerance,
                   1e-7 * norm_of(all, want->params));
    }
    mr_free(sum);
}

/* What all ranks send, by the formulae of docs/design.md. */
static inline uint64_t cut_bytes(const cut_case *k, const mr_dev *dev, int ranks)
{
    const mr_config *c = &k->config;
    const uint64_t S = (uint64_t)ranks, mamba = !is_cell(k->form), width = (uint64_t)mr_config_width(c);
    const uint64_t n = CUT_B * width * (mamba ? (uint64_t)c->states : 1), D = (uint64_t)c->dim;
    const uint64_t tails =
        CUT_B * ((c->conv ? (uint64_t)c->conv - 1 : 0) * D + (mamba ? ((uint64_t)c->mixer_conv - 1) * width : 0));
    if (S == 1) return 0;
    uint64_t reals = n * (S * (S - 1) + (S - 1) * (S - 2)) + 2 * (S - 1) * tails;
    if (k->carried) reals += n * (S * (S - 1) / 2 + (S - 2) * (S - 1) / 2) + (S - 1) * tails; /* a forward alone */
    /* the state after each forward, from rank to rank where rows end at different places */
    const uint64_t state = n + tails, forwards = k->carried ? 2 : 1;
    reals += forwards * (k->ragged ? S : 1) * state;
    const uint64_t pooled = k->interface.head == MR_HEAD_TOKEN ? 0 : CUT_B * D * dev->act_size;
    const uint64_t lengths = pooled ? CUT_B * sizeof(int32_t) : 0;
    return reals * CUT_LAYERS * dev->real_size + (S - 1) * (forwards * S * (pooled + lengths) + pooled);
}

static inline void cut_compare(const cut_case *k, const mr_dev *dev, const cut_result *parts, int ranks,
                               const cut_result *want)
{
    const double tolerance = cut_tolerance(dev, k);
    const size_t C = (size_t)k->interface.outputs, H = (size_t)mr_config_width(&k->config);
    double loss = 0, count = 0;
    uint64_t bytes = 0;
    char name[256];
    mr_model *model;
    for (int r = 0; r < ranks; r++) {
        if (parts[r].status) fail_msg("%s, rank %d of %d: %s", k->name, r, ranks, parts[r].why.text);
        loss += parts[r].loss, count += parts[r].count, bytes += parts[r].bytes;
    }
    snprintf(name, sizeof name, "%s, %d ranks", k->name, ranks);
    cut_compare_tokens(name, parts, ranks, offsetof(cut_result, h), CUT_LAYERS, H, want->h, tolerance / 10);
    if (k->interface.head == MR_HEAD_TOKEN)
        cut_compare_tokens(name, parts, ranks, offsetof(cut_result, scores), 1, C, want->scores, tolerance);
    else
        for (int r = 0; r < ranks; r++) check_near(name, parts[r].scores, want->scores, want->logits, tolerance);
    check_near(name, &loss, &want->loss, 1, tolerance / 10);
    assert_that(count, ==, want->count);
    check_near(name, parts[0].after, want->after, want->state, tolerance / 10);
    check_norm(name, parts[0].before, want->before, want->state, tolerance, 1e-9);
    assert_that(bytes, ==, cut_bytes(k, dev, ranks));
    assert_int_equal(mr_model_new(&k->config, (mr_dev *)(uintptr_t)dev, MR_DECAY_MATRICES, &model, NULL), 0);
    for (int learned = 0; learned < 2; learned++)
        cut_compare_gradients(k, dev, mr_model_params(model), parts, ranks, want, learned);
    mr_model_free(model);
}

#endif
