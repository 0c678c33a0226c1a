/* The table of parameters: name, shape, place and initial value of each. Initialiser, optimiser, files and gradient
 * checks all loop over it. */
#ifndef MR_MODEL_PARAMS_H
#define MR_MODEL_PARAMS_H

#include "model/config.h"

#define MR_PARAM_DIMS 3

typedef enum mr_init {
    MR_INIT_UNIFORM,
    MR_INIT_NORMAL,
    MR_INIT_CONSTANT,
    MR_INIT_LOG_TAU,    /* the logarithm of a time scale τ */
    MR_INIT_SIGNED_TAU, /* the signed gate (mr_signed_gate) that keeps τ/(1 + τ), as the sigmoid of log τ does */
    MR_INIT_LOG_COUNT,  /* log 1, log 2, … along the last dimension */
    MR_INIT_STEP_SIZE   /* its softplus is log-uniform in 0.001 … 0.1 */
} mr_init;

/* The q at which a signed transition is a: MR_SIGNED_REACH·tanh(q) = a. */
double mr_signed_gate(double a);

/* Elements of a tensor that start in another way than the rest. All parts of a tensor have the same time scales. */
typedef struct mr_param_part {
    size_t first, count; /* count 0: none */
    mr_init init;
    double value;
} mr_param_part;

enum { MR_PARAM_PARTS = 2 };

/* What a parameter is, beyond its shape. */
enum {
    MR_PARAM_GATE = 1, /* a gate or candidate projection of the mixer: decay-set = no-gates leaves it out */
    MR_PARAM_RATE = 2, /* never decayed and never stored in 8 bits, whatever its shape */
    MR_PARAM_F32 = 4   /* a matrix that is never stored in 8 bits */
};

typedef struct mr_param {
    char name[64]; /* "blocks.0.mixer.linear_z.weight" */
    int ndim;
    int64_t shape[MR_PARAM_DIMS];
    size_t offset, count; /* in elements of the parameter vector */
    int follows;          /* in the vector it directly follows the row before it */
    unsigned flags;
    int decay; /* weight decay applies */
    mr_init init;
    double init_value; /* bound of the uniform, deviation of the normal, the constant, or the sign of log τ */
    mr_param_part parts[MR_PARAM_PARTS];
} mr_param;

/* A row and those that follow it form a group, which is contiguous: the gates' weights are one matrix for the
 * projection. */
typedef struct mr_params {
    mr_param *list; /* in the order of the network */
    int count, room;
    size_t total;                  /* length of the vector, padding between groups included */
    size_t decayed;                /* elements 0 … decayed−1 are under weight decay */
    int failed;                    /* memory ran out while building */
    const mr_allocator *allocator; /* of the list; set it before the first row; NULL: the C library's */
} mr_params;

typedef enum mr_decay_set { MR_DECAY_MATRICES, MR_DECAY_NO_GATES, MR_DECAY_ALL } mr_decay_set;

/* Adds a row and returns its index; −1: out of memory, which mr_params_layout reports. */
int mr_params_add(mr_params *params, const char *prefix, const char *name, int follows, mr_init init, double value,
                  int ndim, const int64_t *shape);
/* Adds flags to a row; −1 is ignored. */
void mr_params_flag(mr_params *params, int row, unsigned flags);
/* Decides decay and offsets. Call it once, after all rows. 0 or MR_ENOMEM. */
int mr_params_layout(mr_params *params, mr_decay_set set);
void mr_params_free(mr_params *params);
/* Returns 1 and the name of the first parameter with an element that is not finite, or 0. */
int mr_params_first_nonfinite(const mr_params *params, const float *vector, const char **name);
int mr_params_find(const mr_params *params, const char *name); /* index or −1 */

/* Writes initial values into host memory of params->total floats. Time scales τ are in 1 … horizon, the longest
 * sequence of the task. */
void mr_params_init(const mr_params *params, uint64_t seed, double horizon, int log_uniform, float *out);

#endif
