/* Runs every case on every device of a check, and fills the table of results. */
#include "ops/check/group.h"

#include <string.h>

int mr_check_wants(const mr_check_options *options, int op)
{
    return !options->op || !strcmp(options->op, mr_case_ops[op].name);
}

int mr_check_wants_any(const mr_check_options *options, mr_error *err)
{
    for (int op = 0; op < MR_OP_COUNT; op++)
        if (mr_check_wants(options, op)) return 0;
    return mr_fail(err, MR_EINVAL, "there is no op %s; src/ops/ops.def lists them", options->op);
}

static int time_op(mr_check *k, int op, mr_check_row *rows, mr_error *err)
{
    mr_case c;
    int status = mr_case_draw(&c, op, 0, MR_CASE_SPEED) < 0 ? mr_no_memory(err, "a case of the check") : 0;
    for (int g = 0; g < k->count && status == 0; g++)
        status = mr_case_time(&c, k->groups[g].devices[0].dev, &rows[g].ns_per_element, err);
    mr_case_free(&c);
    return status;
}

static int check_op(mr_check *k, int op, mr_error *err)
{
    mr_check_row rows[MR_CHECK_ISAS] = {{0}};
    int status = 0;
    for (int g = 0; g < k->count; g++) rows[g] = (mr_check_row){.op = mr_case_ops[op].name, .isa = k->groups[g].isa};
    for (int i = 0; i < k->options->cases && status == 0; i++)
        status = mr_check_case(k, op, k->options->seed + (uint64_t)i, rows, err);
    if (status == 0) status = time_op(k, op, rows, err);
    for (int g = 0; g < k->count && status == 0; g++) {
        k->result->cases += rows[g].cases;
        k->result->misses += rows[g].misses;
        if (k->options->on_row) k->options->on_row(k->options->arg, &rows[g]);
    }
    return status;
}

int mr_check_run(const mr_check_options *options, mr_check_result *result, mr_error *err)
{
    mr_check k = {.options = options, .result = result};
    memset(result, 0, sizeof *result);
    int status = mr_check_wants_any(options, err);
    if (status == 0) status = mr_check_open(&k, err);
    for (int op = 0; op < MR_OP_COUNT && status == 0; op++)
        if (mr_check_wants(options, op)) status = check_op(&k, op, err);
    mr_check_close(&k);
    return status;
}
