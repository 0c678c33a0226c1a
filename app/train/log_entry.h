/* What a run notes of a step or an evaluation, and how that is written: as a line of log.jsonl, as a row of log.csv.
 *
 *     {"kind":"step","step":7,"loss":2.31,"lr":0.0003,"grad_norm":0.8,"tokens_per_s":51200,"seconds":1.25}
 *     {"kind":"eval","step":100,"loss":1.9,"accuracy":0.42,"best":true,"seconds":21.5}
 *     {"kind":"whole","step":100,"loss":1.91,"accuracy":0.42,"seconds":60.875}
 *
 * A number that is NaN or infinite is written as null in JSON, and left out in CSV. */
#ifndef MR_APP_TRAIN_LOG_ENTRY_H
#define MR_APP_TRAIN_LOG_ENTRY_H

#include "core/strbuf.h"

#include <stddef.h>
#include <stdint.h>

typedef enum mr_log_kind {
    MR_LOG_STEP,
    MR_LOG_EVAL,
    MR_LOG_WHOLE /* the best model on the whole test set, where evaluations scored a part of it */
} mr_log_kind;

typedef struct mr_log_entry {
    mr_log_kind kind;
    int64_t step;
    double loss;                        /* of a step: on its batch; otherwise on the test set */
    double lr, grad_norm, tokens_per_s; /* of a step */
    double accuracy;                    /* of an evaluation; NaN: the task has none, and the line leaves it out */
    int best;                           /* of an evaluation: the best so far */
    double seconds;                     /* since the run began, over all its calls */
} mr_log_entry;

enum { MR_LOG_LINE = 512 }; /* bytes that hold any line; seven numbers and their names need less than 350 */

/* Both add a line with its line ending. */
void mr_log_json(mr_strbuf *out, const mr_log_entry *entry);
void mr_log_csv(mr_strbuf *out, const mr_log_entry *entry);
extern const char mr_log_csv_header[];

/* A line of log.jsonl, its line ending included. 0: not a log line. `seconds` is NaN in logs of 0.1. */
int mr_log_parse(const char *line, size_t size, mr_log_entry *entry);

#endif
