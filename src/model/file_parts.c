/* The parts of a model file besides its configuration: vocabulary, step, scaler and weights. */
#include "model/file.h"

#include "core/mem.h"
#include "model/quantize.h"

#include <stdlib.h>
#include <string.h>

int mr_model_read_vocab(mr_vocab **vocab, const mr_config *c, const mr_st *st, const char *path, mr_error *err)
{
    const char *text = mr_st_meta(st, "vocab");
    mr_error inner;
    *vocab = NULL;
    if (!text) return 0;
    int status = mr_vocab_parse(text, vocab, &inner);
    if (status) return mr_fail(err, status, "%s: vocab: %.800s", path, inner.text);
    if (c->input != MR_INPUT_TOKENS || c->head != MR_HEAD_TOKEN || c->loss != MR_LOSS_XENT)
        return mr_fail(err, MR_EFORMAT, "%s: has a vocabulary, but the model does not predict tokens from tokens",
                       path);
    if (c->inputs != (*vocab)->size || c->outputs != (*vocab)->size)
        return mr_fail(err, MR_EFORMAT,
                       "%s: its vocabulary has %d tokens, but the model has %lld inputs and %lld outputs", path,
                       (*vocab)->size, (long long)c->inputs, (long long)c->outputs);
    return 0;
}

int mr_model_read_step(int64_t *step, const mr_st *st, const char *path, mr_error *err)
{
    const char *text = mr_st_meta(st, "step");
    char *end;
    *step = text ? strtoll(text, &end, 10) : 0;
    if (text && (end == text || *end || *step < 0))
        return mr_fail(err, MR_EFORMAT, "%s: step = %.40s: must be a whole number", path, text);
    return 0;
}

int mr_model_read_scaler(const mr_st *st, const char *path, mr_model *model, mr_error *err)
{
    const mr_scaler *had = mr_model_scaler(model);
    mr_scaler read = {.inputs = had->inputs, .outputs = had->outputs};
    mr_error inner = {0};
    const mr_allocator *allocator = mr_model_dev(model)->allocator;
    int status = mr_scaler_read(&read, allocator, st, path, err);
    if (status) return status;
    status = mr_model_set_scaler(model, read.input_mean, read.input_scale, read.target_mean, read.target_scale, &inner);
    mr_scaler_free(&read, allocator);
    return status ? mr_fail(err, status, "%s: %.800s", path, inner.text) : 0;
}

/* Both vectors of a model in host memory; bytes only for 8-bit weights. */
typedef struct vectors {
    float *reals;
    int8_t *bytes;
} vectors;

static int read_vectors(const mr_model *model, const mr_st *st, const char *path, vectors *v, mr_error *err)
{
    static const char *const prefixes[] = {"", NULL};
    const mr_params *params = mr_model_params(model);
    const mr_quants *quants = mr_model_quants(model);
    /* Check first, so that memory is allocated only for tensors that the file really has. */
    int status =
        quants ? mr_quants_check(st, path, params, err) : mr_model_check_tensors(st, path, prefixes, params, err);
    if (status) return status;
    v->reals = mr_alloc_with(mr_model_dev(model)->allocator, params->total, sizeof *v->reals);
    v->bytes = quants ? mr_alloc_with(mr_model_dev(model)->allocator, quants->bytes, 1) : NULL;
    if (!v->reals || (quants && !v->bytes)) return mr_no_memory(err, path);
    if (quants) return mr_quants_read(st, path, params, quants, v->reals, v->bytes, err);
    return mr_model_read_vector(st, path, "", params, v->reals, err);
}

int mr_model_read_weights(mr_model *model, const mr_st *st, const char *path, int B, int T, mr_error *err)
{
    vectors v = {0};
    int status = read_vectors(model, st, path, &v, err);
    if (!status) status = mr_model_read_scaler(st, path, model, err);
    if (!status && B && T) status = mr_model_plan(model, B, T, 0, err);
    if (!status && B && T) mr_model_put(model, MR_WEIGHTS, v.reals);
    if (!status && B && T && v.bytes) mr_model_put_bytes(model, v.bytes);
    mr_free_with(mr_model_dev(model)->allocator, v.reals);
    mr_free_with(mr_model_dev(model)->allocator, v.bytes);
    return status;
}
