/* Gradients of whole models. On ref64 they must agree with finite differences of the loss, for every parameter tensor
 * and for the carried state; on the other devices they must agree with ref64's. The models are a covering set: every
 * two choices of the configuration meet in at least one of them. */
#include "support.h"

/* ---- the covering set */

enum { FORM, START, CONV, MLP, NORM, HEAD, LOSS, INPUT, DROPOUT, RESET, RAGGED, STATE, BIAS, FACTORS };
enum { NO_STATE, FRESH_STATE, CARRIED_STATE }; /* levels of STATE */
enum { MOST_LEVELS = 16, MOST_CASES = 100, TRIES = 60 };

static const int levels[FACTORS] = {
    [FORM] = MODEL_FORMS,  [START] = 2,   [CONV] = 3,  [MLP] = 2,    [NORM] = 3, [HEAD] = 5, [LOSS] = 2,
    [INPUT] = 2,           [DROPOUT] = 2, [RESET] = 2, [RAGGED] = 2, [STATE] = 3,
    [BIAS] = 2};

typedef struct choice {
    int level[FACTORS];
} choice;

static choice cases[MOST_CASES];
static int case_count;

static uint8_t covered[FACTORS][MOST_LEVELS][FACTORS][MOST_LEVELS];

/* Pairs that a case would cover for the first time; with `mark`, they are covered from now on. */
static int new_pairs(const choice *c, int mark)
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

static choice random_choice(mr_rng *rng)
{
    choice c;
    for (int f = 0; f < FACTORS; f++) c.level[f] = (int)mr_rng_below(rng, (uint32_t)levels[f]);
    return c;
}

static int all_pairs(void)
{
    int pairs = 0;
    for (int f = 0; f < FACTORS; f++)
        for (int g = f + 1; g < FACTORS; g++) pairs += levels[f] * levels[g];
    return pairs;
}

/* Greedy: of some random cases, the one that covers most, until every pair is covered. */
static int make_cases(void **state)
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
    print_message("%d models cover all pairs of choices\n", case_count);
    return 0;
}

static mr_config config_for(const choice *c, int dim)
{
    mr_interface face = {.input = (mr_input)c->level[INPUT],
                         .inputs = 5,
                         .head = (mr_head)c->level[HEAD],
                         .loss = (mr_loss)c->level[LOSS],
                         .outputs = 4};
    mr_config config = model_config(c->level[FORM], &face);
    config.layers = 2;
    config.dim = dim;
    config.h0_learned = c->level[START] && is_cell(c->level[FORM]);
    config.conv = c->level[CONV] ? 4 : 0;
    config.conv_place = c->level[CONV] == 2 ? MR_CONV_RESIDUAL : MR_CONV_INSIDE;
    config.mlp = c->level[MLP] ? 4 : 0;
    config.norm = c->level[NORM];
    config.dropout = c->level[DROPOUT] ? 0.3 : 0;
    config.head_bias = c->level[BIAS];
    return config;
}

/* ---- a model under test: loss = mean loss of the batch + Σ pull·(state behind it) */

typedef struct subject {
    const choice *choice;
    mr_model *model;
    mr_batch batch;
    mr_state *state, *dbehind, *dbefore; /* NULL without state */
    size_t reals;                        /* of the state */
    double *before, *pull;
    double *weights, *grads, *dstate;
    bag bag;
} subject;

/* A state as a user would have it: behind another batch. */
static void walk_in(subject *s, const mr_interface *face, uint32_t seed)
{
    mr_batch first = make_batch(face, s->batch.B, s->batch.T, 0, 0, seed);
    mr_model_forward(s->model, &first, s->state, 0);
    mr_batch_free(&first);
}

