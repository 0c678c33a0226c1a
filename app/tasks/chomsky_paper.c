/* The seven tasks of the paper, and what the other protocol has in common with them. */
#include "tasks/chomsky.h"

#include <string.h>

enum { CYCLE = 5, MOST_SYMBOLS = 63 };

int mr_chomsky_whole(int length, int place)
{
    (void)place;
    return length;
}

int mr_chomsky_one(int length)
{
    (void)length;
    return 1;
}

int mr_chomsky_same(int length) { return length; }

void mr_chomsky_symbols(mr_rng *rng, int32_t *to, int count, int symbols)
{
    for (int i = 0; i < count; i++) to[i] = (int32_t)mr_rng_below(rng, (uint32_t)symbols);
}

/* `length` symbols of the task's own, and how often each of them occurs. */
static void draw_counted(const mr_chomsky_row *row, int count[MOST_SYMBOLS])
{
    mr_chomsky_symbols(row->rng, row->ids, row->length, row->kind->symbols);
    memset(count, 0, MOST_SYMBOLS * sizeof *count);
    for (int i = 0; i < row->length; i++) count[row->ids[i]]++;
}

void mr_chomsky_sort(const mr_chomsky_row *row)
{
    int count[MOST_SYMBOLS], n = 0;
    draw_counted(row, count);
    for (int symbol = 0; symbol < row->kind->symbols; symbol++)
        while (count[symbol]-- > 0) row->answer[n++] = symbol;
}

/* Actions 0, 1, 2: a step back, none, a step ahead on a cycle of five places. */
void mr_chomsky_cycle(const mr_chomsky_row *row)
{
    int32_t sum = 0;
    mr_chomsky_symbols(row->rng, row->ids, row->length, 3);
    for (int i = 0; i < row->length; i++) sum += row->ids[i] + CYCLE - 1;
    row->answer[0] = sum % CYCLE;
}

/* Is the number of unequal neighbours odd? */
void mr_chomsky_pairs(const mr_chomsky_row *row)
{
    mr_chomsky_symbols(row->rng, row->ids, row->length, 2);
    for (int i = 1; i < row->length; i++) row->answer[0] ^= row->ids[i] != row->ids[i - 1];
}

void mr_chomsky_parity(const mr_chomsky_row *row)
{
    mr_chomsky_symbols(row->rng, row->ids, row->length, 2);
    for (int i = 0; i < row->length; i++) row->answer[0] ^= row->ids[i];
}

/* A string and its first `place` symbols again; the answer is the next symbol. */
static int string_and_copy(int length, int place) { return length + place; }

static void draw_missing_duplicate(const mr_chomsky_row *row)
{
    mr_chomsky_symbols(row->rng, row->ids, row->length, row->kind->symbols);
    memcpy(row->ids + row->length, row->ids, (size_t)row->place * sizeof *row->ids);
    row->answer[0] = row->ids[row->place];
}

/* The most frequent symbol, the larger one of two. */
static int32_t draw_most_frequent(const mr_chomsky_row *row, int count[MOST_SYMBOLS])
{
    int32_t best = 0;
    draw_counted(row, count);
    for (int32_t symbol = 1; symbol < row->kind->symbols; symbol++)
        if (count[symbol] >= count[best]) best = symbol;
    return best;
}

static void draw_majority(const mr_chomsky_row *row)
{
    int count[MOST_SYMBOLS];
    row->answer[0] = draw_most_frequent(row, count);
}

/* The last class is for what is beyond it, too; at the published lengths no count comes near it. */
static void draw_majority_count(const mr_chomsky_row *row)
{
    int count[MOST_SYMBOLS], last = row->kind->classes - 1;
    int32_t most = draw_most_frequent(row, count);
    row->answer[0] = count[most] < last ? count[most] : last;
}

#define PAPER(name, ...) {#name, __VA_ARGS__},
#define DEEPMIND(...)
const mr_chomsky mr_chomsky_paper[] = {
#include "tasks/chomsky.def"
    {0}};
