/* One file is a model: safetensors with the configuration and the vocabulary in its metadata (docs/format.md). */
#ifndef MR_MODEL_FILE_H
#define MR_MODEL_FILE_H

#include "core/safetensors.h"
#include "model/model.h"
#include "model/vocab.h"

/* Missing when the weights are fp32, as every key with MR_OPT_SPARSE is at its default. */
#define MR_MODEL_WEIGHTS_KEY "model.weights"

/* Together these check everything: format and version, every key, the set of tensors, shapes, dtypes, finite values.
 * Errors name `path`. Metadata keys that do not begin with "model." are the caller's. */
int mr_model_read_config(const mr_st *st, const char *path, mr_config *config, mr_error *err);

/* The file's tensors must be exactly the table's, once for each prefix ("" for a model; NULL-terminated), and its
 * scaler's. */
int mr_model_check_tensors(const mr_st *st, const char *path, const char *const *prefixes, const mr_params *params,
                           mr_error *err);

/* The same of one tensor: 0 when it is there with this type and shape. */
int mr_model_check_tensor(const mr_st *st, const char *path, const char *name, mr_st_dtype dtype, int ndim,
                          const int64_t *shape, mr_error *err);
/* A checked F32 tensor; refuses NaN and infinities. */
int mr_model_read_tensor(const mr_st *st, const char *path, const char *name, float *to, mr_error *err);

/* After the check: one set of tensors into a host vector of params->total floats; refuses NaN and infinities. */
int mr_model_read_vector(const mr_st *st, const char *path, const char *prefix, const mr_params *params, float *to,
                         mr_error *err);

/* The scaler of a model file or of a state, given to the model in place of the one it had; a file without one turns
 * it off. */
int mr_model_read_scaler(const mr_st *st, const char *path, mr_model *model, mr_error *err);

/* What else a model file holds: the vocabulary (left NULL where there is none) and the step of the metadata; the
 * scaler and the weights, checked and, the weights only with a plan (plan_B and plan_T not 0), given to the model. */
int mr_model_read_vocab(mr_vocab **vocab, const mr_config *config, const mr_st *st, const char *path, mr_error *err);
int mr_model_read_step(int64_t *step, const mr_st *st, const char *path, mr_error *err);
int mr_model_read_weights(mr_model *model, const mr_st *st, const char *path, int plan_B, int plan_T, mr_error *err);

/* Adds the configuration's metadata, a vector's tensors, or the scaler's, to a file that is being written. Vector
 * and scaler are borrowed. */
int mr_model_add_config(mr_st_writer *w, const mr_config *config);
int mr_model_add_vector(mr_st_writer *w, const char *prefix, const mr_params *params, const float *from);
int mr_model_add_scaler(mr_st_writer *w, const mr_model *model);

#endif
