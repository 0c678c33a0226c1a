/* minrnn check: every op of this machine against the reference. */
#include "ops/check/check.h"
#include "commands/json_out.h"
#include "commands/args.h"
#include "commands/commands.h"

#include <stddef.h>
#include <string.h>

typedef struct settings {
    char device[MR_TEXT_MAX], op[MR_TEXT_MAX], isa[MR_TEXT_MAX];
    int64_t seed, cases;
    int quick, mutate, quiet, json, bf16;
    int rows, misses; /* rows printed; misses of this op so far */
    mr_json_out out;  /* with --json */
} settings;

#define FIELD(name) offsetof(settings, name)

static const mr_option flags[] = {
    {"quick", MR_OPT_BOOL, FIELD(quick), "no", 0, 0, NULL, "fewer cases, under a minute", 0},
    {"mutate", MR_OPT_BOOL, FIELD(mutate), "no", 0, 0, NULL,
     "check the check: spoil results, one op at a time; every one must be caught", 0},
    {"device", MR_OPT_TEXT, FIELD(device), "cpu", 0, 0, NULL,
     "what is compared with ref: cpu (each instruction set), ref64, cuda[:i]", 0},
    {"op", MR_OPT_TEXT, FIELD(op), "", 0, 0, NULL, "one op of src/ops/ops.def instead of all", 0},
    {"isa", MR_OPT_TEXT, FIELD(isa), "", 0, 0, NULL, "one instruction set instead of all: avx512, avx2, neon, scalar",
     0},
    {"dtype", MR_OPT_CHOICE, FIELD(bf16), "f32", 0, 0, mr_dtypes, "what matrix products are computed in", 0},
    {"seed", MR_OPT_INT, FIELD(seed), "0", 0, 1e15, NULL, "of the first case; a miss names the seed that repeats it",
     0},
    {"cases", MR_OPT_INT, FIELD(cases), "0", 0, 1e6, NULL, "cases of each op; 0: 960, or 80 with --quick", 0},
    {"quiet", MR_OPT_BOOL, FIELD(quiet), "no", 0, 0, NULL, "print misses and the last line only", 0},
    {"json", MR_OPT_BOOL, FIELD(json), "no", 0, 0, NULL, "one object with every row", 0},
    {0}};

enum { MISSES_SHOWN = 6 }; /* of one op: a wrong kernel misses hundreds of times */

static void print_miss(void *arg, const char *line)
{
    settings *s = arg;
    if (s->misses++ < MISSES_SHOWN) fprintf(stderr, "miss: %s\n", line);
}

static void begin_json(mr_json_out *out)
{
    mr_json_writer *w = mr_json_out_begin(out);
    mr_json_write_open(w, '{');
    mr_json_write_key(w, "rows");
    mr_json_write_open(w, '[');
}

static void print_row_json(mr_json_out *out, const mr_check_row *row)
{
    mr_json_writer *w = &out->w;
    mr_json_write_line(w);
    mr_json_write_open(w, '{');
    mr_json_field_text(w, "op", row->op);
    mr_json_field_text(w, "isa", row->isa);
    mr_json_field_real(w, "worst", row->worst < 1e300 ? row->worst : 1e300, 4); /* JSON has no infinity */
    mr_json_field_whole(w, "cases", row->cases);
    mr_json_field_whole(w, "misses", row->misses);
    mr_json_field_real(w, "ns_per_element", row->ns_per_element, 4);
    mr_json_write_close(w, '}');
    mr_json_out_flush(out);
}

static void print_mutant_json(mr_json_out *out, const char *op, int caught, int tried)
{
    mr_json_writer *w = &out->w;
    mr_json_write_line(w);
    mr_json_write_open(w, '{');
    mr_json_field_text(w, "op", op);
    mr_json_field_whole(w, "caught", caught);
    mr_json_field_whole(w, "mutants", tried);
    mr_json_write_close(w, '}');
    mr_json_out_flush(out);
}

/* The end of the list, and the sums. */
static int end_json(mr_json_out *out, int mutate, const mr_check_result *result, mr_error *err)
{
    mr_json_writer *w = &out->w;
    mr_strbuf_add(&out->text, "\n ");
    mr_json_write_close(w, ']');
    mr_json_field_whole(w, mutate ? "caught" : "cases", mutate ? result->caught : result->cases);
    mr_json_field_whole(w, mutate ? "mutants" : "misses", mutate ? result->mutants : result->misses);
    mr_json_write_close(w, '}');
    return mr_json_out_end(out, "\n", err);
}

