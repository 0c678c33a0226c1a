/* What stands behind the handles of include/minrnn.h. Private to src/api.
 *
 * A device works for one thread at a time, so a context lends them: on the CPU as many as calls run at once, of a
 * GPU one. A net lends runners in the same way: plans over its weights, which all of them share. */
#ifndef MR_API_API_H
#define MR_API_API_H

#include "api/schedule.h"
#include "model/file.h"
#include "model/model.h"
#include "model/vocab.h"

#include <pthread.h>

struct mr_context {
    mr_allocator allocator;
    mr_dev_options options;
    const char *spec; /* what further devices are opened by */
    char about[64];
    char chip[256];
    int threads;
    void (*log)(void *user, const char *line);
    void (*warn)(void *user, const char *line);
    void *log_user;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t returned;
    mr_dev **idle; /* [room] */
    int idle_count, made, room, most;
    int index;                /* of a GPU */
    void *stream;             /* the one that its device works in */
    pthread_mutex_t raw_lock; /* of what follows */
    mr_dev *raw[MR_F64 + 1];  /* devices for raw calls by dtype, NULL until asked for, see raw.c */
};

/* Never fails: where no further device is to be had, it waits for one. */
mr_dev *mr_context_borrow(mr_context *ctx);
void mr_context_return(mr_context *ctx, mr_dev *dev);
void mr_context_log(mr_context *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A caller's struct that begins with its size, as this library knows it: what an older header lacks is zero, what a
 * newer one has besides must be. */
int mr_sized_take(void *to, size_t known, const void *from, const char *type, mr_error *err);
/* Room for `needed` elements of a buffer that the library writes; `what` names it. */
int mr_check_room(const void *to, size_t capacity, size_t needed, const char *what, mr_error *err);

typedef struct mr_runner {
    mr_model *model;
    mr_real *room;  /* device: states of up to room_B streams that were gathered for one call, or NULL */
    int32_t *slots; /* device: [room_B] which ones */
    int room_B;
    struct mr_runner *next;
} mr_runner;

/* The states of a net's streams, one after another in one buffer: streams that come and go move no memory. */
typedef struct mr_pool {
    mr_real *reals;     /* device: [capacity, state_reals] */
    int capacity, used; /* used: slots that were ever taken */
    int32_t *unused;    /* [capacity] slots that were given back */
    int unused_count;
} mr_pool;

/* Metadata of a net, beside what its configuration says. */
typedef struct mr_note {
    char *key, *value;
} mr_note;

/* A forward whose backward is still to come. */
typedef struct mr_kept {
    int holding;
    pthread_t holder;
    mr_batch batch; /* its shape and which arrays it had; the pointers are not followed */
    size_t rows;
} mr_kept;

struct mr_net {
    mr_context *ctx;
    mr_interface face;
    mr_learn_settings train;
    mr_vocab *vocab; /* NULL: none */
    mr_note *notes;
    int note_count, note_room;
    mr_model *owner; /* of the weights; trains */
    float *best;     /* host, params->total, or NULL: nothing was marked */
    int64_t best_step;
    size_t state_reals;
    int reserved;           /* the owner is planned for scoring too */
    mr_batch last;          /* the batch that the owner ran last, as in mr_kept; B 0: none */
    mr_state carried;       /* where the last batch with carry left its rows; B 0: none */
    int fresh_grads;        /* the next backward starts a new sum */
    int next_micro, micros; /* the part of a step that may come next, 0: a first one */
    double sums[MR_STATS];  /* of the parts so far */
    mr_kept kept;
    int64_t steps;
    pthread_mutex_t lock; /* of what follows, of steps and of notes */
    pthread_cond_t turn;
    int running, training, wanting_to_train; /* calls that run the weights; one that changes them; such that wait */
    mr_runner *idle;
    mr_pool pool;
};

/* A call's turn on a net: with a runner planned for B × T, or alone, with the weights' owner. */
typedef struct mr_turn {
    mr_net *net;
    mr_dev *dev;
    int alone;
    mr_runner *runner; /* NULL: the turn is on the weights themselves */
} mr_turn;

int mr_turn_begin(mr_turn *turn, mr_net *net, int B, int T, mr_error *err);
int mr_turn_begin_alone(mr_turn *turn, mr_net *net, mr_error *err);
/* Waits for the device and gives everything back. Returns status, or what the device had to report. */
int mr_turn_end(mr_turn *turn, int status, mr_error *err);
/* The turn of a kept forward goes on after the call that began it: the device is given back and the net is not. */
int mr_turn_pause(mr_turn *turn, int status, mr_error *err);
int mr_turn_resume(mr_turn *turn, mr_net *net); /* in any thread; 0: there is none */

/* ---- nets, for the other files of src/api */

/* Everything but the weights of a net that is being made: defaults, locks. NULL: out of memory. */
mr_net *mr_net_blank(mr_context *ctx);
int mr_net_make_owner(mr_net *net, const mr_config *config, mr_dev *dev, mr_error *err);
int mr_net_note(mr_net *net, const char *key, const char *value); /* 0: out of memory */

/* ---- batches */

/* A caller's batch as the model takes it: checked, with a mask where its loss needs one. Ends with mr_given_free. */
typedef struct mr_given {
    mr_batch batch;
    uint8_t *mask; /* made here where the caller gave none */
} mr_given;

int mr_given_take(mr_given *given, const mr_net *net, const mr_batch *from, int targets, mr_error *err);
void mr_given_free(mr_given *given, const mr_net *net);

/* Is its size set? Asked before any work is done. */
int mr_result_check(const mr_result *to, mr_error *err);
/* Writes as much of a result as the caller's header knows; `to` may be NULL. */
int mr_result_give(mr_result *to, const mr_net *net, const double stats[MR_STATS], double norm, double lr,
                   mr_error *err);

#endif
