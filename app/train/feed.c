#include "train/feed.h"

#include "core/mem.h"

#include <pthread.h>

enum { SLOTS = 2 };

struct mr_feed {
    const mr_task *task;
    const mr_net *net;
    mr_batch slot[SLOTS];
    int status[SLOTS]; /* of looking the batch through */
    mr_error error[SLOTS];
    int accumulate;
    int64_t first;
    int64_t made, taken; /* batches made and handed out; slot k % SLOTS holds batch k */
    int quit, started;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

static void *make_batches(void *arg)
{
    mr_feed *f = arg;
    for (int64_t k = 0;; k++) {
        pthread_mutex_lock(&f->lock);
        /* Batch k takes the slot of batch k − SLOTS, which is in use until the one after it has been taken. */
        while (!f->quit && k >= SLOTS && f->taken < k - SLOTS + 2) pthread_cond_wait(&f->changed, &f->lock);
        int quit = f->quit;
        pthread_mutex_unlock(&f->lock);
        if (quit) return NULL;
        mr_batch *batch = &f->slot[k % SLOTS];
        f->task->type->train_batch(f->task, (uint32_t)(f->first + k / f->accumulate), (uint32_t)(k % f->accumulate),
                                   batch);
        f->status[k % SLOTS] = mr_net_check(f->net, batch, &f->error[k % SLOTS]);
        pthread_mutex_lock(&f->lock);
        f->made = k + 1;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
    }
}

int mr_feed_new(const mr_task *task, const mr_net *net, int64_t first, int accumulate, mr_feed **out, mr_error *err)
{
    mr_feed *f = mr_alloc(1, sizeof *f);
    *out = NULL;
    if (!f) return mr_no_memory(err, "the feed");
    f->task = task;
    f->net = net;
    f->first = first;
    f->accumulate = accumulate;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    int status = 0;
    mr_shape shapes[2];
    mr_task_shapes(task, shapes);
    for (int i = 0; !status && i < SLOTS; i++)
        status = mr_batch_new(&f->slot[i], &task->face, shapes[0].B, shapes[0].T);
    if (!status && !pthread_create(&f->thread, NULL, make_batches, f)) {
        f->started = 1;
        *out = f;
        return 0;
    }
    mr_feed_free(f);
    return mr_no_memory(err, "batches; lower --batch or the length");
}

const mr_batch *mr_feed_next(mr_feed *f, mr_error *err)
{
    pthread_mutex_lock(&f->lock);
    while (f->made <= f->taken) pthread_cond_wait(&f->changed, &f->lock);
    const int64_t slot = f->taken++ % SLOTS;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    if (!f->status[slot]) return &f->slot[slot];
    mr_error_set(err, f->status[slot], "a batch of the task %s: %.800s", f->task->type->name, f->error[slot].text);
    return NULL;
}

void mr_feed_free(mr_feed *f)
{
    if (!f) return;
    if (f->started) {
        pthread_mutex_lock(&f->lock);
        f->quit = 1;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
        pthread_join(f->thread, NULL);
    }
    for (int i = 0; i < SLOTS; i++) mr_batch_free(&f->slot[i]);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    mr_free(f);
}
