/* minrnn reproduce --merge: rows from other folders and machines are added to those in --out. */
#include "core/file.h"
#include "commands/commands.h"
#include "commands/reproduce_parts.h"
#include "paper/report.h"
#include "train/recipes.h"

#include <math.h>
#include <string.h>

static int report_measured(const void *experiment, const mr_rows *rows, const char *dir, mr_error *err)
{
    return ((const mr_measured *)experiment)->report(rows, dir, err);
}

/* Adds the rows of one experiment and writes its page and charts again, also where no row is new: that is how results
 * are drawn in the current style. */
static int merge_one(const char *out, const char *name, const mr_rows *rows, mr_report_writer *report,
                     const void *experiment, size_t *total, mr_error *err)
{
    size_t added;
    mr_rows all;
    if (!mr_rows_have(rows, name)) return 0;
    int status = mr_reproduce_check_files(out, name, mr_measured_find(name) != NULL, err);
    if (!status) status = mr_reproduce_merge(out, name, rows, mr_measured_find(name) ? NULL : experiment, &added, err);
    if (status) return status;
    *total += added;
    status = mr_reproduce_rows(out, name, &all, err);
    if (status) return status;
    status = report(experiment, &all, out, err);
    mr_rows_free(&all);
    return status;
}

/* name: a built-in experiment, or a FILE.ini. */
static int merge_runs(const char *out, const char *name, const mr_rows *rows, size_t *total, mr_error *err)
{
    mr_experiment e;
    int status = mr_experiment_load(&e, name, err);
    if (status) return status;
    status = merge_one(out, e.name, rows, mr_report_write, &e, total, err);
    mr_experiment_free(&e);
    return status;
}

/* Is it a row of a built-in experiment, or of one whose FILE.ini is among the arguments? */
static int is_known(const mr_row *row, const mr_args *args)
{
    const char *name = mr_row_text(row, "experiment");
    if (mr_measured_find(name)) return 1;
    int known = mr_experiment_built_in(name) >= 0;
    for (int i = 0; !known && i < args->count; i++) {
        const char *file = mr_path_name(args->given[i]);
        known = mr_ini_is_name(file) && strlen(file) == strlen(name) + 4 && !strncmp(file, name, strlen(name));
    }
    return known && isfinite(mr_row_number(row, "seed"));
}

static int read_merged(const mr_args *args, mr_rows *rows, mr_error *err)
{
    int status = 0;
    for (int i = 0; !status && i < args->count; i++)
        if (!mr_ini_is_name(args->given[i])) status = mr_rows_read(rows, args->given[i], err);
    for (size_t i = 0; !status && i < rows->count; i++)
        if (!is_known(&rows->list[i], args))
            status =
                mr_fail(err, MR_EDATA,
                        "row %zu is of an experiment that this minrnn does not know (%.60s); if it is your own, give "
                        "its FILE.ini too",
                        i + 1, mr_row_text(&rows->list[i], "experiment"));
    return status;
}

int mr_reproduce_merge_files(const mr_reproduce_settings *set, const mr_args *args)
{
    mr_rows rows = {0};
    mr_error err;
    size_t added = 0;
    int status = read_merged(args, &rows, &err);
    for (int i = 0; !status && mr_experiment_names[i]; i++)
        status = merge_runs(set->out, mr_experiment_names[i], &rows, &added, &err);
    for (int i = 0; !status && i < args->count; i++)
        if (mr_ini_is_name(args->given[i])) status = merge_runs(set->out, args->given[i], &rows, &added, &err);
    for (int i = 0; !status && mr_measured_experiments[i]; i++)
        status = merge_one(set->out, mr_measured_experiments[i]->name, &rows, report_measured,
                           mr_measured_experiments[i], &added, &err);
    if (!status) printf("%zu rows read, %zu new in %s\n", rows.count, added, set->out);
    mr_rows_free(&rows);
    return status ? mr_report("reproduce", &err) : MR_EXIT_DONE;
}
