/* Continues a text: samples tokens and prints them as they come.
 *     cc generate.c -lminrnn -o generate && ./generate model.safetensors "Once upon a time" [temperature] */
#include <minrnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPT = 4096, PIECE = 16, PIECES = 25 };

static int failed(const mr_error *err) { return fprintf(stderr, "%s\n", err->text), 1; }

int main(int argc, char **argv)
{
    mr_error err;
    mr_context *ctx;
    mr_net *net;
    mr_stream *stream;
    int32_t tokens[PROMPT], drawn[PIECE];
    char text[4 * PIECE];
    size_t n, size;
    mr_sample_options how = MR_SAMPLE_OPTIONS;
    if (argc < 3) return fprintf(stderr, "usage: generate MODEL PROMPT [TEMPERATURE]\n"), 2;
    how.temperature = argc > 3 ? atof(argv[3]) : 0.8;
    how.top_p = 0.95;
    if (mr_context_new(NULL, &ctx, &err) || mr_net_open(ctx, argv[1], &net, &err) ||
        mr_stream_new(net, &stream, &err) ||
        mr_net_encode(net, argv[2], strlen(argv[2]), tokens, PROMPT, &n, NULL, &err))
        return failed(&err);

    fputs(argv[2], stdout);
    for (int i = 0; i < PIECES; i++) {
        if (mr_stream_sample(stream, tokens, n, &how, drawn, PIECE, &err) ||
            mr_net_decode(net, drawn, PIECE, text, sizeof text, &size, &err))
            return failed(&err);
        fwrite(text, 1, size, stdout);
        fflush(stdout);
        tokens[0] = drawn[PIECE - 1]; /* the last one was sampled but not fed yet */
        n = 1;
        how.position += PIECE;
    }
    putchar('\n');
    mr_stream_free(stream);
    mr_net_free(net);
    mr_context_free(ctx);
    return 0;
}
