/* Gradients of whole models. On ref64 they must agree with finite differences of the loss, for every parameter
 * tensor and for the carried state; on the other devices in fp32 they must agree with ref64's.
 * test_gradients_bf16.c is for bf16. */
#include "gradients_support.h"

/* ---- finite differences */

/* The loss with x + step·direction in place of x; `place` is the device memory that holds x. */
typedef struct probe {
    tested_model *tested_model;
    void *place; /* device memory of the values, or NULL: the tested_model's `before` */
    double *x;   /* their values, n of them */
    const double *gradient, *direction;
    size_t n;
} probe;

static double loss_at(const probe *p, double step)
{
    tested_model *s = p->tested_model;
    double *moved = mr_alloc(p->n, sizeof *moved), *kept = s->before, loss;
    assert_non_null(moved);
    for (size_t i = 0; i < p->n; i++) moved[i] = p->x[i] + step * p->direction[i];
    if (p->place) put_doubles(s->bag.dev, p->place, moved, p->n);
    else s->before = moved;
    loss = loss_of(s);
    s->before = kept;
    if (p->place) put_doubles(s->bag.dev, p->place, p->x, p->n);
    mr_free(moved);
    return loss;
}

/* A step may straddle the kink of the positive candidate (its slope jumps at 0); then a shorter one does not. A wrong
 * gradient fails at every step size. */
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
    describe(p->tested_model, what, name, sizeof name);
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

static void gradients_agree_with_differences(void **state)
{
    (void)state;
    mr_dev *dev = open_device("ref64", 1, NULL);
    for (int i = 0; i < case_count; i += REDUCED ? 5 : 1) {
        tested_model s;
        mr_rng rng = mr_rng_at(17, MR_STREAM_SAMPLE, (uint32_t)i, 0);
        make_tested_model(&s, dev, i, 4, 3, 7);
        backward(&s);
        const mr_params *params = mr_model_params(s.model);
        for (int row = 0; row < params->count; row++) {
            const mr_param *p = &params->list[row];
            check_tensor((probe){.tested_model = &s,
                                 .place = mr_real_at(dev, s.model->weights, p->offset),
                                 .x = s.weights + p->offset,
                                 .gradient = s.grads + p->offset,
                                 .n = p->count},
                         p->name, &rng);
        }
        if (s.choice->level[STATE] == CARRIED_STATE)
            check_tensor((probe){.tested_model = &s, .x = s.before, .gradient = s.dstate, .n = s.reals},
                         "the state before", &rng);
        free_tested_model(&s);
    }
    mr_dev_close(dev);
}

/* ---- other devices against ref64 */

/* Allowed distance from ref64: of the loss, and of gradients as vectors (so the cosine is at least √(1 −
 * GRADIENT_OFF²)). FLOOR, a share of the norm of all gradients, is for those that nearly cancel. */
#define LOSS_OFF 1e-5
#define GRADIENT_OFF 1e-4
#define FLOOR 1e-7

static void compare(tested_model *got, tested_model *want)
{
    const mr_params *params = mr_model_params(want->model);
    double floor = FLOOR * norm_of(want->grads, params->total);
    char name[512];
    describe(got, "loss", name, sizeof name);
    check_near(name, &(double){loss_of(got)}, &(double){loss_of(want)}, 1, LOSS_OFF);
    for (int row = 0; row < params->count; row++) {
        const mr_param *p = &params->list[row];
        describe(got, p->name, name, sizeof name);
        check_norm(name, got->grads + p->offset, want->grads + p->offset, p->count, GRADIENT_OFF, floor);
    }
    describe(got, "the state before", name, sizeof name);
    if (want->state) check_norm(name, got->dstate, want->dstate, want->reals, GRADIENT_OFF, floor);
}

static void check_against_ref64(mr_dev *dev)
{
    static const struct {
        int dim, B, T;
    } shapes[] = {{4, 3, 7}, {18, 2, 37}};
    mr_dev *exact = open_device("ref64", 1, NULL);
    for (int i = 0; i < case_count; i += REDUCED ? 5 : 1)
        for (int j = 0; j < COUNT(shapes); j++) {
            tested_model got, want;
            make_tested_model(&got, dev, i, shapes[j].dim, shapes[j].B, shapes[j].T);
            make_tested_model(&want, exact, i, shapes[j].dim, shapes[j].B, shapes[j].T);
            /* the same state for both, not the one that each computed */
            if (want.state) memcpy(got.before, want.before, want.reals * sizeof *want.before);
            backward(&got);
            backward(&want);
            compare(&got, &want);
            free_tested_model(&got);
            free_tested_model(&want);
        }
    mr_dev_close(exact);
}

ON_DEVICES(devices_agree_with_ref64, check_against_ref64)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_differences),
        DEVICE_TESTS(devices_agree_with_ref64),
    };
    return cmocka_run_group_tests(tests, make_cases, NULL);
}
