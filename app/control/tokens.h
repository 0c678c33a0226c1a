/* A policy reads an episode as tokens: the return that is still wanted, the observation, the action, and so on. Each
 * token is one row of numbers, of which its kind uses a part and says so in a flag. So one linear map embeds all three,
 * each by a part of its own. */
#ifndef MR_APP_CONTROL_TOKENS_H
#define MR_APP_CONTROL_TOKENS_H

#include "control/env.h"

#include "minrnn_experimental.h"

enum {
    MR_TOKENS_A_STEP = 3,
    MR_TIME_NUMBERS = 9, /* the share of the episode that is over, and four sines and cosines of it */
    MR_TOKEN_MOST = 1 + MR_ENV_MOST_OBSERVED + MR_ENV_MOST_ACTED + MR_TOKENS_A_STEP + MR_TIME_NUMBERS
};

typedef enum mr_token { MR_TOKEN_RETURN, MR_TOKEN_OBSERVATION, MR_TOKEN_ACTION } mr_token;

/* The row: return | observation | action | three flags | time. Numbers that a token does not use are those that the
 * model's scaler makes 0 of: its means. */
typedef struct mr_tokens {
    int observed, acted;
    int timed; /* the row has the time */
    float blank[MR_TOKEN_MOST];
} mr_tokens;

int mr_tokens_inputs(const mr_tokens *tokens); /* numbers in a row */

/* For an environment; `mean` has the means of its observations, or is NULL: zero. */
mr_tokens mr_tokens_of(const mr_env_type *type, int timed, const double *mean);

/* Those that a net was trained with: how wide it is says whether it has the time, its scaler has the means. Fails when
 * it is no policy for this environment. */
int mr_tokens_of_net(const mr_env_type *type, const mr_net *net, mr_tokens *out, mr_error *err);

/* The scaler of a policy: means and deviations of observations, the unit of returns; arrays of MR_TOKEN_MOST. */
void mr_tokens_scaler(const mr_tokens *tokens, const double *mean, const double *deviation, double return_unit,
                      double *input_mean, double *input_scale);

/* Fills one row: `numbers` has the return, the observation or the action. step: of the episode, from 0. */
void mr_token_put(const mr_tokens *tokens, mr_token kind, const float *numbers, int64_t step, float *row);

#endif
