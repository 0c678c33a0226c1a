/* The run's diary, log.jsonl: one JSON object a line, for a step or for an evaluation.
 *
 *     {"kind":"step","step":7,"loss":2.31,"lr":0.0003,"grad_norm":0.8,"tokens_per_s":51200}
 *     {"kind":"eval","step":100,"loss":1.9,"accuracy":0.42,"best":true}
 *
 * A number that is NaN or infinite is written as null. A checkpoint keeps the log's offset, and a resumed run cuts the
 * log back to it, so the log of a run that was killed equals that of one that was not (tokens_per_s aside). */
#ifndef MR_APP_TRAIN_RUNLOG_H
#define MR_APP_TRAIN_RUNLOG_H

#include "core/status.h"
#include "plot/curve.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mr_runlog mr_runlog;

/* Opens for appending, cut to `offset` bytes: 0 for a new run, which makes the file. MR_EDATA when the file is shorter
 * than that or has no line ending there: it is not the log that the checkpoint knew. */
int mr_runlog_open(const char *path, uint64_t offset, mr_runlog **out, mr_error *err);

/* Lines are gathered in memory and written when that is full, at a flush and at the end. A failed write loses nothing
 * that can be written later. */
int mr_runlog_step(mr_runlog *log, int64_t step, double loss, double lr, double grad_norm, double tokens_per_s,
                   mr_error *err);
/* accuracy NaN: the task has none, and the line neither. */
int mr_runlog_eval(mr_runlog *log, int64_t step, double loss, double accuracy, int best, mr_error *err);

/* Where the next line will start, what is still in memory counted in. */
uint64_t mr_runlog_offset(const mr_runlog *log);

/* Writes what is in memory; sync: and waits until the disk has it. */
int mr_runlog_flush(mr_runlog *log, int sync, mr_error *err);

/* Flushes and frees; `log` is gone either way, NULL is fine. */
int mr_runlog_close(mr_runlog *log, mr_error *err);

/* Reads a log back as the points of its curve (freed by mr_free), in the order of the file. A last line without its
 * line ending is passed over: a kill left it. */
int mr_runlog_read(const char *path, mr_curve_point **points, size_t *n, mr_error *err);

#endif
