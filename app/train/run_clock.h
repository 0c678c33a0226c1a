/* The time of a run, over all its calls: how much is used, when --max-seconds ends it, and how far a schedule that
 * fits that limit has come. Times are passed in, so that it can be tested without waiting. */
#ifndef MR_APP_TRAIN_RUN_CLOCK_H
#define MR_APP_TRAIN_RUN_CLOCK_H

typedef struct mr_run_clock {
    double limit;                      /* seconds that the run may take, all calls together; 0: no limit */
    double began;                      /* mr_seconds() when this call of the command began */
    double before;                     /* seconds of the calls before this one */
    double setup;                      /* of all calls: seconds before their first step, such as reading the data */
    double eval_seconds;               /* seconds that an evaluation will take, as far as is known */
    double step_seconds, save_seconds; /* the same of a step and of a checkpoint */
} mr_run_clock;

/* After reading the data, just before the first step of this call. */
void mr_run_clock_ready(mr_run_clock *clock, double now);

/* Seconds of the run so far. */
double mr_run_seconds(const mr_run_clock *clock, double now);

/* The time of mr_seconds() when the limit is reached; INFINITY without a limit. */
double mr_run_deadline(const mr_run_clock *clock);

/* Is there too little time left for another step with the evaluation and the checkpoint that must follow it? */
int mr_run_time_is_up(const mr_run_clock *clock, double now);

/* The share of its time that training has used, 0 … 1: setup aside, and leaving time for the last evaluation and
 * checkpoint. 0 without a limit. */
double mr_run_progress(const mr_run_clock *clock, double now);

#endif
