/* Where the tokens of an attention call lie, the same for every backend. All of it follows from lengths, resets and
 * counts. */
#ifndef MR_OPS_ATTN_H
#define MR_OPS_ATTN_H

#include "core/rng.h"
#include "ops/ops.h"

/* One stream of a call. Rows are what a token may look at: first those of the cache, oldest first, then the tokens.
 * A row's number is its position too: only differences of positions matter, so nothing grows with the age of a
 * stream. */
typedef struct mr_attn_stream {
    int window, carried; /* rows of the cache: window, or 0 where there is none */
    int start;           /* the first row of the sequence that token 0 goes on with */
    int real;            /* tokens that exist */
    int fresh;           /* the sequence under way at the end started in this call, … */
    int from, before;    /* … at this token; else: 0, and how many tokens it had before */
} mr_attn_stream;

enum { MR_ATTN_KEPT = -1, MR_ATTN_EMPTY = -2 };

/* What a state's count says; whatever it is, nothing is read beyond the cache. */
MR_INLINE int mr_attn_count(double count, int window)
{
    if (!(count > 0)) return 0;
    return count < 2.0 * window - 1 ? (int)(count + 0.5) : 2 * window - 1;
}

/* tokens: those that exist; from: the last reset among them, or −1; count: of the state, or −1 where there is none. */
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

/* Where in the cache that came in row r < carried lies: the oldest token is the one that would be overwritten next. */
MR_INLINE int mr_attn_slot_in(const mr_attn_stream *s, int count, int r) { return (count + r) % s->window; }

/* Where in the cache that goes out token t lies, or −1. */
MR_INLINE int mr_attn_slot_out(const mr_attn_stream *s, int t)
{
    if (t < s->from || t >= s->real || t + s->window < s->real) return -1;
    return (s->before + t - s->from) % s->window;
}

/* What a slot of the cache that goes out holds: a token of this call, what it held before (MR_ATTN_KEPT), or
 * nothing. */
MR_INLINE int mr_attn_source(const mr_attn_stream *s, int slot)
{
    const int top = s->before + s->real - s->from - 1, age = (top - slot) % s->window;
    const int n = top - (age < 0 ? age + s->window : age);
    if (n >= s->before) return s->from + n - s->before;
    return s->fresh ? MR_ATTN_EMPTY : MR_ATTN_KEPT;
}

/* The count behind the call, kept below 2·window. */
MR_INLINE int mr_attn_count_out(const mr_attn_stream *s)
{
    const int n = s->before + s->real - s->from;
    return n < 2 * s->window ? n : s->window + n % s->window;
}

#endif
