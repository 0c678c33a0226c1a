/* What the files of streams share. Private to src/api. */
#ifndef MR_API_STREAM_H
#define MR_API_STREAM_H

#include "api/api.h"

struct mr_stream {
    mr_net *net;
    int slot;      /* in the net's pool */
    int under_way; /* 0: a new sequence starts at the next token */
    int listed;    /* while a call that takes many goes through them */
};

mr_real *mr_stream_reals(const mr_stream *stream, mr_dev *dev);

/* Room in the turn's runner for the states of B streams. */
int mr_room_for(mr_turn *turn, int B, mr_error *err);

int mr_check_tokens(const mr_net *net, const int32_t *tokens, size_t n, mr_error *err);
/* n·inputs values for a net that takes them; a NaN is named by its index. */
int mr_check_numbers(const mr_net *net, const float *values, size_t n, mr_error *err);
/* Can tokens be drawn and fed back? */
int mr_check_drawing(const mr_net *net, mr_error *err);
int mr_take_sampling(const mr_sample_options *from, mr_sampling *how, uint64_t *position, mr_error *err);

#endif
