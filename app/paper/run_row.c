/* A finished run as a row: its score, its settings, and its learning curve thinned out. */
#include "paper/reproduce_job.h"

#include "core/clock.h"
#include "core/file.h"
#include "core/mem.h"
#include "paper/result_review.h"
#include "train/runlog.h"

#include <math.h>
#include <string.h>

enum { CURVE_HALF = 100 }; /* points of a curve: at most this many of training, and as many of evaluation */

/* Training losses as means over equal spans; evaluations thinned out, but the best one is always kept. */
static size_t thin_curve(const mr_curve_point *all, size_t n, int64_t best_step, mr_curve_point *out)
{
    size_t steps = 0, evals = 0, kept = 0, seen = 0;
    for (size_t i = 0; i < n; i++) *(isnan(all[i].train_loss) ? &evals : &steps) += 1;
    size_t span = steps / CURVE_HALF + 1, every = evals / (CURVE_HALF - 1) + 1, in_span = 0;
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(all[i].train_loss)) {
            if (seen++ % every == 0 || seen == evals || all[i].step == best_step) out[kept++] = all[i];
            continue;
        }
        sum += all[i].train_loss;
        if (++in_span < span) continue;
        out[kept++] = (mr_curve_point){all[i].step, sum / (double)in_span, NAN, NAN};
        sum = 0, in_span = 0;
    }
    return kept;
}

static void set_last(const mr_job *j, mr_row *row, double loss, double accuracy)
{
    if (j->e->measure != MR_BY_RETURN)
        mr_row_set(row, "last_score", j->e->scale * (j->e->measure == MR_BY_LOSS ? loss : accuracy));
}

/* What the score is of, and what a model would score that always gives the same answer. */
static void set_test_set(const mr_cell_run *t, mr_row *row)
{
    const double scale = t->job->e->scale;
    mr_row_set_text(row, "test_set", t->set.identity);
    mr_row_set(row, "strings", (double)t->set.sequences);
    mr_row_set(row, "answers", (double)t->set.answers);
    if (t->job->e->measure != MR_BY_ACCURACY) return;
    mr_row_set(row, "chance", scale * t->set.chance);
    mr_row_set(row, "constant", scale * t->set.constant);
}

/* What the policy earned, and what it learned from. */
static void set_play(const mr_cell_run *t, mr_row *row)
{
    mr_row_set(row, "return_mean", t->play.mean);
    mr_row_set(row, "return_std", t->play.std);
    mr_row_set(row, "data_score", t->play.data_score);
    mr_row_set(row, "data_made", t->play.data_made);
    mr_row_set(row, "play_seconds", t->play.seconds);
}

static int take_curve(const mr_cell_run *t, mr_row *row, int64_t best_step, mr_error *err)
{
    mr_curve_point *all = NULL;
    size_t n = 0;
    char *path = mr_path_join(t->dir, "log.jsonl");
    int status = path ? mr_runlog_read(path, &all, &n, err) : mr_no_memory(err, "the curve");
    if (!status) row->curve = mr_alloc(2 * CURVE_HALF + 4, sizeof *row->curve);
    if (!status && !row->curve) status = mr_no_memory(err, "the curve");
    if (!status) row->points = thin_curve(all, n, best_step, row->curve);
    for (size_t i = n; !status && i-- && !t->last_test.rows;)
        if (isfinite(all[i].test_loss)) {
            set_last(t->job, row, all[i].test_loss, all[i].accuracy);
            break;
        }
    for (size_t i = 0; !status && i < n; i++)
        if (all[i].test_loss <= t->run->target_loss) {
            mr_row_set(row, "target_step", (double)all[i].step);
            break;
        }
    mr_free(all);
    mr_free(path);
    return status;
}

void mr_cell_row_start(const mr_job *j, const mr_planned *run, const mr_recipe *recipe, mr_row *row)
{
    mr_result_folder_stamp(&j->results, row, run->row, run->column, run->settings, mr_recipe_dtype(recipe));
    mr_row_set(row, "seed", (double)run->seed);
    mr_row_set_measure(j->e, run, row);
    if (run->setting[0]) mr_row_set_text(row, "setting", run->setting);
    if (run->own_budget[0]) mr_row_set_text(row, "own_budget", run->own_budget);
    mr_row_set(row, "tried", run->tried);
}

/* A quick run is too small to stand beside the paper's number, and a search is scored on validation. */
static void set_paper(const mr_planned *run, mr_row *row)
{
    if (run->profile == MR_PROFILE_QUICK || run->profile == MR_PROFILE_SEARCH) {
        mr_row_set_text(row, "comparable", "no");
        return;
    }
    if (run->paper_cell[0]) mr_row_set_text(row, "paper_cell", run->paper_cell);
    mr_row_set(row, "paper", run->paper.value);
    mr_row_set(row, "paper_std", run->paper.std);
}

int mr_cell_row(const mr_cell_run *t, const mr_recipe *recipe, const mr_train_result *r, const mr_error *diverged,
                mr_row *row, mr_error *err)
{
    const mr_job *j = t->job;
    char data[MR_DATA_IDENTITY];
    mr_cell_row_start(j, t->run, recipe, row);
    mr_row_set_text(row, "data", mr_data_identity(data, &t->sums));
    set_paper(t->run, row);
    mr_row_set(row, "parameters", t->parameters);
    mr_row_set(row, "seconds", t->spent + mr_seconds() - t->began);
    mr_row_set(row, "tokens", (double)r->tokens);
    if (j->results.options->plan.steps) mr_row_set(row, "asked_steps", (double)j->results.options->plan.steps);
    if (diverged) {
        mr_row_set_text(row, "failed", diverged->text);
        return 0;
    }
    const double loss = t->test.rows ? t->test.loss : r->best_loss,
                 accuracy = t->test.rows ? t->test.accuracy : r->best_accuracy;
    const double scores[MR_MEASURES] = {accuracy, loss, t->play.score};
    mr_row_set(row, "score", j->e->scale * scores[j->e->measure]);
    if (t->play.episodes) set_play(t, row);
    mr_row_set(row, "loss", loss);
    mr_row_set(row, "accuracy", accuracy);
    if (t->test.rows) mr_row_set(row, "valid_loss", r->best_loss);
    if (t->test.rows) mr_row_set(row, "valid_accuracy", r->best_accuracy);
    if (t->last_test.rows) set_last(j, row, t->last_test.loss, t->last_test.accuracy);
    set_test_set(t, row);
    mr_row_set(row, "steps", (double)r->step);
    mr_row_set(row, "sequences", (double)(r->step * recipe->train.batch * recipe->train.accumulate));
    mr_row_set(row, "best_step", (double)r->best_step);
    return take_curve(t, row, r->best_step, err);
}