static void make_subject(subject *s, mr_dev *dev, int index, int dim, int B, int T)
{
    const choice *c = &cases[index];
    mr_config config = config_for(c, dim);
    mr_interface face = mr_config_interface(&config);
    mr_rng rng = mr_rng_at(3, MR_STREAM_SAMPLE, (uint32_t)index, 0);
    if (mr_head_pairs(face.head)) B += B % 2;
    *s = (subject){.choice = c, .model = make_model(&config, dev, B, T, 1), .bag = {.dev = dev}};
    s->batch = make_batch(&face, B, T, c->level[RESET], c->level[RAGGED], 100 + (uint32_t)index);
    size_t total = mr_model_params(s->model)->total;
    s->weights = bag_get(&s->bag, s->model->weights, total);
    s->grads = bag_host(&s->bag, total);
    if (c->level[STATE] == NO_STATE) return;
    s->state = make_state(s->model, B);
    s->dbehind = make_state(s->model, B);
    s->dbefore = make_state(s->model, B);
    s->reals = (size_t)B * mr_model_state_reals(s->model);
    s->pull = bag_random(&s->bag, &rng, s->reals, 0.1);
    s->dstate = bag_host(&s->bag, s->reals);
    put_doubles(dev, s->dbehind->reals, s->pull, s->reals);
    if (c->level[STATE] == CARRIED_STATE) walk_in(s, &face, 200 + (uint32_t)index);
    s->before = bag_get(&s->bag, s->state->reals, s->reals);
}

static void free_subject(subject *s)
{
    mr_state_free(s->state);
    mr_state_free(s->dbehind);
    mr_state_free(s->dbefore);
    mr_batch_free(&s->batch);
    bag_empty(&s->bag);
    mr_model_free(s->model);
}

static void forward(subject *s)
{
    if (s->state) {
        put_doubles(s->bag.dev, s->state->reals, s->before, s->reals);
        s->state->under_way = s->choice->level[STATE] == CARRIED_STATE;
    }
    mr_model_forward(s->model, &s->batch, s->state, 1);
}

static double loss_of(subject *s)
{
    double stats[MR_STATS], loss;
    mr_model_zero_stats(s->model);
    forward(s);
    mr_model_loss(s->model, &s->batch, 0);
    mr_model_stats(s->model, stats);
    assert_true(stats[MR_STAT_COUNT] == (double)s->batch.counted);
    loss = stats[MR_STAT_LOSS] / stats[MR_STAT_COUNT];
    if (!s->state) return loss;
    double *behind = mr_alloc(s->reals, sizeof *behind);
    assert_non_null(behind);
    get_doubles(s->bag.dev, behind, s->state->reals, s->reals);
    for (size_t i = 0; i < s->reals; i++) loss += s->pull[i] * behind[i];
    mr_free(behind);
    return loss;
}

/* Twice, and halved: gradients of parameters are added to what is there, that of the state is overwritten. */
static void backward(subject *s)
{
    size_t total = mr_model_params(s->model)->total;
    mr_model_zero_grads(s->model);
    for (int i = 0; i < 2; i++) {
        forward(s);
        mr_model_loss(s->model, &s->batch, 1.0 / (double)s->batch.counted);
        mr_model_backward(s->model, &s->batch, s->dbehind, s->dbefore);
    }
    get_doubles(s->bag.dev, s->grads, s->model->grads, total);
    for (size_t i = 0; i < total; i++) s->grads[i] /= 2;
    if (s->state) get_doubles(s->bag.dev, s->dstate, s->dbefore->reals, s->reals);
}

static void describe(const subject *s, const char *what, char *out, size_t size)
{
    const int *l = s->choice->level;
    snprintf(out, size,
             "%s %s, model %d (%s, h0 %d, conv %d, mlp %d, norm %d, head %d, loss %d, input %d, dropout %d, resets %d, "
             "ragged %d, state %d, head bias %d), %s",
             s->bag.dev->kind, s->bag.dev->isa, (int)(s->choice - cases), model_name(l[FORM]), l[START], l[CONV],
             l[MLP], l[NORM], l[HEAD], l[LOSS], l[INPUT], l[DROPOUT], l[RESET], l[RAGGED], l[STATE],
             l[BIAS], what);
}

/* ---- finite differences */