static void print_row(void *arg, const mr_check_row *row)
{
    settings *s = arg;
    s->misses = 0;
    if (s->quiet && !row->misses) return;
    if (s->json) {
        print_row_json(&s->out, row);
    } else {
        if (!s->rows) printf("%-14s %-8s %10s %8s %10s\n", "op", "isa", "worst/tol", "cases", "ns/element");
        printf("%-14s %-8s %10.3f %8ld %10.3f  %s\n", row->op, row->isa, row->worst, row->cases, row->ns_per_element,
               row->misses ? "FAIL" : "ok");
    }
    s->rows++;
    fflush(stdout);
}

static void print_mutant(void *arg, const char *op, int caught, int tried)
{
    settings *s = arg;
    s->misses = 0;
    if (s->json) print_mutant_json(&s->out, op, caught, tried);
    else printf("%-14s caught %d of %d\n", op, caught, tried);
    s->rows++;
    fflush(stdout);
}

static void print_total(const settings *s, const mr_check_result *result)
{
    if (s->mutate) printf("caught %d of %d\n", result->caught, result->mutants);
    else printf("%ld cases, %ld missed\n", result->cases, result->misses);
}

static mr_check_options options_from(settings *s)
{
    mr_check_options o = {
        .seed = (uint64_t)s->seed, .on_row = print_row, .on_miss = print_miss, .on_mutant = print_mutant, .arg = s};
    o.cases = s->cases ? (int)s->cases : s->quick ? MR_CHECK_QUICK : MR_CHECK_FULL;
    o.device = strcmp(s->device, "auto") ? s->device : "cpu";
    o.op = s->op[0] ? s->op : NULL;
    o.isa = s->isa[0] ? s->isa : NULL;
    o.bf16 = s->bf16;
    return o;
}

static const char *const ops[] = {
#define OP(name, ...) #name,
#include "ops/ops.def"
#undef OP
    NULL};

static int is_op(const char *name)
{
    for (int i = 0; ops[i]; i++)
        if (!strcmp(ops[i], name)) return 1;
    return 0;
}

int mr_cmd_check(int argc, char **argv)
{
    settings s = {0};
    mr_args args = {
        .command = "check",
        .flags = flags,
        .settings = &s,
        .usage =
            "usage: minrnn check [--quick] [--mutate] [--device NAME] [--op NAME] [--isa NAME] [--dtype f32|bf16]\n"
            "\n"
            "Runs every op on random shapes and options and compares it with `ref`, the specification: values\n"
            "within the op's tolerance, the same bits in every run and with 1, 2 and 5 threads, nothing written\n"
            "outside the outputs.\n"
            "\n"
            "--dtype bf16 on a GPU: activations lie in bf16, which rounds by at most u = 1/256. ref gets the rounded\n"
            "inputs; allowed are the tolerance of fp32, u of a result that is stored in bf16, and in linear and "
            "minrnn\n"
            "ops, which round on the way, 4u of the largest result. On the CPU only operands of products are rounded:\n"
            "1e-2 for linear ops, 2e-2 and 3e-2 for minrnn_fwd and minrnn_bwd, 0.5 where a slope jumps (positive).\n",
        .examples = "  minrnn check --quick\n"
                    "  minrnn check --op minrnn_bwd --isa avx2\n"
                    "  minrnn check --op linear_fwd --seed 17 --cases 1     the case of a miss again\n"
                    "  minrnn check --mutate\n"};
    mr_check_result result;
    mr_error err = {0};
    int code = mr_args_parse(&args, argc, argv);
    if (code >= 0) return code;
    if (s.op[0] && !is_op(s.op)) return mr_unknown_name("check", "op", s.op, ops);
    mr_check_options options = options_from(&s);
    if (s.json) begin_json(&s.out);
    int status = s.mutate ? mr_check_mutate(&options, &result, &err) : mr_check_run(&options, &result, &err);
    if (status == 0 && !s.json) print_total(&s, &result);
    if (status < 0) mr_report("check", &err);
    if (s.json && end_json(&s.out, s.mutate, &result, &err)) return mr_report("check", &err);
    if (status < 0) return MR_EXIT_FAILED;
    return result.misses || result.caught != result.mutants ? MR_EXIT_FAILED : MR_EXIT_DONE;
}
