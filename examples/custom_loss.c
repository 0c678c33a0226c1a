/* Trains with your own loss. The series has outliers, which mislead a squared error; the Huber loss, whose gradient is
 * limited to ±delta, ignores them. Both train the same net and are compared with the series without outliers.
 *     cc custom_loss.c -lminrnn -lm -o custom_loss && ./custom_loss */
#include <math.h>
#include <minrnn_experimental.h>
#include <stdio.h>
#include <string.h>

enum { B = 8, T = 24, N = B * T, STEPS = 400 };

static const char *const settings[] = {"input", "reals", "inputs", "1", "loss", "mse",   "outputs", "1",
                                       "dim",   "16",    "layers", "2", "lr",   "0.005", NULL};

/* A wave with another phase in each sequence. `clean` is the next value, `noisy` the same with one outlier in eight. */
static void make_series(float *values, float *clean, float *noisy)
{
    unsigned random = 7;
    for (int i = 0; i < N; i++) {
        const double at = 0.4 * (i % T) + i / T;
        random = random * 1664525u + 1013904223u;
        values[i] = (float)sin(at);
        clean[i] = (float)sin(at + 0.4);
        noisy[i] = clean[i] + (random >> 29 == 0 ? 8 : 0);
    }
}

/* One training step with the mean Huber loss. */
static int huber_step(mr_net *net, const mr_batch *batch, const float *target, double delta, mr_error *err)
{
    float scores[N], gradient[N];
    int status = mr_net_keep_forward(net, batch, NULL, scores, N, err);
    if (status) return status;
    for (int i = 0; i < N; i++) { /* the gradient of a mean: divide by N */
        const double off = (double)scores[i] - target[i];
        gradient[i] = (float)(fmax(-delta, fmin(delta, off)) / N);
    }
    status = mr_net_backward(net, gradient, N, err);
    return status ? status : mr_net_update(net, NULL, err);
}

static int train(mr_context *ctx, double delta, double *error, mr_error *err)
{
    static float values[N], clean[N], noisy[N], scores[N];
    mr_net *net;
    mr_batch batch = MR_BATCH;
    batch.B = B, batch.T = T, batch.values = values, batch.target_values = noisy;
    make_series(values, clean, noisy);
    int status = mr_net_create(ctx, settings, &net, err);
    for (int i = 0; !status && i < STEPS; i++)
        status = delta > 0 ? huber_step(net, &batch, noisy, delta, err) : mr_net_train(net, &batch, NULL, err);
    if (!status) status = mr_net_forward(net, &batch, scores, N, err);
    *error = 0;
    for (int i = 0; i < N; i++) *error += fabs((double)scores[i] - clean[i]) / N;
    mr_net_free(net);
    return status;
}

int main(void)
{
    mr_error err;
    mr_context *ctx;
    double squared, huber;
    if (mr_context_new(NULL, &ctx, &err) || train(ctx, 0, &squared, &err) || train(ctx, 0.1, &huber, &err))
        return fprintf(stderr, "%s\n", err.text), 1;
    printf("off by %.3f with squared errors, by %.3f with Huber's loss\n", squared, huber);
    mr_context_free(ctx);
    return 0;
}
