/* minrnn bench ranks: the exchange of gradients, beside the model of its cost. */
#include "bench/ranks.h"

#include "bench/bench.h"
#include "commands/args.h"
#include "commands/commands.h"
#include "commands/json_out.h"
#include "commands/ranked.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: mpirun -n R minrnn bench ranks [--parameters N] [--repeats N] [--device NAME] [--json]\n"
    "\n"
    "Times the exchange of a step's gradients between R ranks, with nothing to hide it behind, and compares it with a\n"
    "model that knows three numbers, measured first: the latency of an exchange, the bandwidth of each rank, and how\n"
    "many numbers it adds up a second. docs/scale.md says how to use them for other sizes and more ranks.\n";

typedef struct settings {
    mr_common common;
    int64_t parameters, repeats;
    int engine;
} settings;

static const mr_option flags[] = {
    MR_COMMON_FLAGS,
    {"parameters", MR_OPT_INT, offsetof(settings, parameters), "0", 0, 1e10, NULL,
     "of the model; 0: 1, 4, 16 and 64 million", 0},
    {"repeats", MR_OPT_INT, offsetof(settings, repeats), "15", 3, 64, NULL, "exchanges of each size", 0},
    {"ranks", MR_OPT_CHOICE, offsetof(settings, engine), "auto", 0, 0, mr_rank_engines, "what moves the messages", 0},
    {0}};

static const int64_t sizes[] = {1000000, 4000000, 16000000, 64000000};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void show(void *arg, int64_t parameters, int done)
{
    const mr_comm *comm = arg;
    if (!comm->rank && isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K%lld parameters: exchange %d", (long long)parameters, done);
}

static void print_text(const mr_comm *comm, const mr_ranks_limits *l, const mr_ranks_row *rows, int count)
{
    printf("%d ranks, %s: latency %.1f us, %.2f GB/s a rank, %.2f G additions a second\n", comm->size, comm->version,
           1e6 * l->latency, l->bandwidth / 1e9, l->adds / 1e9);
    printf("%12s %12s %10s %10s %10s %9s\n", "parameters", "MB a rank", "ms", "best", "model", "ms/model");
    for (int i = 0; i < count; i++)
        printf("%12lld %12.1f %10.3f %10.3f %10.3f %9.2f\n", (long long)rows[i].parameters, rows[i].bytes / 1e6,
               1e3 * rows[i].seconds, 1e3 * rows[i].best, 1e3 * rows[i].model, rows[i].seconds / rows[i].model);
}

static int print_json(const mr_comm *comm, const mr_ranks_limits *l, const mr_ranks_row *rows, int count)
{
    mr_json_out out;
    mr_error err;
    mr_json_writer *w = mr_json_out_begin(&out);
    mr_json_write_open(w, '{');
    mr_json_field_whole(w, "ranks", comm->size);
    mr_json_field_text(w, "engine", comm->version);
    mr_json_field_real(w, "latency_us", 1e6 * l->latency, 6);
    mr_json_field_real(w, "bandwidth_gbps", l->bandwidth / 1e9, 6);
    mr_json_field_real(w, "additions_g", l->adds / 1e9, 6);
    mr_json_write_key(w, "rows");
    mr_json_write_open(w, '[');
    for (int i = 0; i < count; i++) {
        mr_json_write_open(w, '{');
        mr_json_field_whole(w, "parameters", rows[i].parameters);
        mr_json_field_real(w, "bytes", rows[i].bytes, 12);
        mr_json_field_real(w, "ms", 1e3 * rows[i].seconds, 6);
        mr_json_field_real(w, "best_ms", 1e3 * rows[i].best, 6);
        mr_json_field_real(w, "model_ms", 1e3 * rows[i].model, 6);
        mr_json_write_close(w, '}');
    }
    mr_json_write_close(w, ']');
    mr_json_write_close(w, '}');
    return mr_json_out_end(&out, "\n", &err) ? mr_report("bench", &err) : MR_EXIT_DONE;
}

static int measure(const settings *s, mr_comm *comm, mr_error *err)
{
    const mr_dev_options options = {.threads = (int)s->common.threads};
    mr_ranks_row rows[SIZES];
    mr_ranks_limits limits;
    mr_ranks_job job = {.sizes = s->parameters ? &s->parameters : sizes,
                        .count = s->parameters ? 1 : SIZES,
                        .repeats = (int)s->repeats,
                        .watch = s->common.quiet ? NULL : show,
                        .arg = comm};
    mr_dev *dev;
    int status = mr_dev_open(s->common.device, &options, &dev, err);
    if (status) return status;
    status = mr_ranks_measure(&job, comm, dev, &limits, rows, err);
    if (!comm->rank && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    if (!status && !comm->rank && s->common.json) print_json(comm, &limits, rows, job.count);
    else if (!status && !comm->rank) print_text(comm, &limits, rows, job.count);
    mr_dev_close(dev);
    return status;
}

int mr_cmd_bench_ranks(int argc, char **argv)
{
    settings s = {.engine = 0};
    mr_args args = {.command = "bench ranks",
                    .flags = flags,
                    .settings = &s,
                    .usage = usage,
                    .examples = "  mpirun -n 2 minrnn bench ranks --threads 1\n"
                                "  mpirun -n 8 minrnn bench ranks --device cuda --parameters 350000000 --json\n"};
    mr_error err = {0};
    mr_comm *comm;
    mr_rank_mute();
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    s.common = mr_rank_share_machine(&s.common);
    int status = mr_comm_join(mr_rank_engines[s.engine], !strncmp(s.common.device, "cuda", 4), &comm, &err);
    if (status) return mr_report("bench", &err);
    status = measure(&s, comm, &err);
    mr_comm_leave(comm);
    return status ? mr_report("bench", &err) : MR_EXIT_DONE;
}
