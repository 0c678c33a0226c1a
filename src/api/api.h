/* What stands behind the handles of include/minrnn.h. Private to src/api.
 *
 * A device works for one thread at a time, so a context lends them: on the CPU as many as calls run at once, of a GPU one. A net
 * lends runners in the same way: plans over its weights, which all of them share. */
#ifndef MR_API_API_H
#define MR_API_API_H

#include "model/file.h"
#include "model/model.h"
#include "api/schedule.h"
#include "minrnn_experimental.h"
#include "model/vocab.h"

#include <pthread.h>

struct mr_context {
    mr_allocator allocator;
    mr_dev_options options;
    const char *spec; /* what further devices are opened by */
    char about[64];
    void (*log)(void *user, const char *line);
    void *log_user;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t returned;
    mr_dev **idle; /* [room] */
    int idle_count, made, room, most;
};

/* Never fails: where no further device is to be had, it waits for one. */
mr_dev *mr_context_borrow(mr_context *ctx);
void mr_context_return(mr_context *ctx, mr_dev *dev);
void mr_context_log(mr_context *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A caller's struct that begins with its size, as this library knows it: what an older header lacks is zero, what a newer one
 * has besides must be. */
int mr_sized_take(void *to, size_t known, const void *from, const char *type, mr_error *err);

typedef struct mr_runner {
    mr_model *model;
    mr_state *many; /* of many_B streams, or NULL */
    int many_B;
    struct mr_runner *next;
} mr_runner;

struct mr_net {
    mr_context *ctx;
    mr_interface face;
    mr_learn_settings train;
    mr_vocab vocab; /* size 0: none */
    mr_meta *meta;  /* the file's other metadata; ends with key NULL */
    mr_model *owner; /* of the weights; trains */
    size_t state_reals;
    int64_t steps;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t turn;
    int running, training, wanting_to_train; /* calls that run the weights; one that changes them; such that wait */
    mr_runner *idle;
};

/* A call's turn on a net: with a runner planned for B × T, or alone, with the weights' owner. */
typedef struct mr_turn {
    mr_net *net;
    mr_dev *dev;
    int alone;
    mr_runner *runner; /* NULL: the turn is on the weights themselves */
} mr_turn;

int mr_turn_begin(mr_turn *turn, mr_net *net, int B, int T, mr_error *err);
void mr_turn_begin_alone(mr_turn *turn, mr_net *net);
/* Waits for the device and gives everything back. Returns status, or what the device had to report. */
int mr_turn_end(mr_turn *turn, int status, mr_error *err);

#endif
