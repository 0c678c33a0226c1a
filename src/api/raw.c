/* Raw calls: the device they use, the checks of their arguments, and bf16 on devices that compute in fp32. */
#include "api/raw.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- devices
 *
 * On a CPU a raw call borrows a device like any other call. On a GPU it cannot: a training step may hold the device for
 * long, its activations have one type, and its scratch memory grows. So raw calls on a GPU have their own devices, one
 * per dtype, which own no memory. A call holds one only while it launches its work. */

static int on_gpu(const mr_context *ctx) { return !strcmp(ctx->spec, "cuda"); }

static int check_dtype(const mr_context *ctx, mr_dtype dtype, void *stream, mr_error *err)
{
    if ((unsigned)dtype > MR_F64)
        return mr_fail(err, MR_EINVAL, "dtype = %d: must be MR_F32, MR_BF16 or MR_F64", (int)dtype);
    if (dtype != MR_F64 && !strcmp(ctx->spec, "ref64"))
        return mr_fail(err, MR_EINVAL,
                       "dtype: \"ref64\" computes only in double; open a context with device = \"ref\"");
    if (dtype == MR_F64 && strncmp(ctx->spec, "ref", 3))
        return mr_fail(err, MR_EINVAL,
                       "dtype = MR_F64: \"%s\" does not compute in double; open a context with device = \"ref\"",
                       ctx->description);
    if (stream && !on_gpu(ctx))
        return mr_fail(err, MR_EINVAL, "stream: \"%s\" has none; leave it NULL", ctx->description);
    return 0;
}

/* Opens the device for a dtype if it is not open yet. Called with the lock held. */
static int open_kept(mr_context *ctx, mr_dtype dtype, mr_error *err)
{
    mr_dev_options options = ctx->options;
    char spec[32] = "ref64";
    if (ctx->raw[dtype]) return 0;
    options.bf16 = dtype == MR_BF16;
    options.raw = 1;
    options.stream = ctx->stream;
    if (on_gpu(ctx)) snprintf(spec, sizeof spec, "cuda:%d", ctx->index);
    return mr_dev_open(spec, &options, &ctx->raw[dtype], err);
}

int mr_raw_lease_begin(mr_raw_lease *lease, mr_context *ctx, mr_dtype dtype, void *stream, mr_error *err)
{
    int status = check_dtype(ctx, dtype, stream, err);
    if (status) return status;
    *lease = (mr_raw_lease){.ctx = ctx, .kept = on_gpu(ctx) || dtype == MR_F64};
    lease->act = dtype == MR_BF16 ? sizeof(uint16_t) : dtype == MR_F32 ? sizeof(float) : sizeof(double);
    lease->wide = dtype == MR_F64 ? sizeof(double) : sizeof(float);
    if (lease->kept) {
        pthread_mutex_lock(&ctx->raw_lock);
        status = open_kept(ctx, dtype, err);
        lease->dev = ctx->raw[dtype];
        if (status) pthread_mutex_unlock(&ctx->raw_lock);
    } else {
        lease->dev = mr_context_borrow(ctx);
    }
    lease->convert = lease->dev && lease->dev->act_size != lease->act;
    return status;
}

void mr_raw_lease_end(mr_raw_lease *lease)
{
    if (lease->kept) pthread_mutex_unlock(&lease->ctx->raw_lock);
    else mr_context_return(lease->ctx, lease->dev);
}

/* ---- arguments */

int mr_raw_check_shape(int B, int T, int D, int H, int gates, mr_error *err)
{
    const size_t most = (size_t)1 << 40; /* elements, so that no sum of sizes overflows */
    const int fits = B >= 1 && T >= 1 && H >= 1 && T <= INT_MAX / B && H <= INT_MAX / 2 / gates;
    if (!fits || (size_t)B * (size_t)T > most / ((size_t)H * (size_t)gates))
        return mr_fail(err, MR_EINVAL,
                       "B = %d, T = %d, H = %d: each must be 1 or more; B·T and a token's channels must fit in an int",
                       B, T, H);
    if (D && ((size_t)B * (size_t)T > most / (size_t)D || (size_t)H * (size_t)gates > most / (size_t)D))
        return mr_fail(err, MR_EINVAL, "D = %d: too large for arrays of B = %d, T = %d, H = %d", D, B, T, H);
    return 0;
}

int mr_raw_check_buffer(const char *name, const void *room, size_t size, size_t needed, mr_error *err)
{
    if (needed && (size < needed || !room))
        return mr_fail(err, MR_EINVAL, "%s: %zu bytes where %zu are needed", name, room ? size : 0, needed);
    if ((uintptr_t)room % MR_ALIGN) return mr_fail(err, MR_EINVAL, "%s: must be aligned to %d bytes", name, MR_ALIGN);
    return 0;
}

int mr_raw_check_arrays(const mr_raw_array *arrays, int count, mr_error *err)
{
    for (const mr_raw_array *a = arrays; a < arrays + count; a++) {
        if (a->needed && !a->at) return mr_fail(err, MR_EINVAL, "%s is NULL", a->name);
        if ((uintptr_t)a->at % a->alignment)
            return mr_fail(err, MR_EINVAL, "%s: must be aligned to %zu bytes", a->name, a->alignment);
    }
    return 0;
}

int mr_raw_check_one_token(int T, mr_error *err)
{
    return T == 1 ? 0 : mr_fail(err, MR_EINVAL, "T = %d: a step takes one token", T);
}

/* ---- activations */

float *mr_raw_copy(const mr_raw_lease *lease, mr_arena *arena, size_t n)
{
    return lease->convert ? mr_arena_take(arena, n * sizeof(float)) : NULL;
}

const mr_act *mr_raw_in(const mr_raw_lease *lease, const void *array, float *copy, size_t n)
{
    if (!lease->convert || !array) return array;
    lease->dev->widen(lease->dev, copy, array, n);
    return (const mr_act *)copy;
}

mr_act *mr_raw_out(const mr_raw_lease *lease, void *array, float *copy)
{
    return lease->convert && array ? (mr_act *)copy : array;
}

void mr_raw_return(const mr_raw_lease *lease, void *array, const float *copy, size_t n)
{
    if (lease->convert && array) lease->dev->narrow(lease->dev, array, copy, n);
}
