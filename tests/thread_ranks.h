/* Ranks that are threads of one process: an engine of src/comm for tests, with a queue from each rank to each other. A
 * message is copied when it is sent, so that what was sent too early stays wrong. */
#ifndef MR_TESTS_THREAD_RANKS_H
#define MR_TESTS_THREAD_RANKS_H

#include "comm/comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8 };

typedef struct letter {
    struct letter *next;
    size_t bytes;
    char data[];
} letter;

typedef struct team {
    pthread_mutex_t lock;
    pthread_cond_t posted;
    letter *queue[MOST_RANKS][MOST_RANKS]; /* [from][to], the oldest first */
    mr_comm comms[MOST_RANKS];
    int wrong; /* messages whose sizes differ on both sides */
} team;

static inline void send_letter(team *t, int from, const mr_message *m)
{
    letter *l = malloc(sizeof *l + m->bytes), **end = &t->queue[from][m->peer];
    *l = (letter){.bytes = m->bytes};
    memcpy(l->data, m->at, m->bytes);
    while (*end) end = &(*end)->next;
    *end = l;
    pthread_cond_broadcast(&t->posted);
}

static inline void take_letter(team *t, int to, const mr_message *m)
{
    letter **first = &t->queue[m->peer][to];
    while (!*first) pthread_cond_wait(&t->posted, &t->lock);
    letter *l = *first;
    *first = l->next;
    if (l->bytes != m->bytes) t->wrong++;
    else memcpy(m->at, l->data, l->bytes);
    free(l);
}

static inline int exchange_letters(mr_comm *comm, const mr_message *list, int count, void *stream, mr_error *err)
{
    team *t = comm->impl;
    (void)stream;
    (void)err;
    pthread_mutex_lock(&t->lock);
    for (int i = 0; i < count; i++)
        if (!list[i].receive) send_letter(t, comm->rank, &list[i]);
    for (int i = 0; i < count; i++)
        if (list[i].receive) take_letter(t, comm->rank, &list[i]);
    pthread_mutex_unlock(&t->lock);
    return 0;
}

static inline void team_begin(team *t, int ranks)
{
    memset(t, 0, sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->posted, NULL);
    for (int r = 0; r < ranks; r++)
        t->comms[r] = (mr_comm){.rank = r,
                                .size = ranks,
                                .local_rank = r,
                                .local_size = ranks,
                                .engine = "threads",
                                .exchange = exchange_letters,
                                .impl = t};
}

/* Returns how many messages were wrong or never taken. */
static inline int team_end(team *t)
{
    for (int a = 0; a < MOST_RANKS; a++)
        for (int b = 0; b < MOST_RANKS; b++)
            for (letter *l; (l = t->queue[a][b]); t->wrong++) {
                t->queue[a][b] = l->next;
                free(l);
            }
    pthread_cond_destroy(&t->posted);
    pthread_mutex_destroy(&t->lock);
    return t->wrong;
}

#endif
