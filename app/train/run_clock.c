/* Sums over the times of a run. */
#include "train/run_clock.h"

#include <math.h>

void mr_run_clock_ready(mr_run_clock *c, double now) { c->setup += now - c->began; }

double mr_run_seconds(const mr_run_clock *c, double now) { return c->before + now - c->began; }

double mr_run_deadline(const mr_run_clock *c) { return c->limit > 0 ? c->began + c->limit - c->before : INFINITY; }

int mr_run_time_is_up(const mr_run_clock *c, double now)
{
    return now + c->step_seconds + c->eval_seconds + c->save_seconds >= mr_run_deadline(c);
}

double mr_run_progress(const mr_run_clock *c, double now)
{
    if (!(c->limit > 0)) return 0;
    const double all = c->limit - c->setup, used = mr_run_seconds(c, now) - c->setup;
    const double kept = c->eval_seconds + c->save_seconds, share = used / (all - kept);
    if (used <= 0) return 0;
    if (used >= all - kept) return 1;
    /* at first what the end will cost is a rough guess: it counts more and more as the end comes near */
    return used / (all - kept * share);
}
