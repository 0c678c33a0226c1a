/* The courier's queue and its thread. */
#include "comm/courier.h"

#include "core/mem.h"

#include <pthread.h>

enum { ROOM = 64 };

typedef struct job {
    const mr_message *list;
    int count;
} job;

struct mr_courier {
    mr_comm *comm;
    const mr_allocator *allocator;
    job jobs[ROOM];       /* job k lies in row k % ROOM */
    int64_t posted, done; /* how many */
    int quit;
    mr_error error; /* the first one; status 0: none */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* The next job; NULL: to end. Called with the lock held. */
static const job *next_job(mr_courier *c)
{
    while (!c->quit && c->done == c->posted) pthread_cond_wait(&c->changed, &c->lock);
    return c->done < c->posted ? &c->jobs[c->done % ROOM] : NULL;
}

static void *carry(void *arg)
{
    mr_courier *c = arg;
    const job *next;
    pthread_mutex_lock(&c->lock);
    while ((next = next_job(c))) {
        mr_error err = {0};
        const job now = *next;
        int status = c->error.status;
        pthread_mutex_unlock(&c->lock);
        if (!status) status = c->comm->exchange(c->comm, now.list, now.count, NULL, &err);
        pthread_mutex_lock(&c->lock);
        if (status && !c->error.status) c->error = err, c->error.status = status;
        c->done++;
        pthread_cond_broadcast(&c->changed);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

mr_courier *mr_courier_new(mr_comm *comm, const mr_allocator *allocator)
{
    mr_courier *c = mr_alloc_with(allocator, 1, sizeof *c);
    if (!c) return NULL;
    c->comm = comm;
    c->allocator = allocator;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    if (!pthread_create(&c->thread, NULL, carry, c)) return c;
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    mr_free_with(allocator, c);
    return NULL;
}

void mr_courier_free(mr_courier *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->quit = 1;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    mr_free_with(c->allocator, c);
}

int64_t mr_courier_post(mr_courier *c, const mr_message *list, int count)
{
    pthread_mutex_lock(&c->lock);
    while (c->posted - c->done == ROOM) pthread_cond_wait(&c->changed, &c->lock);
    c->jobs[c->posted % ROOM] = (job){list, count};
    const int64_t number = c->posted++;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return number;
}

int mr_courier_wait(mr_courier *c, int64_t number, mr_error *err)
{
    pthread_mutex_lock(&c->lock);
    while (c->done <= number) pthread_cond_wait(&c->changed, &c->lock);
    const mr_error error = c->error;
    pthread_mutex_unlock(&c->lock);
    if (error.status && err) *err = error;
    return error.status;
}