/* The loss with x + step·direction in place of x; `place` is the device memory that holds x. */
typedef struct probe {
    subject *subject;
    void *place; /* device memory of the values, or NULL: the subject's `before` */
    double *x;   /* their values, n of them */
    const double *gradient, *direction;
    size_t n;
} probe;

static double loss_at(const probe *p, double step)
{
    subject *s = p->subject;
    double *moved = mr_alloc(p->n, sizeof *moved), *kept = s->before, loss;
    assert_non_null(moved);
    for (size_t i = 0; i < p->n; i++) moved[i] = p->x[i] + step * p->direction[i];
    if (p->place)
        put_doubles(s->bag.dev, p->place, moved, p->n);
    else
        s->before = moved;
    loss = loss_of(s);
    s->before = kept;
    if (p->place) put_doubles(s->bag.dev, p->place, p->x, p->n);
    mr_free(moved);
    return loss;
}

/* A step may straddle a kink of the positive candidate (at 0 its slope jumps); a shorter one then does not. A wrong
 * gradient fails at every step. */
static void check_probe(const probe *p, const char *what)
{
    static const double steps[] = {1e-5, 1e-6, 1e-7};
    double want = 0, size = norm_of(p->gradient, p->n), got = 0, tolerance = 0;
    char name[512];
    for (size_t i = 0; i < p->n; i++) want += p->gradient[i] * p->direction[i];
    for (int i = 0; i < COUNT(steps); i++) {
        double above = loss_at(p, steps[i]), below = loss_at(p, -steps[i]);
        got = (above - below) / (2 * steps[i]);
        tolerance = 1e-6 * (fabs(want) + size) + 1e-15 * fmax(1, fabs(above)) / steps[i];
        if (fabs(got - want) <= tolerance) return;
    }
    describe(p->subject, what, name, sizeof name);
    fail_msg("%s: gradient %.12g, finite difference %.12g, tolerance %.1e", name, want, got, tolerance);
}

/* Random directions through all values, and single elements. */
static void check_tensor(probe p, const char *what, mr_rng *rng)
{
    const int directions = 2, elements = REDUCED ? 1 : 3;
    double *direction = mr_alloc(p.n, sizeof *direction);
    assert_non_null(direction);
    p.direction = direction;
    for (int i = 0; i < directions; i++) {
        for (size_t j = 0; j < p.n; j++) direction[j] = mr_rng_normal(rng);
        check_probe(&p, what);
    }
    memset(direction, 0, p.n * sizeof *direction);
    for (int i = 0; i < elements; i++) {
        size_t j = mr_rng_below64(rng, p.n);
        direction[j] = 1;
        check_probe(&p, what);
        direction[j] = 0;
    }
    mr_free(direction);
}

static void test_finite_differences(void **state)
{
    (void)state;
    mr_dev *dev = open_device("ref64", 1, NULL);
    for (int i = 0; i < case_count; i += REDUCED ? 5 : 1) {
        subject s;
        mr_rng rng = mr_rng_at(17, MR_STREAM_SAMPLE, (uint32_t)i, 0);
        make_subject(&s, dev, i, 4, 3, 7);
        backward(&s);
        const mr_params *params = mr_model_params(s.model);
        for (int row = 0; row < params->count; row++) {
            const mr_param *p = &params->list[row];
            check_tensor((probe){.subject = &s,
                                 .place = mr_real_at(dev, s.model->weights, p->offset),
                                 .x = s.weights + p->offset,
                                 .gradient = s.grads + p->offset,
                                 .n = p->count},
                         p->name, &rng);
        }
        if (s.choice->level[STATE] == CARRIED_STATE)
            check_tensor((probe){.subject = &s, .x = s.before, .gradient = s.dstate, .n = s.reals}, "the state before",
                         &rng);
        free_subject(&s);
    }
    mr_dev_close(dev);
}

/* ---- other devices against ref64 */

