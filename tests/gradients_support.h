/* What the tests of whole models' gradients share: a set of models that covers every pair of configuration choices, and
 * a model under test with a batch, a loss and its gradients. */
#ifndef MR_TESTS_GRADIENTS_SUPPORT_H
#define MR_TESTS_GRADIENTS_SUPPORT_H

#include "support.h"

/* ---- the covering set: of the models that are not cells only one kind is in it at first. Every further kind then gets
 * the same cases after all others, so that a new mixer changes no case of the old ones. */

enum { FORM, START, CONV, MLP, NORM, HEAD, LOSS, INPUT, DROPOUT, RESET, RAGGED, STATE, BIAS, FACTORS };
enum { XENT, MSE, MSE_OF_TANH };               /* levels of LOSS */
enum { NO_STATE, FRESH_STATE, CARRIED_STATE }; /* levels of STATE */
enum { MOST_LEVELS = 32, MOST_CASES = 400, TRIES = 60 };

_Static_assert(COUNT(forms) + 1 <= MOST_LEVELS, "every form has a place in `covered`");

static const int levels[FACTORS] = {[FORM] = COUNT(forms) + 1,
                                    [START] = 2,
                                    [CONV] = 3,
                                    [MLP] = 2,
                                    [NORM] = 3,
                                    [HEAD] = 5,
                                    [LOSS] = 3,
                                    [INPUT] = 2,
                                    [DROPOUT] = 2,
                                    [RESET] = 2,
                                    [RAGGED] = 2,
                                    [STATE] = 3,
                                    [BIAS] = 2};

typedef struct choice {
    int level[FACTORS];
    int extra; /* which of `extras`, counted from 1; 0: none */
} choice;

static choice cases[MOST_CASES];
static int case_count;

static uint8_t covered[FACTORS][MOST_LEVELS][FACTORS][MOST_LEVELS];

/* Pairs that a case would cover for the first time; with `mark`, records them as covered. */
static inline int new_pairs(const choice *c, int mark)
{
    int found = 0;
    for (int f = 0; f < FACTORS; f++)
        for (int g = f + 1; g < FACTORS; g++) {
            uint8_t *pair = &covered[f][c->level[f]][g][c->level[g]];
            found += !*pair;
            if (mark) *pair = 1;
        }
    return found;
}

static inline choice random_choice(mr_rng *rng)
{
    choice c = {.extra = 0};
    for (int f = 0; f < FACTORS; f++) c.level[f] = (int)mr_rng_below(rng, (uint32_t)levels[f]);
    return c;
}

static inline int all_pairs(void)
{
    int pairs = 0;
    for (int f = 0; f < FACTORS; f++)
        for (int g = f + 1; g < FACTORS; g++) pairs += levels[f] * levels[g];
    return pairs;
}

/* Options that other projects' models have: a few models beyond the covering set, so that it stays as it is. */
typedef struct extra_model {
    const char *mixer; /* NULL: that of the first form */
    int conv, residual, width, mlp_width, mixer_conv, dt_rank, no_mixer_bias, no_mlp_bias, tied;
    mr_head head;
    mr_gelu gelu;
    mr_mlp_gate gate;
    double eps;
} extra_model;

static const extra_model extras[] = {
    {.gelu = MR_GELU_IS_ERF, .mlp_width = 8, .head = MR_HEAD_PAIR_MEAN, .conv = 3},
    {.gate = MR_MLP_GEGLU, .mlp_width = 7, .conv = 7, .eps = 1e-3},
    {.gelu = MR_GELU_IS_ERF, .gate = MR_MLP_GEGLU, .mlp_width = 9, .no_mlp_bias = 1, .no_mixer_bias = 1, .width = 5},
    {.gate = MR_MLP_SWIGLU, .mlp_width = 13, .conv = 16, .residual = 1, .tied = 1, .mixer = "minlstm"},
    {.mixer = "mamba", .mixer_conv = 2, .dt_rank = 3, .width = 7, .no_mixer_bias = 1, .conv = 1},
    {.mixer = "mamba", .mixer_conv = 6, .tied = 1, .gelu = MR_GELU_IS_ERF, .mlp_width = 5, .eps = 1e-2},
    {.mixer = "attention", .no_mixer_bias = 1, .gate = MR_MLP_SWIGLU, .mlp_width = 6, .no_mlp_bias = 1},
    {.mixer = "gru", .width = 7, .conv = 2},
};
enum { NOT_IN_BF16 = 2 }; /* the last ones: bf16_support.h has no such mixers */

