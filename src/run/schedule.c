#include "run/schedule.h"

#include <math.h>

static double learning_rate(const mr_train_settings *set, int64_t step)
{
    if (step <= set->warmup) return set->lr * (double)step / (double)set->warmup;
    double gone = set->steps > set->warmup ? (double)(step - 1 - set->warmup) / (double)(set->steps - set->warmup) : 0;
    if (gone > 1) gone = 1;
    if (set->schedule == 1) return set->lr * (1 - gone);
    if (set->schedule == 2) return set->lr * 0.5 * (1 + cos(3.14159265358979323846 * gone));
    return set->lr;
}

mr_step mr_step_values(const mr_train_settings *s, int64_t step)
{
    return (mr_step){.seed = (uint64_t)s->seed, .step = (uint32_t)step, .lr = learning_rate(s, step), .beta1 = s->betas[0],
                     .beta2 = s->betas[1], .eps = s->eps, .weight_decay = s->weight_decay, .clip = s->clip,
                     .bias1 = 1 - pow(s->betas[0], (double)step), .bias2 = 1 - pow(s->betas[1], (double)step),
                     .decoupled = s->optimizer == 0};
}
