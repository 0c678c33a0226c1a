/* In place of env_mujoco.c in a build without MuJoCo: says what to install. */
#include "control/env.h"

#include <stddef.h>

const char *mr_mujoco_version(void) { return NULL; }

int mr_env_model_load(const mr_env_type *type, const char *assets, mr_env_model **out, mr_error *err)
{
    (void)assets;
    *out = NULL;
    return mr_fail(err, MR_ECONFIG,
                   "this minrnn was built without MuJoCo, which simulates %s; run `scripts/bootstrap.sh control` (or "
                   "install libmujoco-dev, or the Python package mujoco 3.3.7) and build again",
                   type->title);
}

/* The rest is never reached: there is no model. */
void mr_env_model_free(mr_env_model *model) { (void)model; }
const mr_env_type *mr_env_model_type(const mr_env_model *model) { return (void)model, mr_env_types; }
const char *mr_env_model_identity(const mr_env_model *model) { return (void)model, ""; }

int mr_env_new(const mr_env_model *model, mr_env **out, mr_error *err)
{
    return (void)model, *out = NULL, mr_fail(err, MR_ECONFIG, "built without MuJoCo");
}

void mr_env_free(mr_env *env) { (void)env; }

void mr_env_reset(mr_env *env, uint64_t seed, uint64_t episode, double *observation)
{
    (void)env, (void)seed, (void)episode, (void)observation;
}

void mr_env_set_state(mr_env *env, const double *positions, const double *velocities, double *observation)
{
    (void)env, (void)positions, (void)velocities, (void)observation;
}

mr_env_result mr_env_step(mr_env *env, const float *action, double *observation)
{
    return (void)env, (void)action, (void)observation, (mr_env_result){.reward = 0, .terminal = 1};
}

int mr_env_parts(const mr_env *env, double (*parts)[4], int room) { return (void)env, (void)parts, (void)room, 0; }
