#include "train/runlog.h"

#include "core/json.h"
#include "core/mem.h"
#include "core/options.h"
#include "core/text.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_MAX_BYTES 512 /* six numbers and their names need less than 300 */
#define BUFFER_BYTES (64 * 1024)

struct mr_runlog {
    int fd;
    char *path;
    uint64_t written; /* bytes of the file */
    size_t used;      /* bytes in the buffer */
    char buffer[BUFFER_BYTES];
};

/* Is this the log that the checkpoint knew? It must reach to the offset, and a line must end there. */
static int check_offset(int fd, const char *path, uint64_t offset, mr_error *err)
{
    struct stat st;
    char last = '\n';
    if (fstat(fd, &st) < 0) return mr_fail(err, MR_EIO, "%s: cannot be examined: %s", path, strerror(errno));
    if ((uint64_t)st.st_size < offset)
        return mr_fail(err, MR_EDATA,
                       "%s: has %llu bytes, but the checkpoint was made at byte %llu of it: put the run's own log "
                       "back, or start anew in another folder",
                       path, (unsigned long long)st.st_size, (unsigned long long)offset);
    if (offset && pread(fd, &last, 1, (off_t)offset - 1) != 1)
        return mr_fail(err, MR_EIO, "%s: cannot be read: %s", path, strerror(errno));
    if (last != '\n')
        return mr_fail(err, MR_EDATA,
                       "%s: no line ends at byte %llu, where the checkpoint was made: put the run's own log back, or "
                       "start anew in another folder",
                       path, (unsigned long long)offset);
    return 0;
}

int mr_runlog_open(const char *path, uint64_t offset, mr_runlog **out, mr_error *err)
{
    *out = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return mr_fail(err, MR_EIO, "%s: cannot be opened for writing: %s", path, strerror(errno));
    int status = check_offset(fd, path, offset, err);
    if (!status && (ftruncate(fd, (off_t)offset) < 0 || lseek(fd, (off_t)offset, SEEK_SET) < 0))
        status = mr_fail(err, MR_EIO, "%s: cannot be cut to %llu bytes: %s", path, (unsigned long long)offset,
                         strerror(errno));
    mr_runlog *log = status ? NULL : mr_alloc(1, sizeof *log);
    if (log) log->path = mr_strdup(path);
    if (!status && (!log || !log->path)) status = mr_no_memory(err, "the log");
    if (status) {
        mr_free(log);
        close(fd);
        return status;
    }
    log->fd = fd;
    log->written = offset;
    *out = log;
    return 0;
}

int mr_runlog_flush(mr_runlog *log, int sync, mr_error *err)
{
    size_t done = 0;
    int status = 0;
    while (done < log->used && !status) {
        ssize_t n = write(log->fd, log->buffer + done, log->used - done);
        if (n >= 0) done += (size_t)n;
        else if (errno != EINTR) status = mr_fail(err, MR_EIO, "%s: cannot be written: %s", log->path, strerror(errno));
    }
    memmove(log->buffer, log->buffer + done, log->used - done);
    log->used -= done;
    log->written += done;
    if (!status && sync && fsync(log->fd) < 0)
        status = mr_fail(err, MR_EIO, "%s: cannot be brought to the disk: %s", log->path, strerror(errno));
    return status;
}

uint64_t mr_runlog_offset(const mr_runlog *log) { return log->written + log->used; }

static int append(mr_runlog *log, const char *line, mr_error *err)
{
    size_t size = strlen(line);
    if (log->used + size > BUFFER_BYTES) {
        int status = mr_runlog_flush(log, 0, err);
        if (status) return status;
    }
    memcpy(log->buffer + log->used, line, size);
    log->used += size;
    return 0;
}

static const char *real(char out[MR_REAL_MAX], double value)
{
    return isfinite(value) ? mr_real_print(out, value, 0) : "null";
}

int mr_runlog_step(mr_runlog *log, int64_t step, double loss, double lr, double grad_norm, double tokens_per_s,
                   mr_error *err)
{
    char line[LINE_MAX_BYTES], a[MR_REAL_MAX], b[MR_REAL_MAX], c[MR_REAL_MAX], d[MR_REAL_MAX];
    snprintf(line, sizeof line,
             "{\"kind\":\"step\",\"step\":%lld,\"loss\":%s,\"lr\":%s,\"grad_norm\":%s,\"tokens_per_s\":%s}\n",
             (long long)step, real(a, loss), real(b, lr), real(c, grad_norm), real(d, tokens_per_s));
    return append(log, line, err);
}

