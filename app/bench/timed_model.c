/* The model that is measured, its batch, and the stopwatch. */
#include "bench/timed_model.h"

#include "core/clock.h"
#include "core/mem.h"
#include "model/quantize.h"

#include <stdlib.h>

mr_timed_shape mr_timed_paper_shape(int mixer)
{
    return (mr_timed_shape){.mixer = mixer, .dim = 64, .expansion = 6, .vocab = 16};
}

/* ---- the model */

/* The same weights in 8 bits for a model that wants them so. */
static int put_int8(mr_model *model, const mr_params *from, const float *weights, mr_error *err)
{
    const mr_params *params = mr_model_params(model);
    const mr_quants *quants = mr_model_quants(model);
    float *reals = mr_alloc(params->total, sizeof *reals);
    int8_t *bytes = mr_alloc(quants->bytes, 1);
    int status = reals && bytes ? 0 : mr_no_memory(err, "the weights");
    if (status == 0) {
        mr_quantize_vector(from, weights, params, quants, reals, bytes);
        mr_model_put(model, MR_WEIGHTS, reals);
        mr_model_put_bytes(model, bytes);
    }
    mr_free(reals);
    mr_free(bytes);
    return status;
}

static int put_weights(mr_model *model, mr_error *err)
{
    mr_config config = *mr_model_config(model);
    mr_model *plain; /* for the table of the fp32 weights */
    config.weights = MR_WEIGHTS_F32;
    int status = mr_model_new(&config, mr_model_dev(model), MR_DECAY_MATRICES, &plain, err);
    if (status) return status;
    const mr_params *params = mr_model_params(plain);
    float *weights = mr_alloc(params->total, sizeof *weights);
    if (!weights) status = mr_no_memory(err, "the weights");
    if (weights) mr_params_init(params, 1, 256, 1, weights);
    if (weights && mr_model_quants(model)) status = put_int8(model, params, weights, err);
    else if (weights) mr_model_put(model, MR_WEIGHTS, weights);
    mr_free(weights);
    mr_model_free(plain);
    return status;
}

static void fill_batch(mr_batch *batch, int vocab)
{
    for (int i = 0; i < batch->B * batch->T; i++) {
        batch->ids[i] = i * 7 % vocab;
        batch->target[i] = (i * 7 + 7) % vocab;
    }
    batch->counted = (int64_t)batch->B * batch->T;
}

static mr_config config_of(const mr_timed_shape *what, const mr_interface *interface, int T)
{
    mr_config config;
    mr_options_default(mr_config_options, &config);
    mr_config_set_interface(&config, interface);
    config.mixer = what->mixer;
    config.layers = MR_TIMED_LAYERS;
    config.dim = what->dim;
    config.expansion = what->expansion;
    config.conv = what->conv;
    config.mlp = what->mlp;
    config.weights = what->weights;
    mr_config_settle(&config, what->window ? what->window : T);
    return config;
}

int mr_timed_model_open(mr_timed_model *s, mr_dev *dev, const mr_timed_shape *what, int B, int T, int train,
                        mr_error *err)
{
    const mr_interface interface = {MR_INPUT_TOKENS, what->vocab, MR_HEAD_TOKEN, MR_LOSS_XENT, what->vocab};
    const mr_config config = config_of(what, &interface, T);
    *s = (mr_timed_model){.step = {.seed = 1,
                                   .step = 1,
                                   .lr = 1e-3,
                                   .beta1 = 0.9,
                                   .beta2 = 0.99,
                                   .eps = 1e-8,
                                   .weight_decay = 0.1,
                                   .clip = 0.25,
                                   .bias1 = 0.1,
                                   .bias2 = 0.01,
                                   .decoupled = 1}};
    int status = mr_model_new(&config, dev, MR_DECAY_MATRICES, &s->model, err);
    if (status == 0) status = mr_model_plan(s->model, B, T, train, err);
    if (status == 0) status = put_weights(s->model, err);
    if (status == 0 && mr_batch_new(&s->batch, &interface, B, T) < 0) status = mr_no_memory(err, "a batch");
    if (status < 0) return status;
    s->batch.B = B;
    s->batch.T = T;
    fill_batch(&s->batch, what->vocab);
    return 0;
}

int mr_timed_model_stream(mr_timed_model *s, mr_error *err)
{
    return mr_state_new(s->model, s->batch.B, &s->state, err);
}

void mr_timed_model_close(mr_timed_model *s)
{
    mr_state_free(s->state);
    mr_model_free(s->model);
    mr_batch_free(&s->batch);
}

/* ---- what is measured */

void mr_timed_model_step(mr_timed_model *s, int update)
{
    mr_model_learn(s->model, &s->batch, NULL, &s->step, 1.0 / (double)s->batch.counted, 1, update);
}

void mr_timed_model_token(mr_timed_model *s, int streams)
{
    float logits[MR_TIMED_STREAMS * MR_TIMED_VOCAB];
    const int T = s->batch.T;
    s->batch.T = 1;
    mr_model_forward(s->model, &s->batch, s->state, 0);
    mr_model_logits(s->model, logits, 0, (size_t)streams);
    s->batch.T = T;
}

void mr_timed_model_context(mr_timed_model *s)
{
    mr_state_reset(s->state);
    mr_model_forward(s->model, &s->batch, s->state, 0);
}

/* ---- the stopwatch */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double mr_median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return values[count / 2];
}

/* Takes the time of one run, or is negative. */
static double run_once(mr_dev *dev, void (*work)(void *arg), void *arg, mr_error *err)
{
    const double start = mr_seconds();
    work(arg);
    const int status = dev->sync(dev, err);
    return status < 0 ? status : mr_seconds() - start;
}

int mr_time(mr_dev *dev, void (*work)(void *arg), void *arg, double limit, mr_timing *out, mr_error *err)
{
    enum { WARM = 3, LEAST = 10, MOST = 201 }; /* a GPU records in its second run and replays from the third on */
    double times[MOST], spent = 0, last = 0;
    int warm = 0, count = 0;
    *out = (mr_timing){0};
    while (warm < WARM && (warm == 0 || spent + 2 * last < limit / 2)) {
        last = run_once(dev, work, arg, err);
        if (last < 0) return (int)last;
        spent += last;
        warm++;
    }
    const double enough = spent + 1;
    while (count < MOST && (count == 0 || (spent + last < limit && (count < LEAST || spent < enough)))) {
        last = times[count] = run_once(dev, work, arg, err);
        if (last < 0) return (int)last;
        spent += last;
        count++;
    }
    const double median = mr_median(times, count);
    *out = (mr_timing){.median = median, .best = times[0], .runs = count};
    return 0;
}
