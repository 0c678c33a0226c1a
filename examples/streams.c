/* A hundred streams in four threads on one model. Each stream reads its own tokens and is not affected by the others.
 *     cc streams.c -lminrnn -pthread -o streams && ./streams [model.safetensors] */
#include <minrnn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, STREAMS = 25, TOKENS = 40 };

typedef struct job {
    mr_net *net;
    int number;
    float *last; /* [STREAMS, outputs] */
    mr_error err;
    int status;
} job;

/* Runs STREAMS streams. The tokens of a stream depend only on its number. */
static void *run(void *arg)
{
    job *j = arg;
    mr_stream *streams[STREAMS] = {NULL};
    const int inputs = mr_net_inputs(j->net), outputs = mr_net_outputs(j->net);
    for (int i = 0; i < STREAMS && !j->status; i++) j->status = mr_stream_new(j->net, &streams[i], &j->err);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < STREAMS && !j->status; i++)
            j->status = mr_stream_step(streams[i], (j->number * STREAMS + i + t * t) % inputs, j->last + i * outputs,
                                       (size_t)outputs, &j->err);
    for (int i = 0; i < STREAMS; i++) mr_stream_free(streams[i]);
    return NULL;
}

int main(int argc, char **argv)
{
    mr_error err;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx;
    mr_net *net;
    job jobs[THREADS], alone;
    pthread_t threads[THREADS];
    options.device = "cpu";
    options.threads = 1; /* per call, because we use four threads ourselves */
    const char *settings[] = {"vocab", "bytes", "dim", "32", NULL};
    int status = mr_context_new(&options, &ctx, &err);
    if (!status) status = argc > 1 ? mr_net_open(ctx, argv[1], &net, &err) : mr_net_create(ctx, settings, &net, &err);
    if (status) return fprintf(stderr, "%s\n", err.text), 1;

    const size_t size = sizeof(float) * STREAMS * (size_t)mr_net_outputs(net);
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){.net = net, .number = i, .last = malloc(size)};
        if (pthread_create(&threads[i], NULL, run, &jobs[i])) return fprintf(stderr, "no thread\n"), 1;
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);

    alone = (job){.net = net, .last = malloc(size)};
    for (int i = 0; i < THREADS; i++) { /* again in one thread: the result must be the same bits */
        alone.number = i;
        run(&alone);
        if (jobs[i].status || alone.status)
            return fprintf(stderr, "%s\n", jobs[i].status ? jobs[i].err.text : alone.err.text), 1;
        if (memcmp(jobs[i].last, alone.last, size)) return fprintf(stderr, "thread %d computed something else\n", i), 1;
        free(jobs[i].last);
    }
    free(alone.last);
    printf("%d streams in %d threads, %d tokens each\n", THREADS * STREAMS, THREADS, TOKENS);
    mr_net_free(net);
    mr_context_free(ctx);
    return 0;
}
