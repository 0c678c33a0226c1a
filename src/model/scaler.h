/* The scaler: a mean and a scale for each channel of the input values and of the targets, to convert between the
 * caller's units and the network's.
 *
 * The network sees (value − mean)/scale and learns (target − mean)/scale; the caller gets score·scale + mean. This is
 * computed on the host in double and rounded once to float, so values such as 10⁶ ± 1 keep their precision, whatever
 * type the device has for activations. NaN stays NaN. */
#ifndef MR_MODEL_SCALER_H
#define MR_MODEL_SCALER_H

#include "core/batch.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "minrnn.h"

typedef struct mr_scaler {
    int64_t inputs, outputs;            /* channels */
    double *input_mean, *input_scale;   /* [inputs], or NULL: values are not scaled */
    double *target_mean, *target_scale; /* [outputs], or NULL: targets and scores are not scaled */
} mr_scaler;

/* Replaces both pairs by copies; a pair that is NULL is off. Means must be finite, scales finite and above 0; otherwise
 * nothing changes. */
int mr_scaler_set(mr_scaler *scaler, const mr_allocator *allocator, const double *input_mean, const double *input_scale,
                  const double *target_mean, const double *target_scale, mr_error *err);
void mr_scaler_free(mr_scaler *scaler, const mr_allocator *allocator);

/* Convert n numbers of rows with `channels` channels; the first number is of channel `first`. `to` may be `from`. in:
 * values and targets to the network's units. out: scores to the caller's units. gradient: the gradient with respect
 * to the caller's scores to that with respect to the network's. */
typedef void mr_scaling(size_t n, size_t first, size_t channels, const double *mean, const double *scale,
                        const float *from, float *to);
mr_scaling mr_scale_in, mr_scale_out, mr_scale_gradient;

/* Files. A scaler's tensors have the same names in a model file and in the state of a training run; the metadata says
 * which of them exist. */
int mr_scaler_add(mr_st_writer *w, const mr_scaler *scaler); /* borrowed until the file is written */
/* Checks that the tensors which the metadata promises exist with the right types and shapes. Adds their number to
 * *tensors. */
int mr_scaler_check(const mr_st *st, const char *path, int *tensors, mr_error *err);
int mr_scaler_read(mr_scaler *scaler, const mr_allocator *allocator, const mr_st *st, const char *path, mr_error *err);

/* Fits a scaler, batch by batch: means and deviations of the values over real tokens (not padding), of the targets over
 * the rows that count. Deviations are those of the population; a constant channel gets the scale 1. */
typedef struct mr_scaler_fit mr_scaler_fit;
int mr_scaler_fit_new(const mr_interface *interface, const mr_allocator *allocator, mr_scaler_fit **out, mr_error *err);
/* Adds a batch. Refuses numbers that are not finite, naming the first, and then adds nothing. Ignores arrays that are
 * NULL. */
int mr_scaler_fit_add(mr_scaler_fit *fit, const mr_batch *batch, mr_error *err);
/* The result, as pointers into the fit. The pair of a side without data, or that cannot be scaled, is NULL. */
mr_scaler mr_scaler_fit_result(mr_scaler_fit *fit);
void mr_scaler_fit_free(mr_scaler_fit *fit);

#endif
