/* 8-bit models, which run but cannot be trained. Every matrix but the embedding, learned positions and weight_hh is
 * stored as whole numbers −127 … 127 with one scale per row: W[n, k] = scale[n]·q[n, k].
 *
 * Such a model has two vectors instead of one: bytes for the matrices, and reals for the scales and everything else. In
 * the parameter table a matrix's offset is then that of its scales. */
#ifndef MR_MODEL_QUANTIZE_H
#define MR_MODEL_QUANTIZE_H

#include "core/safetensors.h"
#include "model/params.h"

typedef struct mr_quants {
    size_t bytes; /* length of the vector of bytes */
    size_t *at;   /* for each row of the parameter table, where its matrix begins; only for quantized ones */
    const mr_allocator *allocator; /* of `at`; the table's */
} mr_quants;

int mr_param_quantizes(const mr_param *param); /* is it a matrix that is stored in 8 bits? */

/* Lays out the table for two vectors. Groups stay together in both. Call mr_quants_free even after a failure. */
int mr_quants_layout(mr_quants *quants, mr_params *params);
void mr_quants_free(mr_quants *quants);

/* Rounds a matrix [rows, columns]. A row of zeros has the scale 0. */
void mr_quantize_matrix(size_t rows, size_t columns, const float *w, int8_t *q, float *scale);

/* Quantizes a whole model: from weights laid out by `from` to the vectors of `to`, laid out by mr_quants_layout. */
void mr_quantize_vector(const mr_params *from, const float *weights, const mr_params *to, const mr_quants *quants,
                        float *reals, int8_t *bytes);

/* Files, as in model/file.h. Check the set of tensors, their shapes and dtypes first; reading checks values and
 * scales. */
int mr_quants_check(const mr_st *st, const char *path, const mr_params *params, mr_error *err);
int mr_quants_read(const mr_st *st, const char *path, const mr_params *params, const mr_quants *quants, float *reals,
                   int8_t *bytes, mr_error *err);
/* Adds the tensors to a file that is being written; both vectors are borrowed. 0 or MR_ENOMEM. */
int mr_quants_add(mr_st_writer *w, const mr_params *params, const mr_quants *quants, const float *reals,
                  const int8_t *bytes);

#endif
