/* The one table of parameters: initialiser, optimiser, checkpoint, gradient check and bindings walk it. */
#ifndef MR_MODEL_PARAMS_H
#define MR_MODEL_PARAMS_H

#include "model/config.h"

#define MR_PARAM_DIMS 3

typedef enum mr_init {
    MR_INIT_UNIFORM,
    MR_INIT_NORMAL,
    MR_INIT_CONSTANT,
    MR_INIT_LOG_TAU,
    MR_INIT_LOG_COUNT, /* log 1, log 2, … along the last dimension */
    MR_INIT_STEP_SIZE  /* softplus of it is log-uniform in 0.001 … 0.1 */
} mr_init;

/* Some of a tensor's elements that start in another way than the rest. Time scales are the same in every part of a
 * tensor. */
typedef struct mr_part {
    size_t first, count; /* count 0: none */
    mr_init init;
    double value;
} mr_part;

enum { MR_PARAM_PARTS = 2 };

typedef struct mr_param {
    char name[64]; /* "blocks.0.mixer.linear_z.weight" */
    int ndim;
    int64_t shape[MR_PARAM_DIMS];
    size_t offset, count; /* in elements of the parameter vector */
    int follows;          /* lies directly behind the row before it */
    int is_gate;          /* a gate or candidate projection of the mixer */
    int is_rate;          /* no matrix, whatever its shape: never decayed, never stored in 8 bits */
    int decay;            /* weight decay applies */
    mr_init init;
    double init_value; /* bound of the uniform, deviation of the normal, the constant, or the sign before log τ */
    mr_part parts[MR_PARAM_PARTS];
} mr_param;

/* Parameters that must lie next to each other (the gates' weights are one matrix for the projection) share a group. */
typedef struct mr_params {
    mr_param *list; /* in the order of the network */
    int count, room;
    size_t total;           /* length of the vector, padding between groups included */
    size_t decayed;         /* elements 0 … decayed−1 are those under weight decay */
    int failed;             /* memory ran out while building */
    const mr_allocator *by; /* whose memory the list is; set before the first row, or NULL */
} mr_params;

typedef enum mr_decay_set { MR_DECAY_MATRICES, MR_DECAY_NO_GATES, MR_DECAY_ALL } mr_decay_set;

/* Adds a row and returns its index (or −1). */
int mr_params_add(mr_params *params, const char *prefix, const char *name, int follows, mr_init init, double value,
                  int ndim, const int64_t *shape);
/* Decides decay and offsets; call once, after all rows. */
int mr_params_layout(mr_params *params, mr_decay_set set);
void mr_params_free(mr_params *params);
/* The name of the first parameter with an element that is not finite; 0: there is none. */
int mr_params_first_nonfinite(const mr_params *params, const float *vector, const char **name);
int mr_params_find(const mr_params *params, const char *name); /* index or −1 */

/* Initial values into host memory of params->total floats. Time scales τ lie in 1 … horizon,
 * the longest sequence of the task. */
void mr_params_init(const mr_params *params, uint64_t seed, double horizon, int log_uniform, float *out);

#endif
