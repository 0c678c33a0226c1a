/* Rows of numbers for the tokens of a policy. */
#include "control/tokens.h"

#include <math.h>
#include <string.h>

int mr_tokens_inputs(const mr_tokens *t)
{
    return 1 + t->observed + t->acted + MR_TOKENS_A_STEP + (t->timed ? MR_TIME_NUMBERS : 0);
}

mr_tokens mr_tokens_of(const mr_env_type *type, int timed, const double *mean)
{
    mr_tokens t = {.observed = type->observed, .acted = type->acted, .timed = timed};
    for (int i = 0; mean && i < t.observed; i++) t.blank[1 + i] = (float)mean[i];
    return t;
}

int mr_tokens_of_net(const mr_env_type *type, const mr_net *net, mr_tokens *out, mr_error *err)
{
    double mean[MR_TOKEN_MOST], scale[MR_TOKEN_MOST];
    *out = mr_tokens_of(type, 0, NULL);
    out->timed = mr_net_inputs(net) == mr_tokens_inputs(out) + MR_TIME_NUMBERS;
    if (mr_net_input(net) != MR_INPUT_REALS || mr_net_inputs(net) != mr_tokens_inputs(out) ||
        mr_net_outputs(net) != type->acted || mr_net_head(net) != MR_HEAD_TOKEN || mr_net_loss(net) != MR_LOSS_MSE)
        return mr_fail(err, MR_ECONFIG,
                       "the model is no policy for %s: it reads %d and predicts %d numbers, not %d (or %d with time) "
                       "and %d",
                       type->title, mr_net_inputs(net), mr_net_outputs(net),
                       1 + type->observed + type->acted + MR_TOKENS_A_STEP,
                       1 + type->observed + type->acted + MR_TOKENS_A_STEP + MR_TIME_NUMBERS, type->acted);
    int scaled = mr_net_scaler(net, mean, scale, (size_t)mr_net_inputs(net), NULL, NULL, 0, err);
    if (scaled < 0) return scaled;
    if (scaled & 1) *out = mr_tokens_of(type, out->timed, mean + 1);
    return 0;
}

void mr_tokens_scaler(const mr_tokens *t, const double *mean, const double *deviation, double return_unit,
                      double *input_mean, double *input_scale)
{
    for (int i = 0; i < MR_TOKEN_MOST; i++) input_mean[i] = 0, input_scale[i] = 1;
    input_scale[0] = return_unit;
    for (int i = 0; i < t->observed; i++) input_mean[1 + i] = mean[i], input_scale[1 + i] = deviation[i];
}

static void put_time(int64_t step, float *to)
{
    const double share = (double)step / MR_ENV_STEPS, turn = 6.283185307179586 * share;
    *to++ = (float)share;
    for (int i = 0, speed = 1; i < MR_TIME_NUMBERS / 2; i++, speed *= 4) {
        *to++ = (float)sin(speed * turn);
        *to++ = (float)cos(speed * turn);
    }
}

void mr_token_put(const mr_tokens *t, mr_token kind, const float *numbers, int64_t step, float *row)
{
    const int flags = 1 + t->observed + t->acted;
    const int first[] = {0, 1, 1 + t->observed}, count[] = {1, t->observed, t->acted};
    memcpy(row, t->blank, (size_t)mr_tokens_inputs(t) * sizeof *row);
    memcpy(row + first[kind], numbers, (size_t)count[kind] * sizeof *row);
    row[flags + (int)kind] = 1;
    if (t->timed) put_time(step, row + flags + MR_TOKENS_A_STEP);
}
