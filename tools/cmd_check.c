/* minrnn check: every op of this machine against the reference. */
#include "ops/check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mr_cmd_check(int argc, char **argv);

static const char usage[] =
    "minrnn check [--quick] [--mutate] [--device NAME] [--op NAME] [--isa NAME] [--seed N] [--cases N] [--json]\n"
    "\n"
    "Runs every op of a device on random shapes and options and compares it with `ref`, the plain reference: values within the\n"
    "op's tolerance, the same bits in every run and for 1, 2 and 5 threads, nothing written outside the outputs.\n"
    "Exit status: 0 all as it should be, 1 something was not, 2 wrong usage.\n"
    "\n"
    "  --quick         fewer cases, under a minute\n"
    "  --mutate        check the check: spoil results one op at a time; 0 only if every mutation was caught\n"
    "  --device NAME   cpu (default: every instruction set of this machine), ref64, cuda\n"
    "  --op NAME       one op of src/ops/ops.def\n"
    "  --isa NAME      one instruction set: avx512, avx2, neon, scalar\n"
    "  --seed N        of the first case (default 0); a miss names the seed that repeats it\n"
    "  --cases N       cases of each op\n"
    "  --json          one object with every row\n"
    "\n"
    "examples:\n"
    "  minrnn check --quick\n"
    "  minrnn check --op minrnn_bwd --isa avx2\n"
    "  minrnn check --op linear_fwd --seed 17 --cases 1     the case of a miss again\n"
    "  minrnn check --mutate\n";

typedef struct settings {
    mr_check_options check;
    int mutate, json, rows, misses; /* rows printed; misses printed of this op */
} settings;

enum { MISSES_SHOWN = 6 }; /* of one op: a wrong kernel misses hundreds of times */

static int parse_count(const char *flag, const char *text, unsigned long long *value)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && !*end && !errno) return 0;
    fprintf(stderr, "minrnn check: %s takes a whole number, not \"%s\"\n", flag, text);
    return 2;
}

/* 0: go on, otherwise the exit status + 1. */
static int parse(int argc, char **argv, settings *s)
{
    unsigned long long number;
    s->check.cases = MR_CHECK_FULL;
    for (int i = 1; i < argc; i++) {
        const char *flag = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(flag, "--help")) return fputs(usage, stdout), 1;
        if (!strcmp(flag, "--quick")) s->check.cases = MR_CHECK_QUICK;
        else if (!strcmp(flag, "--mutate")) s->mutate = 1;
        else if (!strcmp(flag, "--json")) s->json = 1;
        else if (strcmp(flag, "--device") && strcmp(flag, "--op") && strcmp(flag, "--isa") && strcmp(flag, "--seed") && strcmp(flag, "--cases"))
            return fprintf(stderr, "minrnn check: unknown flag %s; see minrnn check --help\n", flag), 3;
        else if (!value) return fprintf(stderr, "minrnn check: %s needs a value; see minrnn check --help\n", flag), 3;
        else {
            i++;
            if (!strcmp(flag, "--device")) s->check.device = value;
            if (!strcmp(flag, "--op")) s->check.op = value;
            if (!strcmp(flag, "--isa")) s->check.isa = value;
            if (strcmp(flag, "--seed") && strcmp(flag, "--cases")) continue;
            if (parse_count(flag, value, &number)) return 3;
            if (!strcmp(flag, "--seed")) s->check.seed = number;
            else if (number >= 1 && number <= 1000000) s->check.cases = (int)number;
            else return fprintf(stderr, "minrnn check: --cases takes 1 to 1000000, not %s\n", value), 3;
        }
    }
    return 0;
}

static void print_miss(void *arg, const char *line)
{
    settings *s = arg;
    if (s->misses++ < MISSES_SHOWN) fprintf(stderr, "miss: %s\n", line);
}

static void print_row(void *arg, const mr_check_row *row)
{
    settings *s = arg;
    s->misses = 0;
    if (s->json) {
        int finite = row->worst < 1e300; /* JSON has no infinity */
        printf("%s\n  {\"op\": \"%s\", \"isa\": \"%s\", \"worst\": %.*g, \"cases\": %ld, \"misses\": %ld, \"ns_per_element\": %.4g}",
               s->rows ? "," : "", row->op, row->isa, 4, finite ? row->worst : 1e300, row->cases, row->misses, row->ns_per_element);
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
    if (s->json) printf("%s\n  {\"op\": \"%s\", \"caught\": %d, \"mutants\": %d}", s->rows ? "," : "", op, caught, tried);
    else printf("%-14s caught %d of %d\n", op, caught, tried);
    s->rows++;
    fflush(stdout);
}

static void print_total(const settings *s, const mr_check_result *result)
{
    if (s->json && s->mutate) printf("\n ], \"caught\": %d, \"mutants\": %d}\n", result->caught, result->mutants);
    else if (s->json) printf("\n ], \"cases\": %ld, \"misses\": %ld}\n", result->cases, result->misses);
    else if (s->mutate) printf("caught %d of %d\n", result->caught, result->mutants);
    else printf("%ld cases, %ld missed\n", result->cases, result->misses);
}

int mr_cmd_check(int argc, char **argv)
{
    settings s = {0};
    mr_check_result result;
    mr_error err = {0};
    int stop = parse(argc, argv, &s);
    if (stop) return stop - 1;
    s.check.on_row = print_row;
    s.check.on_miss = print_miss;
    s.check.on_mutant = print_mutant;
    s.check.arg = &s;
    if (s.json) printf("{\"rows\": [");
    int status = s.mutate ? mr_check_mutate(&s.check, &result, &err) : mr_check_run(&s.check, &result, &err);
    print_total(&s, &result);
    if (status < 0) fprintf(stderr, "minrnn check: %s\n", err.text);
    return status < 0 || result.misses || result.caught != result.mutants;
}