int mr_runlog_eval(mr_runlog *log, int64_t step, double loss, double accuracy, int best, mr_error *err)
{
    char line[LINE_MAX_BYTES], a[MR_REAL_MAX], b[MR_REAL_MAX], has_accuracy[64] = "";
    if (!isnan(accuracy)) snprintf(has_accuracy, sizeof has_accuracy, "\"accuracy\":%s,", real(b, accuracy));
    snprintf(line, sizeof line, "{\"kind\":\"eval\",\"step\":%lld,\"loss\":%s,%s\"best\":%s}\n", (long long)step,
             real(a, loss), has_accuracy, best ? "true" : "false");
    return append(log, line, err);
}

int mr_runlog_close(mr_runlog *log, mr_error *err)
{
    if (!log) return 0;
    int status = mr_runlog_flush(log, 1, err);
    if (close(log->fd) < 0 && !status)
        status = mr_fail(err, MR_EIO, "%s: cannot be written: %s", log->path, strerror(errno));
    mr_free(log->path);
    mr_free(log);
    return status;
}

/* ---- reading back */

/* A number; NAN for null, and for anything else. */
static double read_real(mr_json *json)
{
    char copy[MR_REAL_MAX] = "";
    const char *text;
    double value;
    size_t size = mr_json_number(json, &text);
    if (size && size < sizeof copy) memcpy(copy, text, size);
    if (!size) mr_json_word(json, "null");
    return mr_real_read(copy, &value) ? value : NAN;
}

/* 0: not a line of ours. */
static int parse_line(const char *line, size_t size, mr_curve_point *point)
{
    char room[LINE_MAX_BYTES];
    mr_json json;
    int64_t step = -1;
    int is_step = 0, is_eval = 0;
    double loss = NAN, accuracy = NAN;
    mr_json_start(&json, line, size, room);
    mr_json_enter(&json, '{');
    while (mr_json_item(&json, '}')) {
        size_t length;
        const char *key = mr_json_key(&json, &length), *kind;
        if (!key) return 0;
        if (!strcmp(key, "kind")) {
            kind = mr_json_string(&json, &length);
            is_step = kind && !strcmp(kind, "step");
            is_eval = kind && !strcmp(kind, "eval");
        } else if (!strcmp(key, "step")) mr_json_whole(&json, &step);
        else if (!strcmp(key, "loss")) loss = read_real(&json);
        else if (!strcmp(key, "accuracy")) accuracy = read_real(&json);
        else if (!mr_json_word(&json, "true") && !mr_json_word(&json, "false")) read_real(&json);
    }
    *point = (mr_curve_point){step, is_step ? loss : NAN, is_eval ? loss : NAN, is_eval ? accuracy : NAN};
    return mr_json_done(&json) && (is_step || is_eval) && step >= 0;
}

static int keep(mr_curve_point **points, size_t n, size_t *room, const mr_curve_point *point)
{
    if (n == *room) {
        size_t more = 2 * *room + 1024;
        mr_curve_point *grown = mr_alloc(more, sizeof *grown);
        if (!grown) return 0;
        if (n) memcpy(grown, *points, n * sizeof *grown);
        mr_free(*points);
        *points = grown;
        *room = more;
    }
    (*points)[n] = *point;
    return 1;
}

int mr_runlog_read(const char *path, mr_curve_point **points, size_t *n, mr_error *err)
{
    char line[LINE_MAX_BYTES];
    size_t room = 0;
    int status = 0;
    *points = NULL;
    *n = 0;
    FILE *file = fopen(path, "re");
    if (!file) return mr_fail(err, MR_EIO, "%s: cannot be opened: %s", path, strerror(errno));
    while (!status && fgets(line, sizeof line, file)) {
        mr_curve_point point;
        size_t size = strlen(line);
        int whole = size && line[size - 1] == '\n';
        if (!whole && feof(file)) break;
        if (!whole || !parse_line(line, size, &point))
            status = mr_fail(err, MR_EFORMAT, "%s: line %zu is not a step or an evaluation of a run", path, *n + 1);
        else if (!keep(points, *n, &room, &point)) status = mr_no_memory(err, "the log's points");
        else ++*n;
    }
    if (!status && ferror(file)) status = mr_fail(err, MR_EIO, "%s: cannot be read: %s", path, strerror(errno));
    fclose(file);
    if (status) {
        mr_free(*points);
        *points = NULL;
        *n = 0;
    }
    return status;
}
