/* Ranks without a launcher: the threads of one process, each with an mr_comm of its own. */
#ifndef MR_TESTS_THREAD_RANKS_H
#define MR_TESTS_THREAD_RANKS_H

#include "comm/comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8 };

/* A message on its way. */
typedef struct parcel {
    struct parcel *next;
    size_t bytes;
    char data[];
} parcel;

typedef struct thread_ranks {
    pthread_mutex_t lock;
    pthread_cond_t sent;
    parcel *way[MOST_RANKS][MOST_RANKS]; /* [from][to], oldest first */
    mr_comm comm[MOST_RANKS];
    int fail_after; /* exchanges of all ranks after which each fails; −1: none does */
} thread_ranks;

static inline void thread_ranks_send(thread_ranks *r, int from, const mr_message *m)
{
    parcel *p = malloc(sizeof *p + m->bytes), **end = &r->way[from][m->peer];
    if (!p) abort();
    *p = (parcel){.bytes = m->bytes};
    memcpy(p->data, m->at, m->bytes);
    while (*end) end = &(*end)->next;
    *end = p;
}

/* Returns 0 when the message has another size than the sender's. */
static inline int thread_ranks_receive(thread_ranks *r, int to, const mr_message *m)
{
    parcel **first = &r->way[m->peer][to];
    while (!*first) pthread_cond_wait(&r->sent, &r->lock);
    parcel *p = *first;
    const int fits = p->bytes == m->bytes;
    if (fits) memcpy(m->at, p->data, m->bytes);
    *first = p->next;
    free(p);
    return fits;
}

static inline int thread_ranks_exchange(mr_comm *comm, const mr_message *list, int count, void *stream, mr_error *err)
{
    thread_ranks *r = comm->impl;
    int fits = 1;
    (void)stream;
    pthread_mutex_lock(&r->lock);
    if (r->fail_after == 0) {
        pthread_mutex_unlock(&r->lock);
        return mr_fail(err, MR_EDEVICE, "rank %d: the exchange fails on purpose", comm->rank);
    }
    if (r->fail_after > 0) r->fail_after--;
    for (int i = 0; i < count; i++)
        if (!list[i].receive) thread_ranks_send(r, comm->rank, &list[i]);
    pthread_cond_broadcast(&r->sent);
    for (int i = 0; i < count; i++)
        if (list[i].receive) fits &= thread_ranks_receive(r, comm->rank, &list[i]);
    pthread_mutex_unlock(&r->lock);
    return fits ? 0 : mr_fail(err, MR_EDEVICE, "rank %d: a message of another size", comm->rank);
}

static inline void thread_ranks_open(thread_ranks *r, int size)
{
    *r = (thread_ranks){.fail_after = -1};
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->sent, NULL);
    for (int i = 0; i < size; i++)
        r->comm[i] = (mr_comm){.rank = i,
                               .size = size,
                               .local_rank = i,
                               .local_size = size,
                               .engine = "threads",
                               .exchange = thread_ranks_exchange,
                               .impl = r};
}

/* Returns how many messages nobody received. */
static inline int thread_ranks_close(thread_ranks *r)
{
    int left = 0;
    for (int i = 0; i < MOST_RANKS * MOST_RANKS; i++)
        for (parcel *p = r->way[i / MOST_RANKS][i % MOST_RANKS], *next; p; p = next, left++) {
            next = p->next;
            free(p);
        }
    pthread_cond_destroy(&r->sent);
    pthread_mutex_destroy(&r->lock);
    return left;
}

#endif
