#include "paper/results.h"

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int mr_results_over(const mr_reproduce_options *o, double seconds)
{
    return (o->stop && *o->stop) || (o->deadline > 0 && mr_seconds() + seconds > o->deadline);
}

/* ---- the device ---- */

static void cpu_name(char *out, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(out, size, "CPU");
    while (file && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, size, "%s", colon + 2);
        break;
    }
    if (file) fclose(file);
}

/* Opened once to know what "auto" is here. */
static int probe(mr_results *r, mr_error *err)
{
    mr_context *ctx;
    char chip[128];
    mr_context_options options = MR_CONTEXT_OPTIONS;
    options.device = r->options->device;
    options.threads = r->options->threads;
    options.warn = r->options->warn;
    int status = mr_context_new(&options, &ctx, err);
    if (status) return status;
    const char *about = mr_context_device(ctx), *isa = strchr(about, ' ');
    const int threads = mr_context_threads(ctx);
    snprintf(r->kind, sizeof r->kind, "%.*s", (int)strcspn(about, " "), about);
    if (*mr_context_chip(ctx)) snprintf(r->device, sizeof r->device, "%s", mr_context_chip(ctx));
    else {
        cpu_name(chip, sizeof chip);
        snprintf(r->device, sizeof r->device, "%s, %d thread%s%s%s", chip, threads, threads > 1 ? "s" : "",
                 isa ? "," : "", isa ? isa : "");
    }
    mr_context_free(ctx);
    return 0;
}

/* ---- the files ---- */

static char *named(const char *dir, const char *name, const char *ending)
{
    char file[128];
    snprintf(file, sizeof file, "%s%s", name, ending);
    return mr_path_join(dir, file);
}

static int read_rows(const char *path, mr_table *rows, mr_error *err)
{
    return mr_path_exists(path) ? mr_table_read(rows, path, err) : 0;
}

int mr_reproduce_rows(const char *dir, const char *name, mr_table *rows, mr_error *err)
{
    memset(rows, 0, sizeof *rows);
    char *path = named(dir, name, ".json");
    int status = path ? read_rows(path, rows, err) : mr_no_memory(err, "the results");
    mr_free(path);
    if (status) mr_table_free(rows);
    return status;
}

/* Who holds DIR/runs/NAME may write DIR/NAME.json. *runs is the caller's. */
static int lock_runs(const char *dir, const char *name, char **runs, int *lock, mr_error *err)
{
    char inside[128];
    snprintf(inside, sizeof inside, "runs/%s", name);
    *runs = mr_path_join(dir, inside);
    if (!*runs) return mr_no_memory(err, "the results");
    int status = mr_make_directory(*runs, err);
    return status ? status : mr_lock_directory(*runs, lock, err);
}

static int make_folders(mr_results *r, mr_error *err)
{
    r->path = named(r->options->out, r->name, ".json");
    if (!r->path) return mr_no_memory(err, "the results");
    return lock_runs(r->options->out, r->name, &r->runs, &r->lock, err);
}

int mr_results_open(mr_results *r, const char *name, const mr_reproduce_options *options, mr_results_report *report,
                    const void *experiment, mr_error *err)
{
    *r = (mr_results){.name = name, .options = options, .report = report, .experiment = experiment, .lock = -1};
    pthread_mutex_init(&r->mutex, NULL);
    int status = probe(r, err);
    if (!status) status = make_folders(r, err);
    return status ? status : read_rows(r->path, &r->rows, err);
}

void mr_results_close(mr_results *r)
{
    if (r->lock >= 0) mr_unlock(r->lock);
    pthread_mutex_destroy(&r->mutex);
    mr_table_free(&r->rows);
    mr_free(r->path);
    mr_free(r->runs);
}

void mr_results_stamp(const mr_results *r, mr_row *row, const char *label, const char *column, const char *settings,
                      const char *dtype)
{
    char date[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    mr_row_set_text(row, "experiment", r->name);
    mr_row_set_text(row, "row", label);
    mr_row_set_text(row, "column", column);
    mr_row_set_text(row, "profile", mr_profile_names[r->options->plan.profile]);
    mr_row_set_text(row, "settings", settings);
    mr_row_set_text(row, "kind", r->kind);
    mr_row_set_text(row, "dtype", dtype);
    mr_row_set_text(row, "device", r->device);
    mr_row_set_text(row, "date", date);
    mr_row_set_text(row, "minrnn", mr_version());
}

int mr_results_put(mr_results *r, mr_row *row, mr_error *err)
{
    int status = mr_table_put(&r->rows, row, err);
    if (!status) status = mr_table_write(&r->rows, r->path, r->name, err);
    return status ? status : r->report(r->experiment, &r->rows, r->options->out, err);
}

/* ---- merging ---- */

static int copy_row(mr_row *to, const mr_row *from)
{
    *to = *from;
    to->curve = from->points ? mr_alloc(from->points, sizeof *to->curve) : NULL;
    if (from->points && to->curve) memcpy(to->curve, from->curve, from->points * sizeof *to->curve);
    if (from->points && !to->curve) to->points = 0, to->failed = 1;
    for (int i = 0; i < from->count; i++) {
        to->fields[i].text = from->fields[i].text ? mr_strdup(from->fields[i].text) : NULL;
        if (from->fields[i].text && !to->fields[i].text) to->failed = 1;
    }
    return to->failed;
}

static int add_rows(const char *dir, const char *name, const mr_table *from, size_t *added, mr_error *err)
{
    mr_table rows;
    char *path = named(dir, name, ".json");
    int status = path ? mr_reproduce_rows(dir, name, &rows, err) : mr_no_memory(err, "the results");
    if (status) {
        mr_free(path);
        return status;
    }
    for (size_t i = 0; !status && i < from->count; i++) {
        mr_row copy;
        const mr_row *old = mr_table_find(&rows, &from->list[i]);
        const int renewed = old && mr_row_outdated(old) && !mr_row_outdated(&from->list[i]);
        if (strcmp(mr_row_text(&from->list[i], "experiment"), name) || (old && !renewed)) continue;
        copy_row(&copy, &from->list[i]);
        status = mr_table_put(&rows, &copy, err);
        if (!status) ++*added;
    }
    if (!status && *added) status = mr_table_write(&rows, path, name, err);
    mr_table_free(&rows);
    mr_free(path);
    return status;
}

static int has_rows_of(const mr_table *rows, const char *name)
{
    for (size_t i = 0; i < rows->count; i++)
        if (!strcmp(mr_row_text(&rows->list[i], "experiment"), name)) return 1;
    return 0;
}

int mr_reproduce_merge(const char *dir, const char *name, const mr_table *from, size_t *added, mr_error *err)
{
    char *runs = NULL;
    int lock = -1;
    *added = 0;
    if (!has_rows_of(from, name)) return 0;
    int status = lock_runs(dir, name, &runs, &lock, err); /* a run in there would write its own rows over these */
    if (!status) status = add_rows(dir, name, from, added, err);
    if (lock >= 0) mr_unlock(lock);
    mr_free(runs);
    return status;
}
