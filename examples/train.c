/* Trains a tiny model on the bytes of a text.
 *     cc train.c -lminrnn -o train && ./train text.txt model.safetensors */
#include <minrnn.h>
#include <stdio.h>

enum { B = 8, T = 32, STEPS = 300 };

int main(int argc, char **argv)
{
    static unsigned char text[1 << 20];
    mr_error err;
    mr_context *ctx;
    mr_net *net;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    size_t size = file ? fread(text, 1, sizeof text, file) : 0;
    if (size < T + 1) return fprintf(stderr, "usage: train TEXT MODEL (a text of more than %d bytes)\n", T), 2;
    const char *settings[] = {"vocab", "bytes", "dim", "32", "layers", "2", "lr", "0.005", NULL};
    if (mr_context_new(NULL, &ctx, &err) || mr_net_create(ctx, settings, &net, &err))
        return fprintf(stderr, "%s\n", err.text), 1;

    int32_t ids[B * T], target[B * T];
    mr_batch data = MR_BATCH;
    mr_result result = MR_RESULT;
    data.B = B, data.T = T, data.ids = ids, data.target = target;
    for (uint32_t step = 0, random = 1; step < STEPS; step++) {
        for (int i = 0; i < B * T; i++) { /* B random places in the text; the next byte is the target */
            if (i % T == 0) random = random * 1664525u + 1013904223u;
            size_t at = (random >> 8) % (size - T) + (size_t)(i % T);
            ids[i] = text[at], target[i] = text[at + 1];
        }
        if (mr_net_train(net, &data, &result, &err)) return fprintf(stderr, "%s\n", err.text), 1;
    }
    printf("step %lld: %.4f nats per byte\n", (long long)result.step, result.loss);
    if (mr_net_save(net, argv[2], &err)) return fprintf(stderr, "%s\n", err.text), 1;
    fclose(file);
    mr_net_free(net);
    mr_context_free(ctx);
    return 0;
}
