/* A ring of two batches: the thread fills one while the loop trains on the other. */
#include "train/prefetch.h"

#include "core/mem.h"

#include <pthread.h>

enum { SLOTS = 2 };

struct mr_prefetch {
    const mr_task *task;
    const mr_net *net;
    mr_batch slot[SLOTS];
    int status[SLOTS]; /* of checking the batch */
    mr_error error[SLOTS];
    int64_t step;        /* the first one */
    int first, count;    /* micro-batches of each */
    int64_t made, taken; /* batches made and handed out; slot k % SLOTS holds batch k */
    int quit, started;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static void *make_batches(void *arg)
{
    mr_prefetch *p = arg;
    for (int64_t k = 0;; k++) {
        pthread_mutex_lock(&p->lock);
        /* Batch k takes the slot of batch k − SLOTS, which is in use until the one after it has been taken. */
        while (!p->quit && k >= SLOTS && p->taken < k - SLOTS + 2) pthread_cond_wait(&p->changed, &p->lock);
        int quit = p->quit;
        pthread_mutex_unlock(&p->lock);
        if (quit) return NULL;
        mr_batch *batch = &p->slot[k % SLOTS];
        p->task->type->train_batch(p->task, (uint32_t)(p->step + k / p->count), (uint32_t)(p->first + k % p->count),
                                   batch);
        p->status[k % SLOTS] = mr_net_check(p->net, batch, &p->error[k % SLOTS]);
        pthread_mutex_lock(&p->lock);
        p->made = k + 1;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
}

int mr_prefetch_new(const mr_task *task, const mr_net *net, int64_t step, int first, int end, mr_prefetch **out,
                    mr_error *err)
{
    mr_prefetch *p = mr_alloc(1, sizeof *p);
    *out = NULL;
    if (!p) return mr_no_memory(err, "batches");
    p->task = task;
    p->net = net;
    p->step = step;
    p->first = first;
    p->count = end - first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    int status = 0;
    mr_shape shapes[2];
    mr_task_shapes(task, shapes);
    for (int i = 0; !status && i < SLOTS; i++)
        status = mr_batch_new(&p->slot[i], &task->interface, shapes[0].B, shapes[0].T);
    if (!status && !pthread_create(&p->thread, NULL, make_batches, p)) {
        p->started = 1;
        *out = p;
        return 0;
    }
    mr_prefetch_free(p);
    return mr_no_memory(err, "batches; lower --batch or the length");
}

const mr_batch *mr_prefetch_next(mr_prefetch *p, mr_error *err)
{
    pthread_mutex_lock(&p->lock);
    while (p->made <= p->taken) pthread_cond_wait(&p->changed, &p->lock);
    const int64_t slot = p->taken++ % SLOTS;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (!p->status[slot]) return &p->slot[slot];
    mr_error_set(err, p->status[slot], "a batch of the task %s: %.800s", p->task->type->name, p->error[slot].text);
    return NULL;
}

void mr_prefetch_free(mr_prefetch *p)
{
    if (!p) return;
    if (p->started) {
        pthread_mutex_lock(&p->lock);
        p->quit = 1;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
    }
    for (int i = 0; i < SLOTS; i++) mr_batch_free(&p->slot[i]);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    mr_free(p);
}
