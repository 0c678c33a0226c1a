/* The structs behind the handles of include/minrnn.h, and what the files of src/api share. Private to src/api.
 *
 * A device works for one thread at a time, so contexts lend devices: on the CPU as many as there are calls at once, of
 * a GPU only one. Nets lend runners in the same way: a runner is a plan (memory for batches) over the net's weights,
 * which all runners share. A call holds both through an mr_lease. */
#ifndef MR_API_API_H
#define MR_API_API_H

#include "api/schedule.h"
#include "model/exchange.h"
#include "model/file.h"
#include "model/model.h"
#include "model/sequence.h"
#include "model/vocab.h"

#include <pthread.h>

struct mr_context {
    mr_allocator allocator;
    mr_dev_options options;
    const char *spec; /* for mr_dev_open, when another device is needed */
    char description[64];
    char chip[256];
    int threads;
    void (*log)(void *user, const char *line);
    void (*warn)(void *user, const char *line);
    void *log_user;
    pthread_mutex_t lock; /* protects the next four lines */
    pthread_cond_t returned;
    mr_dev **idle; /* [room] */
    int idle_count, devices, room, max_devices;
    mr_comm *comm;       /* the ranks that it has joined; NULL: none */
    mr_courier *courier; /* may be NULL */
    mr_channel channel;  /* for mr_context_gather */
    char engine[80];
    int shard;                /* ranks share the optimiser's memory */
    int cut;                  /* ranks that share a sequence; 1: none do */
    int index;                /* of a GPU */
    void *stream;             /* that the GPU's device works in */
    pthread_mutex_t raw_lock; /* protects raw */
    mr_dev *raw[MR_F64 + 1];  /* devices for raw calls, by dtype; opened when first needed, see raw.c */
};

