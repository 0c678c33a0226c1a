/* Streams a text through a model and prints its mean loss in nats per character.
 *     cc stream.c -lminrnn -lm -o stream && ./stream model.safetensors < text */
#include <math.h>
#include <minrnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* −log of the token's probability. */
static double loss_of(const float *scores, int n, int token)
{
    double top = scores[0], sum = 0;
    for (int i = 1; i < n; i++) top = scores[i] > top ? scores[i] : top;
    for (int i = 0; i < n; i++) sum += exp(scores[i] - top);
    return top + log(sum) - scores[token];
}

static int failed(const mr_error *err) { return fprintf(stderr, "%s\n", err->text), 1; }

int main(int argc, char **argv)
{
    mr_error err;
    mr_context *ctx = NULL;
    mr_net *net = NULL;
    mr_stream *stream = NULL;
    if (argc != 2) return fprintf(stderr, "usage: stream MODEL < TEXT\n"), 2;
    if (mr_context_new(NULL, &ctx, &err) || mr_net_open(ctx, argv[1], &net, &err) || mr_stream_new(net, &stream, &err))
        return failed(&err);

    char text[4096];
    int32_t tokens[4096];
    const size_t room = (size_t)mr_net_outputs(net);
    float *scores = malloc(room * sizeof *scores);
    double sum = 0;
    long count = 0;
    for (size_t have = 0, n, used; scores && (have += fread(text + have, 1, sizeof text - have, stdin)) > 0;) {
        if (mr_net_encode(net, text, have, tokens, 4096, &n, &used, &err)) return failed(&err);
        for (size_t i = 0; i < n; i++) {
            if (count++) sum += loss_of(scores, mr_net_outputs(net), tokens[i]);
            if (mr_stream_step(stream, tokens[i], scores, room, &err)) return failed(&err);
        }
        if (!used) return fprintf(stderr, "the text ends in the middle of a character\n"), 1;
        memmove(text, text + used, have -= used); /* keep an incomplete character for the next round */
    }
    printf("%ld characters, %.6f nats each\n", count, count > 1 ? sum / (double)(count - 1) : 0);
    free(scores);
    mr_stream_free(stream);
    mr_net_free(net);
    mr_context_free(ctx);
    return 0;
}
