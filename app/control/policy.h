/* Trained policies of a file policies.h5: small networks that turn observations into actions, with noise of their own
 * where they were trained with it. */
#ifndef MR_APP_CONTROL_POLICY_H
#define MR_APP_CONTROL_POLICY_H

#include "control/env.h"

/* So many simulations are served at once, their numbers side by side. What one gets does not depend on the others. */
enum { MR_POLICY_LANES = 8 };

typedef struct mr_policy mr_policy;

/* Reads /ENV/ALGORITHM of the file: layer0, layer1, … with weight, bias and activation (relu, tanh, clip); obs_mean,
 * obs_var, obs_eps and clip_obs where observations are normalised; log_std, or log_std_weight and log_std_bias, where
 * there is noise. MR_EDATA: no such policy, or it is for other observations or actions; MR_EFORMAT, MR_EIO. */
int mr_policy_load(const char *path, const mr_env_type *type, const char *algorithm, mr_policy **out, mr_error *err);
void mr_policy_free(mr_policy *policy); /* NULL is fine */

/* The policy's own noise is multiplied by `noise` (0: the mean action); draws are standard normal numbers, unused
 * when noise is 0. All lanes are computed; those that nobody reads may hold any finite numbers. */
void mr_policy_act(const mr_policy *policy, double observations[MR_POLICY_LANES][MR_ENV_MOST_OBSERVED], double noise,
                   float draws[MR_POLICY_LANES][MR_ENV_MOST_ACTED], float actions[MR_POLICY_LANES][MR_ENV_MOST_ACTED]);

#endif
