/* What the scan and the cells on the caller's buffers share. Private to src/api. */
#ifndef MR_API_RAW_H
#define MR_API_RAW_H

#include "api/api.h"

/* A call's turn on a device of its dtype. */
typedef struct mr_raw_turn {
    mr_context *ctx;
    mr_dev *dev;
    int kept;         /* the context keeps the device for raw calls, and its lock is held */
    int convert;      /* the caller's activations are bf16, the device's float */
    size_t act, wide; /* bytes of the caller's activations, and of everything else */
} mr_raw_turn;

int mr_raw_turn_begin(mr_raw_turn *turn, mr_context *ctx, mr_dtype dtype, void *stream, mr_error *err);
void mr_raw_turn_end(mr_raw_turn *turn);

/* An array of the caller's: how it is called, where it is, the size of an element, whether it may be NULL. */
typedef struct mr_raw_array {
    const char *name;
    const void *at;
    size_t element;
    int needed;
} mr_raw_array;

int mr_raw_check_arrays(const mr_raw_array *arrays, int count, mr_error *err);
int mr_raw_check_room(const char *name, const void *room, size_t size, size_t needed, mr_error *err);
int mr_raw_check_shape(int B, int T, int D, int H, int gates, mr_error *err);
int mr_raw_one_token(int T, mr_error *err);

/* An activation as the device takes it: the caller's own, or a float copy of its n elements in `room`. */
const mr_act *mr_raw_in(const mr_raw_turn *turn, const void *array, float *room, size_t n);
mr_act *mr_raw_out(const mr_raw_turn *turn, void *array, float *room); /* where the device writes it … */
void mr_raw_give(const mr_raw_turn *turn, void *array, const float *room, size_t n); /* … and back to the caller */

/* The fp32 copy of n elements in a workspace, NULL where there is none. */
float *mr_raw_copy(const mr_raw_turn *turn, mr_arena *arena, size_t n);

#endif
