/* A run's numbers for TensorBoard: event files, that is records of TFRecord framing (length and bytes, each with a
 * masked CRC-32C) that hold Event messages of Protocol Buffers.
 *
 * DIR/events.out.tfevents.0000000001.minrnn and so on: each call of a run begins a new one with SessionLog START, which
 * makes TensorBoard drop what earlier files have from that step on. Scalars: loss, test_loss, accuracy,
 * whole_test_loss, lr, grad_norm, tokens_per_s. */
#ifndef MR_APP_TRAIN_EVENT_FILE_H
#define MR_APP_TRAIN_EVENT_FILE_H

#include "core/status.h"
#include "train/log_entry.h"

typedef struct mr_event_file mr_event_file;

/* The next file of the folder. `step`: the last one that counts of earlier files. */
int mr_event_file_open(const char *dir, int64_t step, mr_event_file **out, mr_error *err);
int mr_event_file_add(mr_event_file *file, const mr_log_entry *entry, mr_error *err);
int mr_event_file_flush(mr_event_file *file, int sync, mr_error *err);
/* Flushes and frees; `file` is gone either way, NULL is fine. */
int mr_event_file_close(mr_event_file *file, mr_error *err);

#endif
