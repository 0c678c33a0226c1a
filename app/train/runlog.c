/* The files of a log, written together. */
#include "train/runlog.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/strbuf.h"
#include "train/append_file.h"
#include "train/event_file.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct mr_runlog {
    mr_append_file *json, *csv;
    mr_event_file *events;
    mr_strbuf line; /* the one being written */
};

/* ---- reading back ---- */

/* Called for each entry of a log; a negative status ends the reading. */
typedef int on_entry(void *user, const mr_log_entry *entry, mr_error *err);

/* Of the lines that begin before byte `limit`; 0: of all. */
static int read_entries(const char *path, uint64_t limit, on_entry *take, void *user, mr_error *err)
{
    char line[MR_LOG_LINE];
    size_t number = 0;
    uint64_t at = 0;
    int status = 0;
    FILE *file = fopen(path, "re");
    if (!file) return mr_fail(err, MR_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    while (!status && (!limit || at < limit) && fgets(line, sizeof line, file)) {
        mr_log_entry entry;
        size_t size = strlen(line);
        at += size;
        int whole = size && line[size - 1] == '\n';
        number++;
        if (!whole && feof(file)) break;
        if (!whole || !mr_log_parse(line, size, &entry))
            status = mr_fail(err, MR_EFORMAT, "%s: line %zu is not a step or an evaluation of a run", path, number);
        else status = take(user, &entry, err);
    }
    if (!status && ferror(file)) status = mr_fail(err, MR_EIO, "%s: cannot be read: %s", path, strerror(errno));
    fclose(file);
    return status;
}

typedef struct points {
    mr_curve_point *list;
    size_t n, room;
} points;

static int keep_point(void *user, const mr_log_entry *e, mr_error *err)
{
    points *p = user;
    if (e->kind == MR_LOG_WHOLE) return 0;
    if (p->n == p->room) {
        size_t room = 2 * p->room + 1024;
        mr_curve_point *grown = mr_alloc(room, sizeof *grown);
        if (!grown) return mr_no_memory(err, "the log's points");
        if (p->n) memcpy(grown, p->list, p->n * sizeof *grown);
        mr_free(p->list);
        p->list = grown;
        p->room = room;
    }
    const int step = e->kind == MR_LOG_STEP;
    p->list[p->n++] = (mr_curve_point){e->step, step ? e->loss : NAN, step ? NAN : e->loss, step ? NAN : e->accuracy};
    return 0;
}

int mr_runlog_read(const char *path, mr_curve_point **list, size_t *n, mr_error *err)
{
    points p = {0};
    int status = read_entries(path, 0, keep_point, &p, err);
    if (status) {
        mr_free(p.list);
        p = (points){0};
    }
    *list = p.list;
    *n = p.n;
    return status;
}

/* ---- opening ---- */

static int ignore(void *user, const mr_log_entry *e, mr_error *err)
{
    (void)user, (void)e, (void)err;
    return 0;
}

/* A damaged line would stop the run at its next save, when the curve is drawn: it is found before the first step. */
static int check_log(const char *json, uint64_t offset, mr_error *err)
{
    mr_error inner;
    const int status = offset && mr_path_exists(json) ? read_entries(json, offset, ignore, NULL, &inner) : 0;
    if (!status) return 0;
    if (status != MR_EFORMAT) return mr_fail(err, status, "%s", inner.text);
    return mr_fail(err, status,
                   "%.700s; put the run's own log back, or remove this one and resume: only the log is lost",
                   inner.text);
}

/* A log.csv is written anew: refused where somebody else wrote the one that is there. */
static int check_csv(const char *csv, mr_error *err)
{
    const size_t size = strlen(mr_log_csv_header);
    char first[256] = "";
    FILE *file = fopen(csv, "re");
    if (!file) return 0; /* none, or writing it will say why it cannot be used */
    const int own = !fgets(first, sizeof first, file) || !strncmp(first, mr_log_csv_header, size);
    fclose(file);
    if (own) return 0;
    return mr_fail(err, MR_EDATA,
                   "%s: no run wrote this file, and --log csv would overwrite it; move it, or leave "
                   "--log csv out",
                   csv);
}

static int add_row(void *user, const mr_log_entry *e, mr_error *err)
{
    (void)err;
    mr_log_csv(user, e);
    return 0;
}

/* log.csv with everything that log.jsonl has. */
static int make_csv(const char *json, const char *path, mr_append_file **out, mr_error *err)
{
    mr_strbuf text = {0};
    mr_strbuf_add(&text, mr_log_csv_header);
    int status = read_entries(json, 0, add_row, &text, err);
    if (!status && text.failed) status = mr_no_memory(err, path);
    if (!status) status = mr_file_replace(path, text.data, text.size, err);
    if (!status) status = mr_append_open(path, text.size, out, err);
    mr_strbuf_free(&text);
    return status;
}

typedef struct missing_events {
    mr_event_file *file;
    int64_t after; /* the last step that is not missing */
} missing_events;

static int add_event(void *user, const mr_log_entry *e, mr_error *err)
{
    const missing_events *missing = user;
    return e->step > missing->after ? mr_event_file_add(missing->file, e, err) : 0;
}

/* An event file that begins with what log.jsonl has and earlier event files do not. */
static int make_events(const char *json, const char *dir, int64_t steps, mr_event_file **out, mr_error *err)
{
    int status = mr_event_file_open(dir, steps, out, err);
    missing_events missing = {*out, steps};
    return status ? status : read_entries(json, 0, add_event, &missing, err);
}

int mr_runlog_open(const char *dir, mr_log_formats formats, uint64_t offset, int64_t event_steps, mr_runlog **out,
                   mr_error *err)
{
    char *json = mr_path_join(dir, "log.jsonl"), *csv = mr_path_join(dir, "log.csv");
    mr_runlog *log = *out = mr_alloc(1, sizeof *log);
    int status = json && csv && log ? 0 : mr_no_memory(err, "the log");
    if (!status && formats & MR_LOG_CSV) status = check_csv(csv, err);
    if (!status) status = check_log(json, offset, err);
    if (!status) status = mr_append_open(json, offset, &log->json, err);
    if (!status && formats & MR_LOG_CSV) status = make_csv(json, csv, &log->csv, err);
    if (!status && formats & MR_LOG_EVENTS) status = make_events(json, dir, event_steps, &log->events, err);
    mr_free(json);
    mr_free(csv);
    if (!status) return 0;
    mr_runlog_close(log, NULL);
    *out = NULL;
    return status;
}

/* ---- writing ---- */

typedef void write_line(mr_strbuf *out, const mr_log_entry *entry);

static int add_line(mr_runlog *log, mr_append_file *file, write_line *write, const mr_log_entry *entry, mr_error *err)
{
    log->line.size = 0;
    write(&log->line, entry);
    return log->line.failed ? mr_no_memory(err, "the log") : mr_append(file, log->line.data, log->line.size, err);
}

int mr_runlog_add(mr_runlog *log, const mr_log_entry *entry, mr_error *err)
{
    int status = add_line(log, log->json, mr_log_json, entry, err);
    if (!status && log->csv) status = add_line(log, log->csv, mr_log_csv, entry, err);
    if (!status && log->events) status = mr_event_file_add(log->events, entry, err);
    return status;
}

uint64_t mr_runlog_offset(const mr_runlog *log) { return mr_append_offset(log->json); }

int mr_runlog_flush(mr_runlog *log, int sync, mr_error *err)
{
    int status = mr_append_flush(log->json, sync, err);
    if (!status && log->csv) status = mr_append_flush(log->csv, sync, err);
    if (!status && log->events) status = mr_event_file_flush(log->events, sync, err);
    return status;
}

int mr_runlog_close(mr_runlog *log, mr_error *err)
{
    if (!log) return 0;
    int status = mr_append_close(log->json, err), other = mr_append_close(log->csv, status ? NULL : err);
    if (!status) status = other;
    other = mr_event_file_close(log->events, status ? NULL : err);
    mr_strbuf_free(&log->line);
    mr_free(log);
    return status ? status : other;
}
