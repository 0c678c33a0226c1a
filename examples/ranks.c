/* Trains a tiny model on the bytes of a text, in one process or in several: the file that rank 0 writes is the same.
 *     cc ranks.c -lminrnn -o ranks && mpirun -n 3 ./ranks text.txt model.safetensors */
#include <minrnn_experimental.h>
#include <stdio.h>

enum { B = 4, T = 32, STEPS = 100, MICROS = 6 };

static unsigned char text[1 << 20];

/* B places that depend on the step and the micro-batch alone, so that any rank can make any batch. */
static void draw(uint32_t random, size_t size, int32_t *ids, int32_t *target)
{
    size_t start = 0;
    for (int i = 0; i < B * T; i++) {
        if (i % T == 0) start = (random = random * 1664525u + 1013904223u) % (size - T);
        ids[i] = text[start + (size_t)(i % T)], target[i] = text[start + (size_t)(i % T) + 1];
    }
}

static int train(mr_context *ctx, size_t size, const char *path, mr_error *err)
{
    const char *settings[] = {"vocab", "bytes", "dim", "32", "layers", "2", "lr", "0.005", NULL};
    int32_t ids[B * T], target[B * T];
    mr_batch data = MR_BATCH;
    mr_learn_options part = MR_LEARN_OPTIONS;
    mr_result result = MR_RESULT;
    mr_net *net;
    int first, end, status = mr_net_create(ctx, settings, &net, err);
    if (status) return status;
    data.B = B, data.T = T, data.ids = ids, data.target = target;
    part.micros = MICROS;
    mr_rank_micros(ctx, MICROS, &first, &end); /* of each step, this rank's micro-batches */
    for (uint32_t step = 0; !status && step < STEPS; step++)
        for (part.micro = first; !status && part.micro < end; part.micro++) {
            draw(step * MICROS + (uint32_t)part.micro, size, ids, target);
            status = mr_net_learn(net, &data, &part, &result, err);
        }
    if (!status) status = mr_net_save(net, path, err); /* on rank 0 */
    if (!status && mr_context_rank(ctx) == 0)
        printf("%d ranks, step %lld: %.4f nats per byte\n", mr_context_ranks(ctx), (long long)result.step, result.loss);
    mr_net_free(net);
    return status;
}

int main(int argc, char **argv)
{
    mr_error err;
    mr_context *ctx;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (size < T + 1) return fprintf(stderr, "usage: ranks TEXT MODEL (a text of more than %d bytes)\n", T), 2;
    fclose(file);
    int status = mr_context_new(NULL, &ctx, &err);
    if (!status && mr_ranks_launched(NULL) > 1) status = mr_context_join(ctx, NULL, &err);
    if (!status) status = train(ctx, size, argv[2], &err);
    if (status) fprintf(stderr, "%s\n", err.text), mr_context_abort(ctx); /* the others wait for this rank */
    mr_context_free(ctx);
    return status != 0;
}
