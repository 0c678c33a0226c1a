/* The folder of results: its files, its lock, and the device that results are made on. */
#include "paper/result_folder.h"

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int mr_reproduce_time_is_up(const mr_reproduce_options *o, double seconds)
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

/* Opens the device once, to know what "auto" means on this machine. */
static int probe(mr_result_folder *r, mr_error *err)
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

char *mr_result_path(const char *dir, const char *name)
{
    char file[128];
    snprintf(file, sizeof file, "%s.json", name);
    return mr_path_join(dir, file);
}

static int read_rows(const char *path, mr_rows *rows, mr_error *err)
{
    return mr_path_exists(path) ? mr_rows_read(rows, path, err) : 0;
}

int mr_reproduce_rows(const char *dir, const char *name, mr_rows *rows, mr_error *err)
{
    memset(rows, 0, sizeof *rows);
    char *path = mr_result_path(dir, name);
    int status = path ? read_rows(path, rows, err) : mr_no_memory(err, "the results");
    mr_free(path);
    if (status) mr_rows_free(rows);
    return status;
}

int mr_result_folder_lock(const char *dir, const char *name, char **runs, int *lock, mr_error *err)
{
    char inside[128];
    snprintf(inside, sizeof inside, "runs/%s", name);
    *runs = mr_path_join(dir, inside);
    if (!*runs) return mr_no_memory(err, "the results");
    int status = mr_make_directory(*runs, err);
    return status ? status : mr_lock_directory(*runs, lock, err);
}

static int make_folders(mr_result_folder *r, mr_error *err)
{
    r->path = mr_result_path(r->options->out, r->name);
    if (!r->path) return mr_no_memory(err, "the results");
    return mr_result_folder_lock(r->options->out, r->name, &r->runs, &r->lock, err);
}

int mr_result_folder_open(mr_result_folder *r, const char *name, const mr_reproduce_options *options,
                          mr_report_writer *report, const void *experiment, mr_error *err)
{
    *r = (mr_result_folder){.name = name,
                            .options = options,
                            .report = report,
                            .experiment = experiment,
                            .lock = -1,
                            .mutex = PTHREAD_MUTEX_INITIALIZER};
    int status = probe(r, err);
    if (!status) status = make_folders(r, err);
    return status ? status : read_rows(r->path, &r->rows, err);
}

void mr_result_folder_close(mr_result_folder *r)
{
    mr_unlock_and_tidy(r->runs, r->lock);
    pthread_mutex_destroy(&r->mutex);
    mr_rows_free(&r->rows);
    mr_free(r->path);
    mr_free(r->runs);
}

void mr_result_folder_stamp(const mr_result_folder *r, mr_row *row, const char *label, const char *column,
                            const char *settings, const char *dtype)
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

int mr_result_folder_put(mr_result_folder *r, mr_row *row, mr_error *err)
{
    int status = mr_rows_put(&r->rows, row, err);
    if (!status) status = mr_rows_write(&r->rows, r->path, r->name, err);
    return status ? status : r->report(r->experiment, &r->rows, r->options->out, err);
}
