/* minrnn reproduce --merge: rows from other folders and machines are added to those in --out. */
#include "core/file.h"
#include "commands/commands.h"
#include "commands/reproduce_parts.h"
#include "paper/report.h"
#include "train/recipes.h"

#include <math.h>
#include <string.h>

static int merge_measured(const mr_reproduce_settings *set, const mr_rows *rows, const mr_measured *m, size_t *total,
                          mr_error *err)
{
    size_t added;
    mr_rows all;
    int status = mr_reproduce_merge(set->out, m->name, rows, &added, err);
    *total += added;
    if (status || !added) return status;
    status = mr_reproduce_rows(set->out, m->name, &all, err);
    if (status) return status;
    status = m->report(&all, set->out, err);
    mr_rows_free(&all);
    return status;
}

/* name: a built-in experiment, or a FILE.ini. */
static int merge_runs(const mr_reproduce_settings *set, const mr_rows *rows, const char *name, size_t *total,
                      mr_error *err)
{
    size_t added;
    mr_experiment e;
    mr_rows all;
    int status = mr_experiment_load(&e, name, err);
    if (status) return status;
    status = mr_reproduce_merge(set->out, e.name, rows, &added, err);
    *total += added;
    if (!status && added) {
        status = mr_reproduce_rows(set->out, e.name, &all, err);
        if (!status) status = mr_report_write(&e, &all, set->out, err);
        mr_rows_free(&all);
    }
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
        status = merge_runs(set, &rows, mr_experiment_names[i], &added, &err);
    for (int i = 0; !status && i < args->count; i++)
        if (mr_ini_is_name(args->given[i])) status = merge_runs(set, &rows, args->given[i], &added, &err);
    for (int i = 0; !status && mr_measured_experiments[i]; i++)
        status = merge_measured(set, &rows, mr_measured_experiments[i], &added, &err);
    if (!status) printf("%zu rows read, %zu new in %s\n", rows.count, added, set->out);
    mr_rows_free(&rows);
    return status ? mr_report("reproduce", &err) : MR_EXIT_DONE;
}
