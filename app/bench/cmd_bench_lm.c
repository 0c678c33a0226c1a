/* minrnn bench lm: training steps of language models of the sizes of GPT-2 and beyond. */
#include "bench/lm.h"
#include "core/json_write.h"
#include "commands/args.h"
#include "commands/commands.h"

#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: minrnn bench lm [--size tiny|124m|350m|1b] [--mixer NAME] [--device NAME] [--dtype f32|bf16] [--json]\n"
    "\n"
    "Trains a language model of random weights on random tokens and says how many tokens it takes in a second.\n"
    "\n"
    "  tiny      2 layers of   64 channels, vocabulary    512, batch  2 × 64 tokens\n"
    "  124m     12 layers of  768 channels, vocabulary 50,257, batch 32 × 1,024 tokens (1 × 1,024 on a CPU)\n"
    "  350m     24 layers of 1024 channels, vocabulary 50,257, batch 16 × 1,024 tokens (the same)\n"
    "  1b       16 layers of 2048 channels, vocabulary 50,257, batch 16 × 1,024 tokens (the same)\n"
    "\n"
    "Each layer has a convolution of 4 taps, the mixer with expansion 2, and an MLP of factor 4; AdamW and clipping "
    "are "
    "part\n"
    "of the step. share is 6 · parameters · tokens a second over the rate of one large matrix product on the same "
    "device, in\n"
    "the same dtype, measured before and after; an embedding that is not the head's matrix, too, does not count.\n"
    "memory is what the net takes of the device: parameters, gradients, moments and activations.\n";

/* The rows of mr_lm_sizes. */
static const char *const sizes[] = {"tiny", "124m", "350m", "1b", NULL};

static const char *const mixers[] = {
#define MIXER(name) #name,
#include "model/mixers.def"
#undef MIXER
    NULL};

static const char *const recomputes[] = {"auto", "none", "blocks", "chunks", NULL};

typedef struct settings {
    mr_common common;
    int size, mixer, tied, recompute;
    int64_t batch, context, layers, dim, vocab, steps;
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"size", MR_OPT_CHOICE, offsetof(settings, size), "124m", 0, 0, sizes, "which model", 0},
    {"mixer", MR_OPT_CHOICE, offsetof(settings, mixer), "mingru", 0, 0, mixers, "the recurrent layer", 0},
    {"batch", MR_OPT_INT, offsetof(settings, batch), "0", 0, 1 << 20, NULL, "sequences a step; 0: that of the size", 0},
    {"context", MR_OPT_INT, offsetof(settings, context), "0", 0, 1 << 24, NULL, "tokens of each; 0: that of the size",
     0},
    {"steps", MR_OPT_INT, offsetof(settings, steps), "10", 1, 100000, NULL, "steps that are timed, after a few others",
     0},
    {"layers", MR_OPT_INT, offsetof(settings, layers), "0", 0, 1000, NULL, "blocks; 0: those of the size", 0},
    {"dim", MR_OPT_INT, offsetof(settings, dim), "0", 0, 65536, NULL, "channels; 0: those of the size", 0},
    {"vocab", MR_OPT_INT, offsetof(settings, vocab), "0", 0, 1 << 24, NULL, "tokens to predict; 0: those of the size",
     0},
    {"tie-embeddings", MR_OPT_BOOL, offsetof(settings, tied), "yes", 0, 0, NULL,
     "the head's matrix is that of the embedding, as in GPT-2", 0},
    {"recompute", MR_OPT_CHOICE, offsetof(settings, recompute), "auto", 0, 0, recomputes,
     "what the backward computes again instead of keeping it; auto: as little as memory allows", 0},
    {0}};

/* ---- progress, on a terminal */

static void watch(void *shown, const char *what, int done, int of)
{
    fprintf(stderr, "\r\033[Kmeasuring lm: %s", what);
    if (of) fprintf(stderr, " %d of %d", done, of);
    fputs(" …", stderr);
    fflush(stderr);
    *(int *)shown = 1;
}

/* ---- the result */

static void print_json(const mr_lm_job *job, const mr_lm_result *r)
{
    const mr_lm_size *s = &job->size;
    mr_strbuf out = {0};
    mr_json_writer w = {.text = &out, .spaced = 1};
    mr_json_write_open(&w, '{');
    mr_json_field_text(&w, "bench", "lm");
    mr_json_field_text(&w, "size", s->name);
    mr_json_field_text(&w, "mixer", job->mixer);
    mr_json_field_whole(&w, "layers", s->layers);
    mr_json_field_whole(&w, "dim", s->dim);
    mr_json_field_whole(&w, "vocab", s->vocab);
    mr_json_field_text(&w, "tie-embeddings", job->tied ? "yes" : "no");
    mr_json_field_whole(&w, "batch", s->batch);
    mr_json_field_whole(&w, "context", s->context);
    mr_json_field_text(&w, "recompute", r->recompute);
    mr_json_field_text(&w, "device", r->device);
    mr_json_field_text(&w, "chip", r->chip);
    mr_json_field_text(&w, "dtype", r->dtype);
    mr_json_field_whole(&w, "threads", r->threads);
    mr_json_field_whole(&w, "steps", job->steps);
    mr_json_field_real(&w, "ms", r->seconds * 1e3, 6);
    mr_json_field_real(&w, "best_ms", r->best * 1e3, 6);
    mr_json_field_real(&w, "tokens_per_s", mr_lm_tokens_rate(job, r), 6);
    mr_json_field_whole(&w, "parameters", r->parameters);
    mr_json_field_whole(&w, "multiplied_parameters", r->multiplied);
    mr_json_field_real(&w, "memory_bytes", r->memory, 0);
    mr_json_field_real(&w, "gflops", mr_lm_flops_rate(job, r) / 1e9, 6);
    mr_json_field_real(&w, "matrix_gflops", r->matrix / 1e9, 6);
    mr_json_field_real(&w, "share", mr_lm_flops_rate(job, r) / r->matrix, 4);
    mr_json_field_real(&w, "loss", r->loss, 6);
    mr_json_write_close(&w, '}');
    if (!out.failed) printf("[\n  %s\n]\n", out.data);
    mr_strbuf_free(&out);
}

