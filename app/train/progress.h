/* The progress of a run as a line of text. Pure functions that write into a buffer; the command prints it. */
#ifndef MR_APP_TRAIN_PROGRESS_H
#define MR_APP_TRAIN_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#define MR_PROGRESS_MAX 640 /* bytes that hold any line */

/* Times are seconds of one monotonic clock. What is not finite is not known (yet) and not in
 * the line. */
typedef struct mr_progress {
    int64_t step, steps;
    double loss;                /* of the last step */
    double test_loss, accuracy; /* of the last evaluation; accuracy in 0 … 1 */
    /* steps that this process did; and recent seconds, steps and tokens, where older ones count less and less */
    double done, past_seconds, past_steps, past_tokens;
    double deadline;       /* the clock when --max-seconds ends the run; NaN: never */
    int utf8;              /* draw the bar with block elements, else in ASCII */
    double updated, drawn; /* the clock at the last step, and at the last line shown */
} mr_progress;

/* Of `steps`, `step` are done already when a run is resumed; deadline INFINITY: no limit. */
void mr_progress_start(mr_progress *p, int64_t step, int64_t steps, double deadline, double now);

/* After a step, or several: the tokens are those since the last call. */
void mr_progress_step(mr_progress *p, int64_t step, int64_t tokens, double loss, double now);
void mr_progress_eval(mr_progress *p, double test_loss, double accuracy);

/* Is it time for another line? Answers yes at most once in `every` seconds (0.1 suits a terminal). */
int mr_progress_due(mr_progress *p, double every, double now);

/* NaN until enough is known. */
double mr_progress_seconds_left(const mr_progress *p);

/* Writes the line, without a line ending, and returns its bytes. width > 0: for a terminal of this many columns, with
 * a bar, never wider than width − 1; what does not fit is left out, the least important first. width 0: for a pipe,
 * everything and no bar. */
size_t mr_progress_format(char *out, size_t size, const mr_progress *p, int width);

/* Does the environment (LC_ALL, LC_CTYPE, LANG) name a UTF-8 locale? */
int mr_locale_is_utf8(void);

#endif
