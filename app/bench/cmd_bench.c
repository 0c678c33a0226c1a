/* minrnn bench: times, each with its share of this machine's limit. */
#include "bench/bench.h"
#include "core/json_write.h"
#include "bench/peers.h"
#include "commands/args.h"
#include "commands/commands.h"

#include <math.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: minrnn bench [gemm|scan|layer|step|decode|memory] [--threads N] [--device NAME] [--mixer NAME] [--quick] "
    "[--peers] [--json]\n"
    "       minrnn bench lm [--size tiny|124m|350m|1b] …\n"
    "\n"
    "Measures this machine's limits, then how near to them the parts of a training step come. Without a name: all.\n"
    "\n"
    "  gemm     matrix products of the d=384 language model, forward and both backward forms\n"
    "  scan     gates and scan of minGRU and minLSTM, B=64 T=512, 384 channels, hardly any input\n"
    "  layer    one recurrent layer 64->384, forward and backward\n"
    "  step     a training step: text (3 layers, d=384, conv 4, mlp 4) and selective copying (3 layers, 64->384),\n"
    "           the second with every mixer\n"
    "  decode   one token after another for 1, 2, 4 and 8 streams, every mixer; minGRU with weights in 8 bits too\n"
    "  memory   bytes that the device has taken after a training step: model, activations, scratch\n"
    "  lm       tokens a second of large language models, by itself: see `minrnn bench lm --help`\n"
    "  ranks    the exchange of gradients between processes, by itself: see `minrnn bench ranks --help`\n"
    "\n"
    "share is (the time that the limit allows) / (the time it took); the limit is measured again around each "
    "repetition.\n"
    "compute: multiply-adds in registers; memory: a copy beyond the cache, counted read and written. Bytes are the "
    "least\n"
    "that must be moved; what stays in a cache goes past 100 %. decode has the rate at which its weights can be read "
    "where they lie (L2, L3, memory).\n"
    "\n"
    "--peers runs the script that MINRNN_PEERS names with python3 (PyTorch on the same work: layer, step, decode) and "
    "prints\n"
    "how many times as long each peer takes.\n";

static const struct bench {
    const char *name;
    int (*run)(mr_bench *b, mr_error *err);
} benches[] = {{"gemm", mr_bench_gemm}, {"scan", mr_bench_scan},     {"layer", mr_bench_layer},
               {"step", mr_bench_step}, {"decode", mr_bench_decode}, {"memory", mr_bench_memory}};
enum { BENCHES = sizeof benches / sizeof *benches };

typedef struct settings {
    mr_common common;
    char isa[MR_TEXT_MAX];
    int quick, peers, rows, mixer; /* mixer: 0 all, or 1 + its index */
    mr_bench_rows kept;
} settings;

/* "all", then the names of mixers.def. */
static const char *const mixers[] = {"all",
#define MIXER(name) #name,
#include "model/mixers.def"
#undef MIXER
                                     NULL};

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"isa", MR_OPT_TEXT, offsetof(settings, isa), "", 0, 0, NULL, "instruction set: avx512, avx2, neon, scalar", 0},
    {"mixer", MR_OPT_CHOICE, offsetof(settings, mixer), "all", 0, 0, mixers,
     "step, decode, memory: models with this one only", 0},
    {"quick", MR_OPT_BOOL, offsetof(settings, quick), "no", 0, 0, NULL, "smaller shapes, fewer repetitions", 0},
    {"peers", MR_OPT_BOOL, offsetof(settings, peers), "no", 0, 0, NULL, "PyTorch beside it", 0},
    {0}};

static int is_bench(const char *name)
{
    for (int i = 0; i < BENCHES; i++)
        if (!strcmp(name, benches[i].name)) return 1;
    return 0;
}

static int unknown_bench(const char *name)
{
    const char *names[BENCHES + 1] = {NULL};
    for (int i = 0; i < BENCHES; i++) names[i] = benches[i].name;
    return mr_unknown_name("bench", "benchmark", name, names);
}

