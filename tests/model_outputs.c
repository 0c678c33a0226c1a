/* Prints what a model computes from tokens or values, in both ways: the whole sequence at once, and then step by step.
 *
 * usage: model_outputs MODEL DEVICE < NUMBERS
 *
 * NUMBERS are one sequence, separated by white space. Each line of the output has the numbers of one row. */
#include "minrnn.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 1 << 16 };

static int failed(const mr_error *err) { return fprintf(stderr, "%s\n", err->text), 1; }

static void print_rows(const float *scores, size_t rows, int columns)
{
    for (size_t i = 0; i < rows * (size_t)columns; i++)
        printf("%.9g%c", (double)scores[i], (i + 1) % (size_t)columns ? ' ' : '\n');
}

/* One token, or its values. */
static int step(mr_stream *stream, const mr_net *net, const float *numbers, float *scores, size_t room, mr_error *err)
{
    if (mr_net_input(net) == MR_INPUT_REALS) return mr_stream_step_values(stream, numbers, scores, room, err);
    return mr_stream_step(stream, (int32_t)numbers[0], scores, room, err);
}

static int both_ways(mr_net *net, float *numbers, int32_t *ids, int count, float *scores, mr_error *err)
{
    const int reals = mr_net_input(net) == MR_INPUT_REALS, width = reals ? mr_net_inputs(net) : 1, T = count / width;
    const size_t room = (size_t)mr_net_outputs(net);
    mr_batch batch = MR_BATCH;
    batch.B = 1, batch.T = T;
    if (reals) batch.values = numbers;
    else batch.ids = ids;
    int rc = mr_net_forward(net, &batch, scores, MOST, err);
    if (rc) return rc;
    print_rows(scores, mr_net_rows(net, 1, T), mr_net_outputs(net));

    mr_stream *stream = NULL;
    rc = mr_stream_new(net, &stream, err);
    for (int t = 0; t < T && !rc; t++) {
        rc = step(stream, net, numbers + (size_t)t * (size_t)width, scores, room, err);
        if (!rc) print_rows(scores, 1, mr_net_outputs(net));
    }
    mr_stream_free(stream);
    return rc;
}

int main(int argc, char **argv)
{
    static float numbers[MOST], scores[MOST];
    static int32_t ids[MOST];
    mr_error err;
    mr_context *ctx = NULL;
    mr_net *net = NULL;
    mr_context_options options = MR_CONTEXT_OPTIONS;
    if (argc != 3) return fprintf(stderr, "usage: model_outputs MODEL DEVICE < NUMBERS\n"), 2;
    options.device = argv[2];
    if (mr_context_new(&options, &ctx, &err) || mr_net_open(ctx, argv[1], &net, &err)) return failed(&err);
    int count = 0;
    while (count < MOST && scanf("%f", &numbers[count]) == 1) ids[count] = (int32_t)numbers[count], count++;
    const int rc = both_ways(net, numbers, ids, count, scores, &err);
    mr_net_free(net);
    mr_context_free(ctx);
    return rc ? failed(&err) : 0;
}