static void print_text(const mr_lm_job *job, const mr_lm_result *r)
{
    const mr_lm_size *s = &job->size;
    printf("model       %d × %d %s, vocabulary %d%s\n", s->layers, s->dim, job->mixer, s->vocab,
           job->tied ? ", tied" : "");
    printf("batch       %d × %d tokens", s->batch, s->context);
    if (strcmp(r->recompute, "none")) printf(", recompute = %s", r->recompute);
    if (!strcmp(r->recompute, "chunks")) printf(" of %s", r->chunk);
    printf("\n");
    printf("device      %s%s%s, %s", r->device, *r->chip ? ", " : "", r->chip, r->dtype);
    if (!*r->chip) printf(", %d thread%s", r->threads, r->threads == 1 ? "" : "s");
    printf("\nparameters  %.4g M, %.4g M of them multiplied with each token\n", (double)r->parameters / 1e6,
           (double)r->multiplied / 1e6);
    printf("memory      %.4g GB\n", r->memory / 1e9);
    printf("step        %.4g ms, best %.4g, of %d\n", r->seconds * 1e3, r->best * 1e3, job->steps);
    printf("tokens/s    %.0f\n", mr_lm_tokens_rate(job, r));
    printf("share       %.1f %%: %.4g of %.4g TFLOP/s (a product of %d × %d × %d)\n",
           100 * mr_lm_flops_rate(job, r) / r->matrix, mr_lm_flops_rate(job, r) / 1e12, r->matrix / 1e12, r->product,
           r->product, r->product);
}

/* ---- the flags */

/* Opens a device to see which kind it is: on a GPU large models are trained in bf16, and on a CPU hardly anyone has
 * time and memory for batches of a GPU. */
static int settle(const mr_args *args, const settings *set, mr_lm_job *job, mr_error *err)
{
    mr_context *ctx;
    mr_common plain = set->common;
    plain.dtype = 0;
    int status = mr_open_context(&plain, &ctx, err);
    if (status) return status;
    const int gpu = !strncmp(mr_context_device(ctx), "cuda", 4);
    mr_context_free(ctx);
    job->bf16 = mr_args_was_set(args, "dtype") ? set->common.dtype == 1 : gpu;
    if (!gpu && !set->batch && strcmp(job->size.name, "tiny")) job->size.batch = 1;
    return 0;
}

static void take_size(const settings *set, mr_lm_size *size)
{
    *size = mr_lm_sizes[set->size];
    if (set->layers) size->layers = (int)set->layers;
    if (set->dim) size->dim = (int)set->dim;
    if (set->batch) size->batch = (int)set->batch;
    if (set->context) size->context = (int)set->context;
    if (set->vocab) size->vocab = (int)set->vocab;
}

static int run(const mr_args *args, const settings *set, mr_error *err)
{
    int shown = 0;
    mr_lm_result result;
    mr_lm_job job = {.mixer = mixers[set->mixer],
                     .tied = set->tied,
                     .recompute = recomputes[set->recompute],
                     .steps = (int)set->steps,
                     .seed = (uint64_t)set->common.seed,
                     .device = set->common.device,
                     .threads = (int)set->common.threads,
                     .exact = !set->common.tf32,
                     .watch = !set->common.quiet && isatty(STDERR_FILENO) ? watch : NULL,
                     .arg = &shown};
    take_size(set, &job.size);
    int status = settle(args, set, &job, err);
    if (!status) status = mr_lm_run(&job, &result, err);
    if (shown) fputs("\r\033[K", stderr);
    if (!status) (set->common.json ? print_json : print_text)(&job, &result);
    return status;
}

int mr_cmd_bench_lm(int argc, char **argv)
{
    settings set;
    mr_args args = {.command = "bench lm",
                    .flags = flags,
                    .settings = &set,
                    .usage = usage,
                    .examples = "  minrnn bench lm --size 350m --device cuda --json\n"
                                "  minrnn bench lm --size 124m --mixer attention --vocab 256\n"
                                "  minrnn bench lm --size tiny --device cpu --threads 1\n"
                                "  minrnn bench lm --layers 2 --dim 128 --batch 8 --device cpu\n"};
    mr_error err = {0};
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    return run(&args, &set, &err) ? mr_report("bench lm", &err) : MR_EXIT_DONE;
}
