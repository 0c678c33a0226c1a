/* The scan alone, with gradients: learns decays a such that h[t] = a·h[t−1] + b[t] follows a signal.
 *     cc scan.c -lminrnn -lm -o scan && ./scan */
#include <math.h>
#include <minrnn_experimental.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 64, H = 3 };

int main(void)
{
    static float a[T * H], b[T * H], h[T * H], dh[T * H], da[T * H], db[T * H];
    const float wanted[H] = {0.9f, 0.5f, -0.3f}; /* the decays that made the signal */
    float decay[H] = {0}, signal[T * H];
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_error err;
    mr_context *ctx;
    options.device = "cpu"; /* the arrays are in host memory */
    if (mr_context_new(&options, &ctx, &err)) return fprintf(stderr, "%s\n", err.text), 1;

    for (int i = 0; i < T * H; i++) {
        b[i] = sinf(0.7f * (float)i) + cosf(0.3f * (float)(i * i));
        signal[i] = (i >= H ? wanted[i % H] * signal[i - H] : 0) + b[i];
    }
    mr_scan_args args = MR_SCAN_ARGS;
    args.B = 1, args.T = T, args.H = H, args.a = a, args.b = b, args.h = h, args.dh = dh, args.da = da, args.db = db;
    args.workspace_size = mr_scan_workspace(ctx, &args);
    args.workspace = aligned_alloc(64, args.workspace_size);

    double loss = 0;
    for (int step = 0; step < 2000; step++) {
        for (int i = 0; i < T * H; i++) a[i] = decay[i % H];
        if (mr_scan_forward(ctx, &args, &err)) return fprintf(stderr, "%s\n", err.text), 1;
        loss = 0;
        for (int i = 0; i < T * H; i++) loss += (h[i] - signal[i]) * (h[i] - signal[i]), dh[i] = 2 * (h[i] - signal[i]);
        if (mr_scan_backward(ctx, &args, &err)) return fprintf(stderr, "%s\n", err.text), 1;
        for (int i = 0; i < T * H; i++) decay[i % H] -= 1e-4f * da[i];
    }
    printf("decays %.3f %.3f %.3f, squared error %.1e\n", decay[0], decay[1], decay[2], loss);
    free(args.workspace);
    mr_context_free(ctx);
    return loss < 1e-6 ? 0 : 1;
}
