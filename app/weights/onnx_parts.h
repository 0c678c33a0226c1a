/* What the files that turn a net into an ONNX graph share: the net's tensors and settings as values of the graph, its
 * state, and the layers that appear in many places. Activations are [batch, time, channels]. */
#ifndef MR_APP_WEIGHTS_ONNX_PARTS_H
#define MR_APP_WEIGHTS_ONNX_PARTS_H

#include "minrnn_experimental.h"
#include "weights/onnx_graph.h"

enum { MR_ONNX_NAME = 128 };

/* A part of the state: an input, and the output that is this input of the next run. Sequences start with zeros: where a
 * start is learned, the graph's state is the difference from it. */
typedef struct mr_onnx_state {
    mr_onnx_value now;         /* the state itself */
    mr_onnx_value next, start; /* the output; the learned start or 0 */
} mr_onnx_state;

typedef struct mr_onnx_export {
    mr_net *net;
    mr_onnx_graph graph;
    int status; /* the first failure, described in err; the graph is of no use after it */
    mr_error *err;
    int dim, layers;
    int found; /* the number of the tensor that was found last */
    char scope[MR_ONNX_NAME];
    mr_onnx_value input; /* ids or values */
    mr_onnx_value time;  /* of mr_onnx_time; 0: not made yet */
    /* attention: the same for all blocks; 0: not made yet */
    mr_onnx_value position, cosine, sine, visible;
} mr_onnx_export;

/* Zeroed memory, to be freed by mr_free; NULL: the export has failed. */
void *mr_onnx_alloc(mr_onnx_export *x, size_t count, size_t size);

/* Writes "PREFIX.WORD" to out, cut if it is too long, and returns it. */
const char *mr_onnx_join(char out[MR_ONNX_NAME], const char *prefix, const char *word);

/* Is a setting of the net this word? A net without the key has its default, the word `fallback`. */
int mr_onnx_is(mr_onnx_export *x, const char *key, const char *word, const char *fallback);
double mr_onnx_setting(mr_onnx_export *x, const char *key, double fallback); /* a number */

/* A tensor of the net. find: 0 where there is none. size: one of its dimensions, 0 where there is none. */
int mr_onnx_find(mr_onnx_export *x, const char *name, mr_tensor *tensor);
int64_t mr_onnx_size(mr_onnx_export *x, const char *name, int axis);
/* Its elements, to be freed by mr_free; NULL after a failure. */
float *mr_onnx_read(mr_onnx_export *x, const char *name);

/* A tensor as a value: as it is (0 where there is none), and a matrix [out, in] as [in, out]. */
mr_onnx_value mr_onnx_weight(mr_onnx_export *x, const char *name);
mr_onnx_value mr_onnx_transposed(mr_onnx_export *x, const char *name);

/* A part of the state. dims are those of one sequence; start (or NULL: zeros) is what a sequence starts with. The
 * caller computes the next state from `now` and passes it to mr_onnx_keep. */
mr_onnx_state mr_onnx_open_state(mr_onnx_export *x, const char *name, int ndim, const int64_t *dims,
                                 const float *start);
/* The same for block i: `word` is the last part of the name. */
mr_onnx_state mr_onnx_block_state(mr_onnx_export *x, int block, const char *word, int ndim, const int64_t *dims,
                                  const float *start);
void mr_onnx_keep(mr_onnx_export *x, mr_onnx_state state, mr_onnx_value next);

/* How many tokens each sequence has in this run, [1]. */
mr_onnx_value mr_onnx_time(mr_onnx_export *x);

/* [batch, time, channels] as [time, batch, channels], or back. */
mr_onnx_value mr_onnx_turn(mr_onnx_export *x, mr_onnx_value in);

/* x·Wᵀ + b, with PREFIX.weight, and PREFIX.bias where there is one; mix: where these have other names. */
mr_onnx_value mr_onnx_linear(mr_onnx_export *x, const char *prefix, mr_onnx_value in);
mr_onnx_value mr_onnx_mix(mr_onnx_export *x, const char *weight, const char *bias, mr_onnx_value in);
mr_onnx_value mr_onnx_norm(mr_onnx_export *x, const char *prefix, mr_onnx_value in);
/* The causal convolution PREFIX of a block; its state is the last inputs, named `word`. */
mr_onnx_value mr_onnx_conv(mr_onnx_export *x, int block, const char *prefix, const char *word, mr_onnx_value in);
mr_onnx_value mr_onnx_gelu(mr_onnx_export *x, mr_onnx_value in);
mr_onnx_value mr_onnx_silu(mr_onnx_export *x, mr_onnx_value in);

/* The mixers: from the input of block i, whose tensors begin with prefix, to what `down` reads. */
mr_onnx_value mr_onnx_minrnn(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in);
mr_onnx_value mr_onnx_gru(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in);
mr_onnx_value mr_onnx_lstm(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in);
mr_onnx_value mr_onnx_mamba(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in);
mr_onnx_value mr_onnx_attention(mr_onnx_export *x, int block, const char *prefix, mr_onnx_value in);

/* Refuses a file that readers of protobuf would not take: they stop at 2 GB. */
int mr_onnx_check_size(int64_t bytes, mr_error *err);

/* Is this a key of models that the graph obeys, or that does not matter for it? */
int mr_onnx_knows(const char *key);

/* The whole net, from its inputs to the scores. */
void mr_onnx_stack(mr_onnx_export *x);

#endif
