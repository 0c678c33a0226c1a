/* Learning-rate schedules, and the table of training settings. */
#include "api/schedule.h"

#include <math.h>
#include <stddef.h>

static const char *const optimizers[] = {"adamw", "adam", NULL};
static const char *const schedules[] = {"constant", "linear", "cosine", NULL};
static const char *const gradient_sums[] = {"tree", "order", NULL};
static const char *const decay_sets[] = {"matrices", "no-gates", "all", NULL};

_Static_assert(sizeof(mr_optimizer) == sizeof(int) && sizeof(mr_schedule) == sizeof(int) &&
                   sizeof(mr_decay_set) == sizeof(int) && sizeof(mr_gradient_sum) == sizeof(int) &&
                   sizeof(mr_recompute) == sizeof(int),
               "a choice is read into an int");

#define FIELD(name) offsetof(mr_learn_settings, name)

const mr_option mr_learn_table[] = {
    {"steps", MR_OPT_INT, FIELD(steps), "1000", 1, 1e12, NULL, "training steps", MR_OPT_MAY_CHANGE},
    {"lr", MR_OPT_REAL, FIELD(lr), "0.001", 0, 10, NULL, "learning rate", MR_OPT_MAY_CHANGE},
    {"schedule", MR_OPT_CHOICE, FIELD(schedule), "constant", 0, 0, schedules,
     "how the learning rate changes: constant, or falling to 0 at the last step or when time runs out",
     MR_OPT_MAY_CHANGE},
    {"warmup", MR_OPT_INT, FIELD(warmup), "0", 0, 1e12, NULL, "steps over which the learning rate rises from 0",
     MR_OPT_MAY_CHANGE},
    {"optimizer", MR_OPT_CHOICE, FIELD(optimizer), "adamw", 0, 0, optimizers, "adamw, or adam (weight decay as L2)", 0},
    {"betas", MR_OPT_PAIR, FIELD(betas), "0.9,0.999", 0, 0.999999, NULL, "decay of the two moments", 0},
    {"eps", MR_OPT_REAL, FIELD(eps), "1e-8", 0, 1, NULL, "added to the root of the second moment", 0},
    {"weight-decay", MR_OPT_REAL, FIELD(weight_decay), "0", 0, 10, NULL, "weight decay", MR_OPT_MAY_CHANGE},
    {"decay-set", MR_OPT_CHOICE, FIELD(decay_set), "matrices", 0, 0, decay_sets,
     "what decays: weight matrices, all but the mixer's gates, all", 0},
    {"clip", MR_OPT_REAL, FIELD(clip), "1", 0, 1e9, NULL, "largest norm of the gradient; 0: no limit",
     MR_OPT_MAY_CHANGE},
    {"gradient-sum", MR_OPT_CHOICE, FIELD(gradient_sum), "tree", 0, 0, gradient_sums,
     "how micro-batches are added: in a tree, the same for any number of ranks, or in order, as up to 0.2", 0},
    {"recompute", MR_OPT_CHOICE, FIELD(recompute), "auto", 0, 0, mr_recompute_names,
     "what is computed twice to save memory: nothing, blocks, chunks of time; auto: the first that fits",
     MR_OPT_SPARSE},
    {"recompute-chunk", MR_OPT_INT, FIELD(recompute_chunk), "0", 0, 1 << 24, NULL,
     "tokens of a sequence in a chunk; 0: as many as suit the device", MR_OPT_SPARSE},
    {"seed", MR_OPT_INT, FIELD(seed), "1", 0, 9e15, NULL, "of the initial weights, the data and dropout", 0},
    {0}};

double mr_schedule_position(const mr_learn_settings *set, int64_t step, double progress)
{
    const double by_progress = 1 + progress * (double)set->steps;
    if (set->schedule == MR_SCHEDULE_CONSTANT || !(by_progress > (double)step)) return (double)step;
    return by_progress;
}

double mr_learning_rate(const mr_learn_settings *set, double position)
{
    const double pi = 3.14159265358979323846, warmup = (double)set->warmup, steps = (double)set->steps;
    if (position <= warmup) return set->lr * position / warmup;
    double done = steps > warmup ? (position - 1 - warmup) / (steps - warmup) : 0;
    done = done < 0 ? 0 : done > 1 ? 1 : done;
    switch (set->schedule) {
    case MR_SCHEDULE_CONSTANT: break;
    case MR_SCHEDULE_LINEAR: return set->lr * (1 - done);
    case MR_SCHEDULE_COSINE: return set->lr * 0.5 * (1 + cos(pi * done));
    }
    return set->lr;
}

mr_step mr_step_values(const mr_learn_settings *s, int64_t step, double progress)
{
    return (mr_step){.seed = (uint64_t)s->seed,
                     .step = (uint32_t)step,
                     .lr = mr_learning_rate(s, mr_schedule_position(s, step, progress)),
                     .beta1 = s->betas[0],
                     .beta2 = s->betas[1],
                     .eps = s->eps,
                     .weight_decay = s->weight_decay,
                     .clip = s->clip,
                     .bias1 = 1 - pow(s->betas[0], (double)step),
                     .bias2 = 1 - pow(s->betas[1], (double)step),
                     .decoupled = s->optimizer == MR_ADAMW};
}
