/* The numbers of a safetensors tensor as floats, whichever type of float the file has. */
#include "core/half.h"
#include "core/safetensors.h"

#include <math.h>
#include <string.h>

enum {
    SHOWN = 100, /* bytes of a name that an error message repeats */
    PIECE = 512  /* doubles that are converted at a time */
};

int mr_st_is_float(mr_st_dtype dtype)
{
    return dtype == MR_ST_F32 || dtype == MR_ST_F16 || dtype == MR_ST_BF16 || dtype == MR_ST_F64;
}

/* Doubles are read a piece at a time. NaN and infinity stay what they are, for the caller to find. */
static int read_doubles(const mr_st *st, const char *path, const mr_st_tensor *tensor, float *to, mr_error *err)
{
    double piece[PIECE];
    const size_t count = mr_st_elements(tensor);
    for (size_t at = 0; at < count; at += PIECE) {
        const size_t n = count - at < PIECE ? count - at : PIECE;
        mr_st_tensor part = *tensor;
        part.offset += at * sizeof *piece;
        part.bytes = n * sizeof *piece;
        if (part.data) part.data = (const char *)part.data + at * sizeof *piece;
        const int status = mr_st_read(st, path, &part, piece, err);
        if (status) return status;
        for (size_t i = 0; i < n; i++) {
            if (isfinite(piece[i]) && isinf((float)piece[i]))
                return mr_fail(err, MR_EFORMAT, "%s: tensor %.*s: element %zu is too large for a float", path, SHOWN,
                               tensor->name, at + i);
            to[at + i] = (float)piece[i];
        }
    }
    return 0;
}

/* Numbers of 16 bits are read into the upper half of `to` and widened from the front: each is read before anything is
 * written over it. */
int mr_st_read_floats(const mr_st *st, const char *path, const mr_st_tensor *tensor, float *to, mr_error *err)
{
    const size_t count = mr_st_elements(tensor);
    if (tensor->dtype == MR_ST_F32) return mr_st_read(st, path, tensor, to, err);
    if (tensor->dtype == MR_ST_F64) return read_doubles(st, path, tensor, to, err);
    if (!mr_st_is_float(tensor->dtype))
        return mr_fail(err, MR_EFORMAT, "%s: tensor %.*s is %s, not of floats", path, SHOWN, tensor->name,
                       mr_st_dtype_name(tensor->dtype));
    const char *narrow = (const char *)to + tensor->bytes;
    int status = mr_st_read(st, path, tensor, (char *)to + tensor->bytes, err);
    for (size_t i = 0; !status && i < count; i++) {
        uint16_t bits;
        memcpy(&bits, narrow + i * sizeof bits, sizeof bits);
        to[i] = tensor->dtype == MR_ST_F16 ? mr_f16_read(bits) : mr_bf16_read(bits);
    }
    return status;
}
