/* The exchange of gradients between ranks: how long it takes, beside what a model says that knows only the latency, the
 * bandwidth and the rate of additions that were measured before. */
#include "bench/ranks.h"

#include "core/clock.h"
#include "core/mem.h"
#include "model/ranks.h"
#include "bench/timed_model.h"

#include <string.h>

enum { LEAST = 7, SMALL = 8, BEYOND_CACHE = 128 << 20, MOST = 64 };

typedef struct measuring {
    mr_ranks_job *job;
    mr_comm *comm;
    mr_dev *dev;
    mr_channel channel;
} measuring;

/* ---- what the model knows ---- */

/* Where the messages of round i between this rank and q lie: rounds use different memory, as the pieces of a vector do,
 * so that it comes from beyond the caches. */
static int list_round(measuring *m, char *memory, size_t bytes, int round, mr_message *list)
{
    int count = 0;
    for (int q = 0; q < m->comm->size; q++) {
        char *place = memory + 2 * bytes * (size_t)(round * m->comm->size + q);
        if (q == m->comm->rank) continue;
        list[count++] = (mr_message){.peer = q, .at = place, .bytes = bytes};
        list[count++] = (mr_message){.peer = q, .receive = 1, .at = place + bytes, .bytes = bytes};
    }
    return count;
}

/* `rounds` exchanges, one after another, in which every rank sends this many bytes to every other. */
static int run_rounds(measuring *m, char *memory, size_t bytes, int rounds, mr_message *list, mr_error *err)
{
    int status = 0;
    for (int i = 0; !status && i < rounds; i++) {
        int64_t number;
        const int count = list_round(m, memory, bytes, i, list);
        status = mr_channel_post(&m->channel, m->dev, list, count, &number, err);
        if (!status) status = mr_channel_wait(&m->channel, m->dev, number, NULL, 0, err);
    }
    return status ? status : m->dev->sync(m->dev, err);
}

/* Seconds of one of them. */
static int time_messages(measuring *m, size_t bytes, int rounds, double *seconds, mr_error *err)
{
    double times[LEAST];
    mr_message *list = mr_alloc(2 * (size_t)m->comm->size, sizeof *list);
    char *memory = m->dev->alloc(m->dev, 2 * bytes * (size_t)(m->comm->size * rounds));
    int status = list && memory ? 0 : mr_no_memory(err, "messages");
    for (int i = -2; !status && i < LEAST; i++) {
        const double began = mr_seconds();
        status = run_rounds(m, memory, bytes, rounds, list, err);
        if (i >= 0) times[i] = mr_seconds() - began;
    }
    if (!status) *seconds = mr_median(times, LEAST) / rounds;
    if (memory) m->dev->release(m->dev, memory);
    mr_free(list);
    return status;
}

/* Additions of gradients a second: what was just received, and so is in a cache, to what is not. */
static int time_adding(measuring *m, size_t bytes, double *rate, mr_error *err)
{
    const size_t each = bytes / sizeof(float), rounds = BEYOND_CACHE / bytes;
    double times[LEAST];
    mr_real *x = m->dev->alloc(m->dev, (rounds + 1) * each * m->dev->real_size);
    if (!x) return mr_no_memory(err, "numbers to add");
    int status = 0;
    for (int i = -2; !status && i < LEAST; i++) {
        const double began = mr_seconds();
        for (size_t k = 1; k <= rounds; k++)
            m->dev->ops.accumulate(m->dev,
                                   &(mr_accumulate_args){.n = each, .x = x, .y = mr_real_at(m->dev, x, k * each)});
        status = m->dev->sync(m->dev, err);
        if (i >= 0) times[i] = mr_seconds() - began;
    }
    *rate = (double)(rounds * each) / mr_median(times, LEAST);
    m->dev->release(m->dev, x);
    return status;
}