static inline void put_extra(mr_config *config, const extra_model *e)
{
    for (int i = 0; e->mixer && mr_mixer_names[i]; i++)
        if (!strcmp(mr_mixer_names[i], e->mixer)) config->mixer = i;
    if (e->mixer && !strcmp(e->mixer, "attention")) config->window = 5;
    config->conv = e->conv;
    config->conv_place = e->residual ? MR_CONV_RESIDUAL : MR_CONV_INSIDE;
    config->width = e->width;
    config->mlp_width = e->mlp_width;
    if (e->mixer_conv) config->mixer_conv = e->mixer_conv;
    config->dt_rank = e->dt_rank;
    config->mixer_bias = !e->no_mixer_bias;
    config->mlp_bias = !e->no_mlp_bias;
    config->gelu = e->gelu;
    config->mlp_gate = e->gate;
    config->norm_eps = e->eps;
    config->tied = e->tied;
    if (e->tied) config->outputs = config->inputs;
}

/* Adds them to the cases: with tokens, a carried state and resets. */
static inline int add_extras(void)
{
    for (int i = 0; i < COUNT(extras); i++) {
        choice c = {.level = {[CONV] = 1, [RESET] = 1, [STATE] = CARRIED_STATE, [RAGGED] = i % 2, [NORM] = i % 2},
                    .extra = i + 1};
        c.level[HEAD] = (int)extras[i].head;
        if (case_count == MOST_CASES) return -1;
        cases[case_count++] = c;
    }
    return 0;
}

/* Greedy: takes the best of some random cases until every pair is covered. */
static inline int make_cases(void **state)
{
    (void)state;
    mr_rng rng = mr_rng_at(11, MR_STREAM_SAMPLE, 0, 0);
    for (int left = all_pairs(); left > 0;) {
        choice best = random_choice(&rng);
        for (int i = 0; i < TRIES; i++) {
            choice c = random_choice(&rng);
            if (new_pairs(&c, 0) > new_pairs(&best, 0)) best = c;
        }
        if (new_pairs(&best, 0) == 0) continue;
        if (case_count == MOST_CASES) return -1;
        left -= new_pairs(&best, 1);
        cases[case_count++] = best;
    }
    for (int form = COUNT(forms) + 1, first = case_count; form < MODEL_FORMS; form++)
        for (int i = 0; i < first; i++) {
            if (cases[i].level[FORM] != COUNT(forms)) continue;
            if (case_count == MOST_CASES) return -1;
            cases[case_count] = cases[i];
            cases[case_count++].level[FORM] = form;
        }
    if (add_extras()) return -1;
    print_message("%d models cover all pairs of choices\n", case_count);
    return 0;
}

static inline mr_config config_for(const choice *c, int dim)
{
    mr_interface interface = {.input = (mr_input)c->level[INPUT],
                              .inputs = 5,
                              .head = (mr_head)c->level[HEAD],
                              .loss = c->level[LOSS] == XENT ? MR_LOSS_XENT : MR_LOSS_MSE,
                              .outputs = 4};
    mr_config config = model_config(c->level[FORM], &interface);
    config.layers = 2;
    config.dim = dim;
    config.h0_learned = c->level[START] && is_cell(c->level[FORM]);
    config.conv = c->level[CONV] ? 4 : 0;
    config.conv_place = c->level[CONV] == 2 ? MR_CONV_RESIDUAL : MR_CONV_INSIDE;
    config.mlp = c->level[MLP] ? 4 : 0;
    config.norm = c->level[NORM];
    config.dropout = c->level[DROPOUT] ? 0.3 : 0;
    config.head_bias = c->level[BIAS];
    config.output = c->level[LOSS] == MSE_OF_TANH ? MR_OUTPUT_TANH : MR_OUTPUT_LINEAR;
    if (c->extra) put_extra(&config, &extras[c->extra - 1]);
    return config;
}

/* ---- a model under test: loss = mean loss of the batch + Σ pull·(final state) */

typedef struct tested_model {
    const choice *choice;
    mr_model *model;
    mr_batch batch;
    mr_state *state, *dafter, *dbefore; /* NULL without state */
    size_t reals;                       /* of the state */
    double *before, *pull;
    double *weights, *grads, *dstate;
    bag bag;
} tested_model;

/* A state as a user would have it: after another batch. */
static inline void walk_in(tested_model *s, const mr_interface *interface, uint32_t seed)
{
    mr_batch first = make_batch(interface, s->batch.B, s->batch.T, 0, 0, seed);
    mr_model_forward(s->model, &first, s->state, 0);
    mr_batch_free(&first);
}

