/* The caller's units and the network's: a mean and a scale for each channel of the values that go in, and of the
 * targets.
 *
 * The network sees (value − mean)/scale and learns (target − mean)/scale; the caller gets score·scale + mean. All of
 * it is computed on the host in double and rounded once to float, so values of 10⁶ ± 1 keep what they have, whatever
 * the device stores its activations in. A NaN stays one. */
#ifndef MR_MODEL_SCALER_H
#define MR_MODEL_SCALER_H

#include "core/batch.h"
#include "core/safetensors.h"
#include "core/status.h"
#include "minrnn.h"

typedef struct mr_scaler {
    int64_t inputs, outputs;            /* channels */
    double *input_mean, *input_scale;   /* [inputs], or NULL: values go in as they are */
    double *target_mean, *target_scale; /* [outputs], or NULL: targets and scores are the network's */
} mr_scaler;

/* Copies both pairs (NULL: none) in place of what it had; refuses means that are not finite and scales that are not
 * finite and above 0, and is then what it was before. */
int mr_scaler_set(mr_scaler *scaler, const mr_allocator *by, const double *input_mean, const double *input_scale,
                  const double *target_mean, const double *target_scale, mr_error *err);
void mr_scaler_free(mr_scaler *scaler, const mr_allocator *by);

/* n numbers of rows of `channels`, the first of them of channel `first`; to may be from. Values to the network's
 * units, scores to the caller's, and the gradient of the caller's scores to that of the network's. */
typedef void mr_scaling(size_t n, size_t first, size_t channels, const double *mean, const double *scale,
                        const float *from, float *to);
mr_scaling mr_scale_in, mr_scale_out, mr_scale_gradient;

/* Files. A scaler's tensors have the same names in a model and in the state of a training, and metadata that says
 * which there are. */
int mr_scaler_add(mr_st_writer *w, const mr_scaler *scaler); /* borrowed until the file is written */
/* Those that the metadata names are there, with their types and shapes; adds their number to *tensors. */
int mr_scaler_check(const mr_st *st, const char *path, int *tensors, mr_error *err);
int mr_scaler_read(mr_scaler *scaler, const mr_allocator *by, const mr_st *st, const char *path, mr_error *err);

/* Means and deviations of what is given to it, batch after batch: of the values over the tokens that are real, of the
 * targets over the rows that count. Deviations are those of the population; a channel that is constant has the scale
 * 1. */
typedef struct mr_scaler_fit mr_scaler_fit;
int mr_scaler_fit_new(const mr_interface *face, const mr_allocator *by, mr_scaler_fit **out, mr_error *err);
/* A number that is not finite is refused by its place, and nothing of the batch is taken. Arrays that are NULL are
 * passed over. */
int mr_scaler_fit_add(mr_scaler_fit *fit, const mr_batch *batch, mr_error *err);
/* The result, as pointers into the fit: those of a side that has seen nothing, or has nothing to scale, are NULL. */
mr_scaler mr_scaler_fit_result(mr_scaler_fit *fit);
void mr_scaler_fit_free(mr_scaler_fit *fit);

#endif
