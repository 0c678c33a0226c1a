/* The log of a run: log.jsonl in its folder, and on request the same as log.csv and for TensorBoard.
 *
 * A checkpoint keeps the offset of log.jsonl, and a resumed run cuts that back to it, so the log of a run that was
 * killed equals that of one that was not (except tokens_per_s and seconds). log.csv is written from it again, and
 * TensorBoard discards everything from that step on. */
#ifndef MR_APP_TRAIN_RUNLOG_H
#define MR_APP_TRAIN_RUNLOG_H

#include "core/status.h"
#include "plot/curve.h"
#include "train/keys.h"
#include "train/log_entry.h"

typedef struct mr_runlog mr_runlog;

/* Opens DIR/log.jsonl for appending, cut to `offset` bytes: 0 for a new run. MR_EDATA when that is not the file that
 * the checkpoint knew. event_steps: how many steps the event files have already; the others of log.jsonl are written
 * into the new one. */
int mr_runlog_open(const char *dir, mr_log_formats formats, uint64_t offset, int64_t event_steps, mr_runlog **out,
                   mr_error *err);

/* Lines are gathered in memory. A failed write loses nothing that can be written later. */
int mr_runlog_add(mr_runlog *log, const mr_log_entry *entry, mr_error *err);

/* Where the next line of log.jsonl will start, including what is still in memory. */
uint64_t mr_runlog_offset(const mr_runlog *log);

/* Writes what is in memory; sync: and waits until the disk has it. */
int mr_runlog_flush(mr_runlog *log, int sync, mr_error *err);

/* Flushes and frees; `log` is gone either way, NULL is fine. */
int mr_runlog_close(mr_runlog *log, mr_error *err);

/* Reads a log.jsonl back as the points of its curve (freed by mr_free), in the order of the file. A last line without
 * its line ending is left out: a kill cut it off. So are evaluations of the whole test set at the end of a run, which
 * are not points of the curve. */
int mr_runlog_read(const char *path, mr_curve_point **points, size_t *n, mr_error *err);

#endif
