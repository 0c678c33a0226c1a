/* Runs experiments that measure: opens the device, offers every cell, and keeps results like those of runs. */
#include "bench/experiment_cells.h"
#include "paper/result_folder.h"

#include <string.h>

struct mr_measuring {
    mr_result_folder results;
    mr_dev *dev;
    mr_reproduce_result *result;
};

const mr_reproduce_options *mr_measuring_options(const mr_measuring *m) { return m->results.options; }
mr_dev *mr_measuring_device(const mr_measuring *m) { return m->dev; }

int mr_measuring_over(const mr_measuring *m)
{
    const int over = mr_reproduce_time_is_up(m->results.options, 0);
    if (over) m->result->cut = 1;
    return over;
}

int mr_measuring_wants(mr_measuring *m, const char *label, const char *column, const char *settings, mr_row *row)
{
    const mr_reproduce_options *o = m->results.options;
    memset(row, 0, sizeof *row);
    mr_result_folder_stamp(&m->results, row, label, column, settings, o->dtype == 1 ? "bf16" : "f32");
    if (!mr_plan_wants(&o->plan, label, column)) return mr_row_free(row), 0;
    if (o->again || !mr_rows_find(&m->results.rows, row)) return 1;
    m->result->found++;
    return mr_row_free(row), 0;
}

int mr_measuring_add(mr_measuring *m, mr_row *row, mr_error *err)
{
    const mr_reproduce_watch *watch = m->results.options->watch;
    if (watch && watch->measured) watch->measured(watch->user, row);
    int status = mr_result_folder_put(&m->results, row, err);
    if (!status) m->result->done++;
    return status;
}

static int report_measured(const void *experiment, const mr_rows *rows, const char *dir, mr_error *err)
{
    return ((const mr_measured *)experiment)->report(rows, dir, err);
}

int mr_reproduce_measured(const mr_measured *e, const mr_reproduce_options *o, mr_reproduce_result *result,
                          mr_error *err)
{
    mr_measuring m = {.result = result};
    mr_dev_options options = {.threads = o->threads, .bf16 = o->dtype == 1, .exact = o->tf32 == 0};
    memset(result, 0, sizeof *result);
    int status = mr_result_folder_open(&m.results, e->name, o, report_measured, e, err);
    if (!status) status = mr_dev_open(o->device, &options, &m.dev, err);
    if (!status) status = e->run(&m, err);
    if (!status && o->stop && *o->stop) status = mr_fail(err, MR_ESTOPPED, "stopped");
    mr_dev_close(m.dev);
    mr_result_folder_close(&m.results);
    return status;
}
