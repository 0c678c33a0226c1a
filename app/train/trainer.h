/* The training loop's state, shared by the files that implement train.h: train.c, train_setup.c, train_end.c. */
#ifndef MR_APP_TRAIN_TRAINER_H
#define MR_APP_TRAIN_TRAINER_H

#include "train/prefetch.h"
#include "train/run_clock.h"
#include "train/runlog.h"
#include "train/train.h"

/* What the clock and the signals of rank 0 decide for all. */
typedef struct mr_orders {
    int time_is_up, save_is_due, save_asked;
    double progress; /* of a schedule that fits --max-seconds */
    int stop;        /* of any rank */
} mr_orders;

typedef struct mr_trainer {
    mr_recipe *recipe;
    const mr_train_settings *set;
    mr_context *ctx;
    const char *dir;
    const mr_stop *stop;
    const mr_train_watch *watch;
    mr_crew *crew, alone; /* crew: of the watch, or &alone */
    mr_orders orders;     /* what all ranks do next */
    mr_net *net;
    mr_prefetch *batches;
    mr_batch eval_batch;
    mr_runlog *log;
    mr_checkpoint cp;
    mr_run_clock clock;
    double saved_at, next_curve; /* of mr_seconds(): the last checkpoint, the earliest time for the next picture */
    double training_began;       /* of mr_seconds(): when training began in this call */
    int64_t first_tokens;        /* tokens trained on before that */
    double progress;             /* of a schedule that fits --max-seconds */
    double batch_seconds;        /* of an evaluation: how long a batch takes, NaN until there was one */
    int64_t best_batches;        /* how many batches the best evaluation scored; 0: not known, as after a resume */
    int out_of_time;             /* the last evaluation was cut short, and could not be compared with others */
    mr_overfit overfit;
    int64_t saved_step;
    int by_itself;   /* the step under way fails on this rank alone */
    mr_error untold; /* what failed on this rank, where the others could not be told at once; status 0: nothing */
    int log_lost;    /* the log of the steps before this call is missing */
    int served;      /* requests to save that were met */
    int lock;
} mr_trainer;

/* Rank 0 writes the run's files. */
int mr_trainer_writes(const mr_trainer *t);
double mr_trainer_seconds(const mr_trainer *t); /* of the run so far */
int mr_trainer_log(mr_trainer *t, const mr_log_entry *entry, mr_error *err);
void mr_trainer_tell(const mr_trainer *t, const char *line);
/* Scores a net on `tokens` test tokens, 0: all; not beyond --max-seconds. crew NULL: without the other ranks. */
int mr_trainer_score(mr_trainer *t, mr_net *net, int64_t tokens, mr_crew *crew, mr_score *score, mr_error *err);

int mr_trainer_set_up(mr_trainer *t, int resume, mr_error *err);
void mr_trainer_tell_start(const mr_trainer *t);
void mr_trainer_tear_down(mr_trainer *t);

/* Where evaluations score a part of the test set, the best model is scored on all of it, if there is time. Everything
 * else is done and saved by then. */
int mr_trainer_score_whole(mr_trainer *t, mr_train_result *result, mr_error *err);
/* A file could not be written, most often because the disk is full: keeps the best model at least, which needs a
 * quarter of a state's room, and says what to do. */
int mr_trainer_short_of_disk(const mr_trainer *t, mr_error *err);

#endif
