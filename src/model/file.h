/* Model files: safetensors with the configuration and the vocabulary in the metadata (docs/format.md). */
#ifndef MR_MODEL_FILE_H
#define MR_MODEL_FILE_H

#include "core/safetensors.h"
#include "model/model.h"
#include "model/vocab.h"

/* Absent when the weights are fp32, like every key with MR_OPT_SPARSE at its default. */

/* Reading. Together these functions check everything: format and version, every key, the set of tensors, shapes,
 * dtypes, finite values. Errors name `path`. Metadata keys that do not begin with "model." are left to the caller. */
int mr_model_read_config(const mr_st *st, const char *path, mr_config *config, mr_error *err);

/* Checks that the file's tensors are exactly those of the table, once for each prefix (NULL-terminated; "" for a
 * model), and those of the scaler. */
int mr_model_check_tensors(const mr_st *st, const char *path, const char *const *prefixes, const mr_params *params,
                           mr_error *err);

/* Checks that the file has one tensor, with this type and shape. Where F32 is wanted, F16, BF16 and F64 do. */
int mr_model_check_tensor(const mr_st *st, const char *path, const char *name, mr_st_dtype dtype, int ndim,
                          const int64_t *shape, mr_error *err);
/* Reads a checked tensor of F32, or of F16 or BF16, which it converts. Refuses NaN and infinities. */
int mr_model_read_tensor(const mr_st *st, const char *path, const char *name, float *to, mr_error *err);

/* Reads one checked set of tensors into a host vector of params->total floats. Refuses NaN and infinities. */
int mr_model_read_vector(const mr_st *st, const char *path, const char *prefix, const mr_params *params, float *to,
                         mr_error *err);

/* Sets the model's scaler to that of a model file or of a training state; a file without one turns it off. */
int mr_model_read_scaler(const mr_st *st, const char *path, mr_model *model, mr_error *err);

/* Read the rest of a model file. vocab is set to NULL where there is none. read_weights checks and reads the weights
 * and the scaler; with plan_B and plan_T it also plans the model and uploads the weights. */
int mr_model_read_vocab(mr_vocab **vocab, const mr_config *config, const mr_st *st, const char *path, mr_error *err);
int mr_model_read_step(int64_t *step, const mr_st *st, const char *path, mr_error *err);
int mr_model_read_weights(mr_model *model, const mr_st *st, const char *path, int plan_B, int plan_T, mr_error *err);

/* Writing: add the configuration's metadata, a vector's tensors, or the scaler's to a file. Vector and scaler are
 * borrowed until it is written. */
int mr_model_add_config(mr_st_writer *w, const mr_config *config);
int mr_model_add_vector(mr_st_writer *w, const char *prefix, const mr_params *params, const float *from);
int mr_model_add_scaler(mr_st_writer *w, const mr_model *model);

#endif
