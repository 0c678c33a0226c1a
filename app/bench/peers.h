/* Other programs' times beside ours, measured in the same run. */
#ifndef MR_APP_BENCH_PEERS_H
#define MR_APP_BENCH_PEERS_H

#include "bench/bench.h"

enum { MR_PEER_ROWS = 128 };

/* Our rows, kept to be compared. */
typedef struct mr_bench_rows {
    mr_bench_row list[MR_PEER_ROWS];
    int count;
} mr_bench_rows;

void mr_bench_keep(mr_bench_rows *rows, const mr_bench_row *row);

typedef struct mr_peer_row {
    const char *bench, *peer;
    char shape[32];
    double ms;                /* 0: it failed, see error */
    const mr_bench_row *ours; /* NULL: nothing of ours is the same work */
    const char *error;
} mr_peer_row;

/* The path that MINRNN_PEERS holds, or an error that says what is missing. */
int mr_bench_peers_find(const char **script, mr_error *err);

/* Runs the script: it prints one JSON object a line with "bench" (layer, step, lm, decode), "peer", "B", "T" and
 * "ms" or "us". `benches` are the words it is given, NULL-terminated. The first row names the peer's version. */
int mr_bench_peers(mr_bench *b, const char *script, const mr_bench_rows *rows, const char *const *benches,
                   void (*on_peer)(void *arg, const mr_peer_row *row), mr_error *err);

#endif
