/* Tasks of formal languages: the description of each, from which chomsky.c makes batches. */
#ifndef MR_APP_TASKS_CHOMSKY_H
#define MR_APP_TASKS_CHOMSKY_H

#include "core/rng.h"

enum { MR_CHOMSKY_LONGEST = 16384 }; /* the largest length that may be asked for */

typedef struct mr_chomsky mr_chomsky;

/* One sequence to be drawn. */
typedef struct mr_chomsky_row {
    const mr_chomsky *kind;
    int length, place; /* of the whole batch: the length, and a place in 0 … length−1 */
    mr_rng *rng;
    int32_t *ids, *answer; /* room for its inputs and its answers; answers are 0 where draw writes none */
} mr_chomsky_row;

struct mr_chomsky {
    const char *name;
    /* tokens of the input, with `symbols` itself the empty token; classes of the answer */
    int symbols, classes;
    int (*inputs)(int length, int place); /* tokens of the input */
    int (*answers)(int length);           /* empty tokens after them, each with an answer */
    /* the class that ends an answer, so that the rest is not scored; 0: none does */
    int end;
    void (*draw)(const mr_chomsky_row *row);
};

/* The tasks of each protocol, ending with a name of NULL. */
extern const mr_chomsky mr_chomsky_paper[], mr_chomsky_deepmind[];

/* How long inputs and answers are. */
int mr_chomsky_whole(int length, int place); /* inputs: the length */
int mr_chomsky_one(int length);
int mr_chomsky_same(int length);

/* Symbols drawn uniformly from 0 … symbols−1. */
void mr_chomsky_symbols(mr_rng *rng, int32_t *to, int count, int symbols);

/* Tasks that both protocols have. */
void mr_chomsky_sort(const mr_chomsky_row *row);
void mr_chomsky_cycle(const mr_chomsky_row *row);
void mr_chomsky_pairs(const mr_chomsky_row *row);
void mr_chomsky_parity(const mr_chomsky_row *row);

#endif
