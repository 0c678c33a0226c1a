/* Hopper, HalfCheetah and Walker2d, as Gymnasium's v4 environments, simulated by MuJoCo. Without MuJoCo (no_mujoco.c)
 * loading a model fails and says what to install. */
#ifndef MR_APP_CONTROL_ENV_H
#define MR_APP_CONTROL_ENV_H

#include "core/status.h"

#include <stdint.h>

enum { MR_ENV_STEPS = 1000, MR_ENV_MOST_OBSERVED = 17, MR_ENV_MOST_ACTED = 6, MR_ENV_MOST_JOINTS = 9 };

/* What is known about one without MuJoCo. */
typedef struct mr_env_type {
    const char *name;      /* "hopper" */
    const char *title;     /* "Hopper" */
    const char *file;      /* "hopper.xml", of Gymnasium */
    int observed, acted;   /* numbers in an observation and in an action */
    double random, expert; /* D4RL's returns of scores 0 and 100 */
    double target;         /* the return that Decision Transformer asks for */
    double height;         /* the first number observed at the start of an episode, without its noise */
} mr_env_type;

extern const mr_env_type mr_env_types[]; /* hopper, halfcheetah, walker2d; ends with a row whose name is NULL */
const mr_env_type *mr_env_type_find(const char *name); /* or NULL */
/* D4RL's score of a return: 0 is a random policy's, 100 an expert's. */
double mr_env_score(const mr_env_type *type, double reward);

/* The version of MuJoCo that is in this build, as "2.2.2", or NULL. */
const char *mr_mujoco_version(void);

/* A model read from its XML file; many environments share one. */
typedef struct mr_env_model mr_env_model;

/* assets: the folder with Gymnasium's XML files; NULL: $MINRNN_DATA/rl, or that of an installed gymnasium. Refuses
 * files whose sizes are not those of the environment. MR_ECONFIG: built without MuJoCo; MR_ENODATA: no file found. */
int mr_env_model_load(const mr_env_type *type, const char *assets, mr_env_model **out, mr_error *err);
void mr_env_model_free(mr_env_model *model);
const mr_env_type *mr_env_model_type(const mr_env_model *model);
/* What its numbers depend on: the model file and MuJoCo's version, as 16 hexadecimal digits. */
const char *mr_env_model_identity(const mr_env_model *model);

/* One simulation. Different ones may be used from different threads. */
typedef struct mr_env mr_env;

int mr_env_new(const mr_env_model *model, mr_env **out, mr_error *err);
void mr_env_free(mr_env *env);

/* Starts an episode; seed and episode decide on the noise in its first state. */
void mr_env_reset(mr_env *env, uint64_t seed, uint64_t episode, double *observation);
/* Starts from a given state instead: as many positions and velocities as the model has joints. */
void mr_env_set_state(mr_env *env, const double *positions, const double *velocities, double *observation);

typedef struct mr_env_result {
    double reward;
    int terminal; /* it fell; the clock is the caller's */
} mr_env_result;

/* One step of `acted` numbers, cut to ±1 by the model's own limits. */
mr_env_result mr_env_step(mr_env *env, const float *action, double *observation);

/* Where the body is, for drawing: the x and z of each end of its parts. Returns how many parts there are, at most
 * `room`; each is x0, z0, x1, z1. */
int mr_env_parts(const mr_env *env, double (*parts)[4], int room);

#endif