/* How far from ref64: the loss, and gradients as vectors, so that a cosine is at least √(1 − gradient²). `floor` is for those that
 * nearly cancel, a share of all gradients' norm. In bf16 numbers are rounded some ten times on the way down and up, each time by at
 * most BF16, mostly by less, in either direction: a parameter's gradient is then off by about 1 %, and may be by 2.3 %. A head for pairs
 * subtracts codes that are alike, which leaves the rounding of both, and has half as many rows to average over: twice that. */
typedef struct closeness {
    double loss, pull, gradient, floor;
} closeness;

static closeness closeness_of(const mr_dev *dev, const mr_model *model)
{
    const double pairs = mr_head_pairs((mr_head)mr_model_config(model)->head) ? 2 : 1;
    if (is_bf16(dev)) return (closeness){.loss = 8 * BF16, .pull = 8 * BF16, .gradient = pairs * 6 * BF16, .floor = BF16 / 2};
    return (closeness){.loss = 1e-5, .gradient = 1e-4, .floor = 1e-7};
}

/* The positive candidate's slope jumps at 0: rounding carries a few across, each of them wrong by much. Away from there, on both
 * sides, it is as smooth as the others. */
static void leave_the_kink(subject *s)
{
    static const char suffix[] = "linear_h.bias";
    const mr_params *params = mr_model_params(s->model);
    for (int row = 0; row < params->count; row++) {
        const mr_param *p = &params->list[row];
        size_t length = strlen(p->name), tail = sizeof suffix - 1;
        if (length < tail || strcmp(p->name + length - tail, suffix)) continue;
        for (size_t i = 0; i < p->count; i++) s->weights[p->offset + i] = i % 2 ? 4 : -4;
    }
    put_doubles(s->bag.dev, s->model->weights, s->weights, params->total);
}

static void compare(subject *got, subject *want)
{
    const mr_params *params = mr_model_params(want->model);
    const closeness close = closeness_of(got->bag.dev, want->model);
    double floor = close.floor * norm_of(want->grads, params->total);
    char name[512];
    describe(got, "loss", name, sizeof name);
    double pulled = want->state ? close.pull * norm_of(want->pull, want->reals) : 0; /* states are off each in its own direction */
    check_near(name, &(double){loss_of(got)}, &(double){loss_of(want)}, 1, close.loss + pulled);
    for (int row = 0; row < params->count; row++) {
        const mr_param *p = &params->list[row];
        describe(got, p->name, name, sizeof name);
        check_norm(name, got->grads + p->offset, want->grads + p->offset, p->count, close.gradient, floor);
    }
    describe(got, "the state before", name, sizeof name);
    if (want->state) check_norm(name, got->dstate, want->dstate, want->reals, close.gradient, floor);
}

static void check_against_ref64(mr_dev *dev)
{
    static const struct {
        int dim, B, T;
    } in_fp32[] = {{4, 3, 7}, {18, 2, 37}}, in_bf16[] = {{32, 4, 33}, {64, 1, 40}}, *shapes;
    shapes = is_bf16(dev) ? in_bf16 : in_fp32; /* among few numbers errors do not average out */
    mr_dev *exact = open_device("ref64", 1, NULL);
    for (int i = 0; i < case_count; i += REDUCED ? 5 : 1)
        for (int j = 0; j < COUNT(in_fp32); j++) {
            subject got, want;
            make_subject(&got, dev, i, shapes[j].dim, shapes[j].B, shapes[j].T);
            make_subject(&want, exact, i, shapes[j].dim, shapes[j].B, shapes[j].T);
            if (is_bf16(dev)) {
                leave_the_kink(&got);
                leave_the_kink(&want);
            }
            /* the same state for both, not what each came to by itself */
            if (want.state) memcpy(got.before, want.before, want.reals * sizeof *want.before);
            backward(&got);
            backward(&want);
            compare(&got, &want);
            free_subject(&got);
            free_subject(&want);
        }
    mr_dev_close(exact);
}

static void test_devices(void **state)
{
    (void)state;
    on_every_device(check_against_ref64);
    on_the_gpu(check_against_ref64, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(tests, make_cases, NULL);
}
