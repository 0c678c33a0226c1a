/* Which rows each token of an attention call sees, and where rows lie in the cache. Every backend uses these functions;
 * all of it follows from lengths, resets and counts. */
#ifndef MR_OPS_ATTN_H
#define MR_OPS_ATTN_H

#include "core/rng.h"
#include "ops/ops.h"

/* One stream of a call. A row is a key and value that a token may attend to: first the rows of the cache, oldest first,
 * then the tokens of this call. A row's index is also its position: only differences of positions matter, so no number
 * grows with the age of the stream. */
typedef struct mr_attn_stream {
    int window, carried; /* carried: rows of the cache: window, or 0 without a cache */
    int start;           /* first row of the sequence that token 0 continues */
    int real;            /* number of real tokens (not padding) */
    int fresh;           /* 1: the last sequence started in this call, … */
    int from, before;    /* … at token `from`; else from = 0, and it had `before` tokens */
} mr_attn_stream;

enum { MR_ATTN_KEPT = -1, MR_ATTN_EMPTY = -2 };

/* The count of a state as an int; clamped, so that no value of it can lead outside the cache. */
MR_INLINE int mr_attn_count(double count, int window)
{
    if (!(count > 0)) return 0;
    return count < 2.0 * window - 1 ? (int)(count + 0.5) : 2 * window - 1;
}

/* tokens: number of real tokens; from: the last reset among them, or −1; count: of the state, or −1 without one. */
MR_INLINE mr_attn_stream mr_attn_stream_of(int window, int count, int tokens, int from)
{
    mr_attn_stream s;
    const int carried = count >= 0;
    s.window = window;
    s.carried = carried ? window : 0;
    s.start = carried && count < window ? window - count : 0;
    s.real = tokens;
    s.fresh = from >= 0 || !carried;
    s.from = from >= 0 ? from : 0;
    s.before = s.fresh ? 0 : count;
    return s;
}

/* The first row that token t sees, when its sequence starts at row `start`. */
MR_INLINE int mr_attn_first(const mr_attn_stream *s, int start, int t)
{
    const int oldest = s->carried + t - s->window + 1;
    return oldest > start ? oldest : start;
}

/* Slot of row r < carried in the incoming cache: the oldest token lies in the slot that is overwritten next. */
MR_INLINE int mr_attn_slot_in(const mr_attn_stream *s, int count, int r) { return (count + r) % s->window; }

/* Slot of token t in the outgoing cache, or −1 when it is not kept. */
MR_INLINE int mr_attn_slot_out(const mr_attn_stream *s, int t)
{
    if (t < s->from || t >= s->real || t + s->window < s->real) return -1;
    return (s->before + t - s->from) % s->window;
}

/* What a slot of the outgoing cache holds: a token of this call, what it held before (MR_ATTN_KEPT), or nothing. */
MR_INLINE int mr_attn_source(const mr_attn_stream *s, int slot)
{
    const int top = s->before + s->real - s->from - 1, age = (top - slot) % s->window;
    const int n = top - (age < 0 ? age + s->window : age);
    if (n >= s->before) return s->from + n - s->before;
    return s->fresh ? MR_ATTN_EMPTY : MR_ATTN_KEPT;
}

/* The count after the call, kept below 2·window. */
MR_INLINE int mr_attn_count_out(const mr_attn_stream *s)
{
    const int n = s->before + s->real - s->from;
    return n < 2 * s->window ? n : s->window + n % s->window;
}

#endif