/* Lends a device. Never fails: when no further device can be opened, it waits for one. */
mr_dev *mr_context_borrow(mr_context *ctx);
void mr_context_return(mr_context *ctx, mr_dev *dev);
void mr_context_log(mr_context *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Copies a caller's struct that begins with its size. Fields missing in an older header become zero; fields of a newer
 * header that this library does not know must be zero. */
int mr_sized_copy(void *to, size_t known, const void *from, const char *type, mr_error *err);
/* Checks that the caller's buffer `what` has room for `needed` elements. */
int mr_check_capacity(const void *to, size_t capacity, size_t needed, const char *what, mr_error *err);

typedef struct mr_runner {
    mr_model *model;
    mr_real *states; /* device: the states of up to states_B streams, gathered for one call; or NULL */
    int32_t *slots;  /* device: [states_B] their slots in the pool */
    int states_B;
    struct mr_runner *next;
} mr_runner;

/* The states of a net's streams in one buffer, one slot each: streams come and go without moving memory. */
typedef struct mr_state_pool {
    mr_real *reals;     /* device: [capacity, state_reals] */
    int capacity, used; /* used: slots that were ever taken */
    int32_t *unused;    /* [capacity] slots that were given back */
    int unused_count;
} mr_state_pool;

/* One entry of a net's metadata, apart from what saving writes by itself. */
typedef struct mr_meta_entry {
    char *key, *value;
} mr_meta_entry;

/* A forward whose backward is still to come. */
typedef struct mr_kept_forward {
    int holding;
    pthread_t holder;
    mr_batch batch; /* its shape and which arrays it had; the pointers are not followed */
    size_t rows;
} mr_kept_forward;

struct mr_net {
    mr_context *ctx;
    mr_interface interface;
    mr_learn_settings train;
    mr_recomputing chosen; /* what the plan for training computes again; auto: there is none yet */
    mr_vocab *vocab;       /* NULL: none */
    mr_meta_entry *meta;
    int meta_count, meta_room;
    mr_model *owner;       /* owns the weights and trains them */
    mr_sequence *sequence; /* the ranks that share its sequences, or NULL */
    float *best;           /* host, params->total; NULL: nothing was marked as best */
    int64_t best_step;
    size_t state_reals;
    int reserved;                   /* the owner's plan is for scoring too */
    mr_batch last_batch;            /* the batch that the owner ran last, as in mr_kept_forward; B 0: none */
    mr_state carried;               /* the state after the last batch with carry; B 0: none */
    int fresh_grads;                /* the next backward starts a new sum */
    int next_micro, micros;         /* the micro-batch that may come next; 0: only a first one */
    double sums[MR_STATS];          /* over the micro-batches so far, */
    double (*micro_sums)[MR_STATS]; /* [micro_room] and with ranks those of each of this rank's */
    int micro_room;
    mr_kept_forward kept;
    int64_t steps;
    pthread_mutex_t lock; /* protects what follows, and steps and meta */
    pthread_cond_t lease_ended;
    int running, training, waiting_to_train; /* calls that read the weights, that change them (0 or 1), that wait to */
    mr_runner *idle;
    mr_state_pool pool;
};

/* A call's right to use a net, with a device. Shared: it runs the weights in a runner planned for B × T. Exclusive: it
 * uses the weights' owner, and no other call runs. */
typedef struct mr_lease {
    mr_net *net;
    mr_dev *dev;
    int exclusive;
    mr_runner *runner; /* NULL: exclusive */
} mr_lease;

int mr_lease_begin(mr_lease *lease, mr_net *net, int B, int T, mr_error *err);
int mr_lease_begin_exclusive(mr_lease *lease, mr_net *net, mr_error *err);
/* Waits for the device and returns everything. The result is `status`, or if that is 0 the device's error. */
int mr_lease_end(mr_lease *lease, int status, mr_error *err);
/* Ends a call but keeps the net locked for a kept forward: only the device is returned. After a failure it is
 * mr_lease_end. */
int mr_lease_hold(mr_lease *lease, int status, mr_error *err);
/* Takes over a lease that was held, in any thread. Returns 0 when there is none. */
int mr_lease_resume(mr_lease *lease, mr_net *net);

/* ---- ranks */

static inline int mr_has_ranks(const mr_net *net) { return net->ctx->comm != NULL; }
static inline int mr_writes(const mr_net *net) { return !net->ctx->comm || net->ctx->comm->rank == 0; }
void mr_context_leave(mr_context *ctx);
/* Refuses what only a process alone can do. */
int mr_check_alone(const mr_net *net, const char *what, mr_error *err);
/* Room for the sums of this rank's micro-batches of a step. */
int mr_keep_micro_sums(mr_net *net, int micros, mr_error *err);
/* Adds up the sums of all ranks' micro-batches in their order, into net->sums. */
int mr_gather_sums(mr_net *net, int micros, mr_error *err);

/* Sequences that ranks share (cut.c): all that follows also holds for a process alone, where nothing is cut. */
int mr_cut_begin(mr_net *net, mr_error *err);
int mr_cut_check(const mr_net *net, int T, mr_error *err); /* can rows of T tokens be cut? */
int mr_cut_longest(const mr_net *net, int T);              /* the longest part of T tokens */
int mr_cut_batch(const mr_net *net, const mr_batch *whole, mr_batch *part, mr_error *err);
void mr_cut_batch_free(const mr_net *net, mr_batch *part);
int mr_cut_status(const mr_net *net, mr_error *err); /* of the last exchanges */
/* Refuses what needs whole sequences. */
int mr_check_whole(const mr_net *net, const char *what, mr_error *err);

/* ---- nets */

/* A net without weights: defaults and locks. NULL: out of memory. */
mr_net *mr_net_blank(mr_context *ctx);
int mr_net_make_owner(mr_net *net, const mr_config *config, mr_dev *dev, mr_error *err);
int mr_net_put_meta(mr_net *net, const char *key, const char *value); /* 0: out of memory */

/* ---- batches */

/* A caller's batch after all checks, with a mask if the loss needs one. Free with mr_checked_batch_free. */
typedef struct mr_checked_batch {
    mr_batch batch;
    uint8_t *mask; /* made here if the caller gave none */
} mr_checked_batch;

int mr_checked_batch_take(mr_checked_batch *checked, const mr_net *net, const mr_batch *from, int targets,
                          mr_error *err);
void mr_checked_batch_free(mr_checked_batch *checked, const mr_net *net);

/* Checks that a result's size is set, before any work is done. `to` may be NULL. */
int mr_result_check(const mr_result *to, mr_error *err);
/* Writes as much of a result as the caller's header knows. `to` may be NULL. */
int mr_result_write(mr_result *to, const mr_net *net, const double stats[MR_STATS], int64_t step, double norm,
                    double lr, mr_error *err);

#endif