static inline void make_tested_model(tested_model *s, mr_dev *dev, int index, int dim, int B, int T)
{
    const choice *c = &cases[index];
    mr_config config = config_for(c, dim);
    mr_interface interface = mr_config_interface(&config);
    mr_rng rng = mr_rng_at(3, MR_STREAM_SAMPLE, (uint32_t)index, 0);
    if (mr_head_pairs(interface.head)) B += B % 2;
    *s = (tested_model){.choice = c, .model = make_model(&config, dev, B, T, 1), .bag = {.dev = dev}};
    s->batch = make_batch(&interface, B, T, c->level[RESET], c->level[RAGGED], 100 + (uint32_t)index);
    size_t total = mr_model_params(s->model)->total;
    s->weights = bag_get(&s->bag, s->model->weights, total);
    s->grads = bag_host(&s->bag, total);
    if (c->level[STATE] == NO_STATE) return;
    s->state = make_state(s->model, B);
    s->dafter = make_state(s->model, B);
    s->dbefore = make_state(s->model, B);
    s->reals = (size_t)B * mr_model_state_reals(s->model);
    s->pull = bag_random(&s->bag, &rng, s->reals, 0.1);
    s->dstate = bag_host(&s->bag, s->reals);
    put_doubles(dev, s->dafter->reals, s->pull, s->reals);
    if (c->level[STATE] == CARRIED_STATE) walk_in(s, &interface, 200 + (uint32_t)index);
    s->before = bag_get(&s->bag, s->state->reals, s->reals);
}

static inline void free_tested_model(tested_model *s)
{
    mr_state_free(s->state);
    mr_state_free(s->dafter);
    mr_state_free(s->dbefore);
    mr_batch_free(&s->batch);
    bag_empty(&s->bag);
    mr_model_free(s->model);
}

static inline void forward(tested_model *s)
{
    if (s->state) {
        put_doubles(s->bag.dev, s->state->reals, s->before, s->reals);
        s->state->under_way = s->choice->level[STATE] == CARRIED_STATE;
    }
    mr_model_forward(s->model, &s->batch, s->state, 1);
}

static inline double loss_of(tested_model *s)
{
    double stats[MR_STATS], loss;
    mr_model_zero_stats(s->model);
    forward(s);
    mr_model_loss(s->model, &s->batch, 0);
    mr_model_stats(s->model, stats);
    assert_that(stats[MR_STAT_COUNT], ==, (double)s->batch.counted);
    loss = stats[MR_STAT_LOSS] / stats[MR_STAT_COUNT];
    if (!s->state) return loss;
    double *after = mr_alloc(s->reals, sizeof *after);
    assert_non_null(after);
    get_doubles(s->bag.dev, after, s->state->reals, s->reals);
    for (size_t i = 0; i < s->reals; i++) loss += s->pull[i] * after[i];
    mr_free(after);
    return loss;
}

/* The mean over some passes: gradients of parameters are added up, that of the state is
 * overwritten. Two passes show both. */
static inline void backward_passes(tested_model *s, int passes)
{
    size_t total = mr_model_params(s->model)->total;
    mr_model_zero_grads(s->model);
    for (int i = 0; i < passes; i++) {
        forward(s);
        mr_model_loss(s->model, &s->batch, 1.0 / (double)s->batch.counted);
        mr_model_backward(s->model, &s->batch, s->dafter, s->dbefore);
    }
    get_doubles(s->bag.dev, s->grads, s->model->grads, total);
    for (size_t i = 0; i < total; i++) s->grads[i] /= passes;
    if (s->state) get_doubles(s->bag.dev, s->dstate, s->dbefore->reals, s->reals);
}

static inline void backward(tested_model *s) { backward_passes(s, 2); }

static inline void describe(const tested_model *s, const char *what, char *out, size_t size)
{
    const int *l = s->choice->level;
    snprintf(out, size,
             "%s %s, model %d (%s, h0 %d, conv %d, mlp %d, norm %d, head %d, loss %d, input %d, dropout %d, resets %d, "
             "ragged %d, state %d, head bias %d), %s",
             s->bag.dev->kind, s->bag.dev->isa, (int)(s->choice - cases), model_name(l[FORM]), l[START], l[CONV],
             l[MLP], l[NORM], l[HEAD], l[LOSS], l[INPUT], l[DROPOUT], l[RESET], l[RAGGED], l[STATE], l[BIAS], what);
}

#endif
