/* What scan.c and cell.c share: calls on the caller's own buffers. Private to src/api. */
#ifndef MR_API_RAW_H
#define MR_API_RAW_H

#include "api/api.h"

/* Which of the three calls it is; ANY: not known yet. */
typedef enum mr_raw_call { MR_RAW_FORWARD, MR_RAW_BACKWARD, MR_RAW_STEP, MR_RAW_ANY } mr_raw_call;

/* A call's right to use a device for its dtype. */
typedef struct mr_raw_lease {
    mr_context *ctx;
    mr_dev *dev;
    int kept;         /* the context keeps the device for raw calls, and its lock is held */
    int convert;      /* the caller's activations are bf16, the device's float */
    size_t act, wide; /* bytes of the caller's activations, and of everything else */
} mr_raw_lease;

int mr_raw_lease_begin(mr_raw_lease *lease, mr_context *ctx, mr_dtype dtype, void *stream, mr_error *err);
void mr_raw_lease_end(mr_raw_lease *lease);

/* One of the caller's arrays. */
typedef struct mr_raw_array {
    const char *name;
    const void *at;
    size_t alignment;
    int needed; /* 0: may be NULL */
} mr_raw_array;

int mr_raw_check_arrays(const mr_raw_array *arrays, int count, mr_error *err);
int mr_raw_check_buffer(const char *name, const void *room, size_t size, size_t needed, mr_error *err);
int mr_raw_check_shape(int B, int T, int D, int H, int gates, mr_error *err); /* D: 0 where there is no x */
int mr_raw_check_one_token(int T, mr_error *err);

/* An activation for the device: the caller's array itself, or a float copy of its n elements in `copy`. */
const mr_act *mr_raw_in(const mr_raw_lease *lease, const void *array, float *copy, size_t n);
mr_act *mr_raw_out(const mr_raw_lease *lease, void *array, float *copy); /* where the device writes its result */
/* Converts a result that the device wrote into `copy` to the caller's array. */
void mr_raw_return(const mr_raw_lease *lease, void *array, const float *copy, size_t n);

/* Takes room in the workspace for a float copy of n elements; NULL: no conversion is needed. */
float *mr_raw_copy(const mr_raw_lease *lease, mr_arena *arena, size_t n);

#endif