static void show_progress(void *arg, const char *bench, const char *name)
{
    const settings *s = arg;
    if (!s->common.quiet && isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[Kmeasuring %s: %s …", bench, name);
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
}

static double rate(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

static void write_number(mr_json_writer *w, const char *key, double value, int digits)
{
    mr_json_write_key(w, key);
    mr_json_write_real(w, value, digits);
}

static void write_text(mr_json_writer *w, const char *key, const char *value)
{
    mr_json_write_key(w, key);
    mr_json_write_string(w, value, strlen(value));
}

/* Prints an object of the list of rows. */
static void print_object(mr_json_writer *w, int first)
{
    mr_json_write_close(w, '}');
    if (!w->text->failed) printf("%s\n  %s", first ? "" : ",", w->text->data);
    mr_strbuf_free(w->text);
}

static void print_json(const mr_bench_row *row, int first)
{
    mr_strbuf out = {0};
    mr_json_writer w = {.text = &out, .spaced = 1};
    mr_json_write_open(&w, '{');
    write_text(&w, "bench", row->bench);
    write_text(&w, "name", row->name);
    write_number(&w, "ms", row->seconds * 1e3, 6);
    write_number(&w, "best_ms", row->best * 1e3, 6);
    write_number(&w, "bytes", round(row->bytes), 0);
    write_number(&w, "flops", round(row->flops), 0);
    write_number(&w, "gbps", rate(row->bytes, row->seconds) / 1e9, 5);
    write_number(&w, "gflops", rate(row->flops, row->seconds) / 1e9, 5);
    write_number(&w, "tokens_per_s", rate(row->tokens, row->seconds), 6);
    write_text(&w, "limit", row->limit);
    write_number(&w, "share", row->share, 4);
    print_object(&w, first);
}

/* A dash where a row has no such number. */
static void print_number(double value, int width, int digits)
{
    if (value > 0) printf(" %*.*f", width, digits, value);
    else printf(" %*s", width, "-");
}

static void print_text(const mr_bench_row *row, int first)
{
    if (first)
        printf("%-7s %-36s %10s %10s %9s %8s %8s %10s %8s %6s\n", "bench", "name", "ms", "best", "MB", "GB/s", "GF/s",
               "tokens/s", "limit", "share");
    printf("%-7s %-36s", row->bench, row->name);
    print_number(row->seconds * 1e3, 10, 3);
    print_number(row->best * 1e3, 10, 3);
    print_number(row->bytes / 1e6, 9, 1);
    print_number(rate(row->bytes, row->seconds) / 1e9, 8, 1);
    print_number(rate(row->flops, row->seconds) / 1e9, 8, 1);
    print_number(rate(row->tokens, row->seconds), 10, 0);
    printf(" %8s", row->limit);
    print_number(row->share * 100, 5, 0);
    printf("%s\n", row->share > 0 ? "%" : "");
}

static void print_row(void *arg, const mr_bench_row *row)
{
    settings *s = arg;
    clear_progress();
    (s->common.json ? print_json : print_text)(row, s->rows++ == 0);
    fflush(stdout);
    mr_bench_keep(&s->kept, row);
}

static void print_peer_json(const mr_peer_row *row)
{
    mr_strbuf out = {0};
    mr_json_writer w = {.text = &out, .spaced = 1};
    mr_json_write_open(&w, '{');
    write_text(&w, "bench", row->bench);
    write_text(&w, "peer", row->peer);
    write_text(&w, "shape", row->shape);
    write_number(&w, "ms", row->ms, 6);
    if (row->ours && row->ms > 0) {
        write_text(&w, "ours", row->ours->name);
        write_number(&w, "our_ms", row->ours->seconds * 1e3, 6);
        write_number(&w, "ratio", row->ms / 1e3 / row->ours->seconds, 4);
    }
    print_object(&w, 0);
}

static void print_peer(void *arg, const mr_peer_row *row)
{
    const settings *s = arg;
    clear_progress();
    if (s->common.json) print_peer_json(row);
    else if (!*row->peer)
        printf("\n%-7s %-24s %-12s %10s %10s %6s   %s\n", "bench", "peer", "shape", "ms", "ours", "ratio", row->shape);
    else {
        printf("%-7s %-24s %-12s", row->bench, row->peer, row->shape);
        print_number(row->ms, 10, 3);
        print_number(row->ours ? row->ours->seconds * 1e3 : 0, 10, 3);
        print_number(row->ours ? row->ms / 1e3 / row->ours->seconds : 0, 5, 1);
        printf("%s%s%s\n", row->ours ? "x" : "", row->error ? "  failed: " : "", row->error ? row->error : "");
    }
    fflush(stdout);
}

static int is_wanted(const mr_args *args, const char *name)
{
    for (int i = 0; i < args->count; i++)
        if (!strcmp(args->given[i], name)) return 1;
    return args->count == 0;
}

/* The peers' words for what was measured. */
static int run_peers(mr_bench *b, const char *script, settings *s, const mr_args *args, mr_error *err)
{
    const char *words[5] = {0};
    int count = 0;
    if (is_wanted(args, "layer")) words[count++] = "layer";
    if (is_wanted(args, "step")) words[count++] = "step", words[count++] = "lm";
    if (is_wanted(args, "decode")) words[count++] = "decode";
    return count ? mr_bench_peers(b, script, &s->kept, words, print_peer, err) : 0;
}

static int open_another(void *arg, mr_dev **dev, mr_error *err)
{
    const settings *s = arg;
    const mr_dev_options options = {.threads = (int)s->common.threads,
                                    .isa = s->isa[0] ? s->isa : NULL,
                                    .bf16 = s->common.dtype == 1,
                                    .exact = !s->common.tf32};
    return mr_dev_open(s->common.device, &options, dev, err);
}

static int run(settings *s, const mr_args *args, mr_error *err)
{
    mr_bench b = {.quick = s->quick,
                  .mixer = s->mixer ? mixers[s->mixer] : NULL,
                  .open = open_another,
                  .on_row = print_row,
                  .on_start = show_progress,
                  .arg = s};
    const char *script = NULL;
    int status = s->peers ? mr_bench_peers_find(&script, err) : 0;
    if (status < 0) return status;
    status = open_another(s, &b.dev, err);
    if (status < 0) return status;
    if (s->common.json) printf("[");
    status = mr_bench_limits(&b, err);
    for (int i = 0; i < BENCHES && status == 0; i++)
        if (is_wanted(args, benches[i].name)) status = benches[i].run(&b, err);
    if (status == 0 && s->peers) status = run_peers(&b, script, s, args, err);
    if (s->common.json) printf("\n]\n");
    clear_progress();
    mr_bench_end(&b);
    mr_dev_close(b.dev);
    return status;
}

int mr_cmd_bench(int argc, char **argv)
{
    static settings s; /* large: it keeps every row */
    mr_args args = {.command = "bench",
                    .flags = flags,
                    .settings = &s,
                    .max = BENCHES,
                    .usage = usage,
                    .examples = "  minrnn bench gemm --threads 1\n  minrnn bench --quick --json\n"
                                "  MINRNN_PEERS=torch_peers.py minrnn bench layer decode --peers\n"};
    mr_error err = {0};
    if (argc > 1 && !strcmp(argv[1], "lm")) return mr_cmd_bench_lm(argc - 1, argv + 1);
    if (argc > 1 && !strcmp(argv[1], "ranks")) return mr_cmd_bench_ranks(argc - 1, argv + 1);
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    if (s.peers && s.quick) return mr_misused("bench", "--peers measures the full shapes; leave --quick out");
    for (int i = 0; i < args.count; i++) {
        if (!is_bench(args.given[i])) return unknown_bench(args.given[i]);
    }
    return run(&s, &args, &err) < 0 ? mr_report("bench", &err) : MR_EXIT_DONE;
}
