/* What stream.c, stream_many.c and stream_blob.c share. Private to src/api. */
#ifndef MR_API_STREAM_H
#define MR_API_STREAM_H

#include "api/api.h"

struct mr_stream {
    mr_net *net;
    int slot;      /* in the net's pool */
    int under_way; /* 0: a new sequence starts at the next token */
    int listed;    /* seen already, while a call checks its list of streams */
};

/* The stream's state in the pool. */
mr_real *mr_stream_reals(const mr_stream *stream, mr_dev *dev);

/* Makes room in the lease's runner for the states of B streams. */
int mr_runner_reserve(mr_lease *lease, int B, mr_error *err);

int mr_check_tokens(const mr_net *net, const int32_t *tokens, size_t n, mr_error *err);
/* Checks n·inputs values: the net must take values, and all must be finite. */
int mr_check_values(const mr_net *net, const float *values, size_t n, mr_error *err);
/* Checks that tokens can be sampled from this net and fed back. */
int mr_check_can_sample(const mr_net *net, mr_error *err);
int mr_read_sampling(const mr_sample_options *from, mr_sampling *how, uint64_t *position, mr_error *err);

#endif
