/* One file is a model: safetensors with the configuration and the vocabulary in its metadata (docs/format.md). */
#ifndef MR_MODEL_FILE_H
#define MR_MODEL_FILE_H

#include "core/safetensors.h"
#include "model/model.h"

/* Metadata besides the configuration ("task.name", "vocab", …), kept by the caller. */
typedef struct mr_meta {
    const char *key, *value;
} mr_meta; /* a list ends with key NULL */

int mr_model_save(const char *path, const mr_config *config, const mr_params *params, const float *weights,
                  const mr_meta *extra, mr_error *err);

/* Checks everything: format version, every key, the set of tensors, shapes, dtypes, finite values. */
int mr_model_read_config(const mr_st *st, const char *path, mr_config *config, mr_error *err);
int mr_model_read_weights(const mr_st *st, const char *path, const char *prefix, const mr_params *params, float *weights, mr_error *err);
/* Every metadata key must be of the model's or begin with one of these prefixes (NULL-terminated). */
int mr_model_check_meta(const mr_st *st, const char *path, const char *const *prefixes, mr_error *err);

#endif
