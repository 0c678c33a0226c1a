/* Prints what happens in a run to stderr. */
#include "commands/run_view.h"

#include "core/clock.h"
#include "commands/args.h"
#include "commands/text_input.h"
#include "tasks/source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LARGE_TEXT = 50 * 1000 * 1000 }; /* bytes that take about a second to read and encode */

static int columns(void)
{
    struct winsize size;
    return !ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col > 20 ? size.ws_col : 80;
}

static void redraw(mr_run_view *v)
{
    char line[MR_PROGRESS_MAX];
    int room = columns() - (int)strlen(v->label);
    mr_progress_format(line, sizeof line, &v->progress, room > 20 ? room : 20);
    fprintf(stderr, "\r%s%s\033[K", v->label, line);
    fflush(stderr);
}

static void on_start(void *user, const mr_net *net, const mr_checkpoint *from, double deadline)
{
    mr_run_view *v = user;
    const int64_t step = from->step;
    v->best_step = from->best_step;
    const mr_train_settings *set = &v->recipe->train;
    mr_progress_start(&v->progress, step, mr_train_steps(set), deadline, mr_seconds());
    v->progress.utf8 = mr_locale_is_utf8();
    if (v->quiet) return;
    char resumed[48] = "";
    mr_shape shapes[2];
    mr_task_shapes(v->recipe->task, shapes);
    if (step) snprintf(resumed, sizeof resumed, ", resumed at step %lld", (long long)step);
    fprintf(stderr, "%s%s: %lld parameters, batch %lld × %d tokens%s\n", v->label, v->recipe->task->type->name,
            (long long)mr_net_parameters(net), (long long)(set->batch * set->accumulate), shapes[0].T, resumed);
}

static void on_step(void *user, int64_t step, int64_t tokens, double loss)
{
    mr_run_view *v = user;
    mr_progress_step(&v->progress, step, tokens, loss, mr_seconds());
    if (v->quiet) return;
    if (v->terminal) {
        if (mr_progress_due(&v->progress, 0.1, mr_seconds())) redraw(v);
    } else if (mr_seconds() - v->last_line >= 10) {
        char line[MR_PROGRESS_MAX];
        mr_progress_format(line, sizeof line, &v->progress, 0);
        fprintf(stderr, "%s%s\n", v->label, line);
        v->last_line = mr_seconds();
    }
}

/* Without a terminal: a line where an evaluation takes more than two seconds, and another every ten. */
static void tell_evaluating(mr_run_view *v, int done, int batches)
{
    const double now = mr_seconds();
    if (!done) v->next_eval_line = now + 2;
    if (now < v->next_eval_line || done == batches) return;
    fprintf(stderr, "%sevaluating: batch %d of %d\n", v->label, done, batches);
    v->next_eval_line = now + 10;
}

static void on_evaluating(void *user, int done, int batches)
{
    mr_run_view *v = user;
    if (v->quiet) return;
    if (!v->terminal) tell_evaluating(v, done, batches);
    else if (mr_progress_due(&v->progress, 0.1, mr_seconds())) {
        fprintf(stderr, "\r%sevaluating: batch %d of %d\033[K", v->label, done, batches);
        fflush(stderr);
    }
}

static void on_evaluated(void *user, int64_t step, const mr_score *score, int best)
{
    mr_run_view *v = user;
    mr_progress_eval(&v->progress, score->loss, score->accuracy);
    if (best) v->best_step = step;
    if (v->quiet || v->label[0]) return;
    fprintf(stderr, "%sstep %lld: %s loss %.4f", v->terminal ? "\r\033[K" : "", (long long)step,
            mr_task_scored(v->recipe->task), score->loss);
    if (isfinite(score->accuracy)) fprintf(stderr, ", accuracy %.2f %%", 100 * score->accuracy);
    const int chooses = !v->recipe->task->type->best_is_last; /* else the last one is the result */
    if (chooses && best) fprintf(stderr, " (best)");
    else if (chooses && v->best_step) fprintf(stderr, " (best at step %lld)", (long long)v->best_step);
    fprintf(stderr, "\n");
    v->last_line = mr_seconds();
}

static void on_notice(void *user, const char *line)
{
    const mr_run_view *v = user;
    mr_run_view_clear(v);
    if (!v->quiet) fprintf(stderr, "%s%s\n", v->label, line);
}

mr_train_watch mr_run_view_start(mr_run_view *v, const mr_recipe *recipe, const char *label, int alone, int quiet)
{
    *v = (mr_run_view){
        .recipe = recipe, .quiet = quiet, .terminal = alone && isatty(STDERR_FILENO), .last_line = mr_seconds()};
    if (label[0]) snprintf(v->label, sizeof v->label, "%.120s: ", label);
    return (mr_train_watch){.user = v,
                            .started = on_start,
                            .stepped = on_step,
                            .evaluating = on_evaluating,
                            .evaluated = on_evaluated,
                            .notice = on_notice,
                            .save_requests = mr_save_requests()};
}

void mr_run_view_clear(const mr_run_view *v)
{
    if (v->terminal && !v->quiet) fprintf(stderr, "\r\033[K");
}

void mr_view_reading(const mr_recipe *recipe, int quiet)
{
    char names[MR_TEXT_MAX];
    const mr_option *data = mr_option_find(recipe->task->type->options, "data");
    if (quiet || !data || !(data->flags & MR_OPT_MANY)) return;
    mr_tell_typing(mr_option_print(data, recipe->task->settings, names), quiet);
    const uint64_t bytes = mr_source_bytes(names);
    if (bytes >= LARGE_TEXT && bytes <= UINT32_MAX) /* more is refused, not read */
        fprintf(stderr, "reading %.0f MB of text …\n", (double)bytes / 1e6);
}