/* With messages as large as those of a piece. */
static int measure_limits(measuring *m, mr_ranks_limits *l, mr_error *err)
{
    const size_t ranks = (size_t)m->comm->size, each = MR_RANKS_PIECE * sizeof(float) / ranks;
    double small = 0, large = 0;
    int status = time_messages(m, SMALL, 100, &small, err);
    if (!status) status = time_messages(m, each, (int)(BEYOND_CACHE / (each * ranks)), &large, err);
    if (!status) status = time_adding(m, each, &l->adds, err);
    l->latency = small;
    l->bandwidth = (double)(each * (ranks - 1)) / (large > small ? large - small : large);
    return status;
}

/* With one node a rank: each sends its vector's parts to their owners, adds up its own, and sends that to all. */
double mr_ranks_model(const mr_ranks_limits *l, int ranks, int pieces, double parameters)
{
    const double share = parameters / ranks, others = ranks - 1;
    return 2 * (l->latency * pieces + others * share * sizeof(float) / l->bandwidth) + others * share / l->adds;
}

/* ---- the exchange ---- */

static int exchange_once(measuring *m, mr_ranks *ranks, mr_real *grads, double *seconds, mr_error *err)
{
    const mr_tree nothing = {.count = 0};
    const double began = mr_seconds();
    int status = mr_ranks_begin(ranks, m->dev, m->comm->size, m->comm->rank, &nothing, grads, err);
    if (status) return status;
    mr_ranks_stage_done(ranks, m->dev, 0);
    status = mr_ranks_add_up(ranks, m->dev, 0, err);
    if (!status) status = m->dev->sync(m->dev, err);
    *seconds = mr_seconds() - began;
    return status;
}

static int time_exchange(measuring *m, mr_ranks *ranks, mr_real *grads, mr_ranks_row *row, mr_error *err)
{
    double times[MOST], begun = mr_seconds();
    int count = 0, status = 0;
    for (int i = -2; !status && i < m->job->repeats; i++) {
        double seconds = 0;
        status = exchange_once(m, ranks, grads, &seconds, err);
        if (i >= 0) times[count++] = seconds;
        if (m->job->watch && mr_seconds() - begun > 0.2) m->job->watch(m->job->arg, row->parameters, i + 2);
    }
    if (status) return status;
    row->seconds = mr_median(times, count);
    row->best = times[0];
    return 0;
}

static int measure_size(measuring *m, const mr_ranks_limits *limits, int64_t parameters, mr_ranks_row *row,
                        mr_error *err)
{
    mr_params params = {0};
    mr_ranks *ranks = NULL;
    const int stages[1] = {0};
    *row = (mr_ranks_row){.parameters = parameters};
    mr_params_add(&params, "", "all", 0, MR_INIT_CONSTANT, 0, 1, &parameters);
    int status = mr_params_layout(&params, MR_DECAY_ALL);
    if (!status) status = mr_ranks_new(m->dev, m->comm, m->channel.courier, 1, &params, stages, &ranks);
    mr_real *grads = status ? NULL : m->dev->alloc(m->dev, params.total * m->dev->real_size);
    if (!grads) status = mr_no_memory(err, "gradients");
    if (!status) status = time_exchange(m, ranks, grads, row, err);
    if (!status) {
        const double n = (double)parameters;
        row->bytes = 2 * n * sizeof(float) * (m->comm->size - 1) / m->comm->size;
        row->model = mr_ranks_model(limits, m->comm->size, mr_ranks_pieces(ranks)->count, n);
    }
    if (grads) m->dev->release(m->dev, grads);
    mr_ranks_free(ranks, m->dev);
    mr_params_free(&params);
    return status;
}

int mr_ranks_measure(mr_ranks_job *job, mr_comm *comm, mr_dev *dev, mr_ranks_limits *limits, mr_ranks_row *rows,
                     mr_error *err)
{
    measuring m = {.job = job, .comm = comm, .dev = dev};
    mr_courier *courier = comm->device_memory ? NULL : mr_courier_new(comm, NULL);
    if (!courier && !comm->device_memory) return mr_no_memory(err, "a thread for messages");
    m.channel = mr_channel_over(comm, courier);
    int status = measure_limits(&m, limits, err);
    for (int i = 0; !status && i < job->count; i++) status = measure_size(&m, limits, job->sizes[i], &rows[i], err);
    mr_channel_free(&m.channel, dev);
    mr_courier_free(courier);
    return status;
}
