/* What the measured experiments share: the models, the limits, and rows for what was timed or skipped. */
#include "bench/experiment_cells.h"

#include "model/mixer.h"

#include <stdio.h>
#include <string.h>

const mr_measured_model mr_measured_models[MR_MODELS] = {{"minGRU", "mingru", 1}, {"minLSTM", "minlstm", 1},
                                                         {"GRU", "gru", 1},       {"LSTM", "lstm", 1},
                                                         {"Mamba", "mamba", 1},   {"attention", "attention", 2}};

int mr_measured_mixer(const mr_measured_model *model)
{
    int index = 0;
    while (mr_mixer_names[index + 1] && strcmp(mr_mixer_names[index], model->mixer)) index++;
    return index;
}

int mr_measured_open(const mr_measuring *m, mr_dev **dev, mr_error *err)
{
    const mr_reproduce_options *o = mr_measuring_options(m);
    return mr_dev_open(
        o->device, &(mr_dev_options){.threads = o->threads, .bf16 = o->dtype == 1, .exact = o->tf32 == 0}, dev, err);
}

double mr_measured_limit(const mr_measuring *m)
{
    const mr_reproduce_options *o = mr_measuring_options(m);
    return o->plan.profile == MR_PROFILE_QUICK && o->cell_seconds > 0.1 ? 0.1 : o->cell_seconds;
}

/* The row of a skipped cell. With another --cell-seconds the cell is tried again. */
static int wants_skipped(mr_measuring *m, const char *label, const char *column, mr_row *row)
{
    char settings[MR_COLUMN];
    snprintf(settings, sizeof settings, "not run: cell-seconds=%g", mr_measuring_options(m)->cell_seconds);
    return mr_measuring_wants(m, label, column, settings, row);
}

int mr_measured_skipped(mr_measuring *m, const char *label, const char *column)
{
    mr_row row = {0};
    if (!mr_plan_wants(&mr_measuring_options(m)->plan, label, column)) return 0;
    const int wanted = wants_skipped(m, label, column, &row);
    mr_row_free(&row);
    return !wanted;
}

int mr_measured_skip(mr_measuring *m, const char *label, const char *column, const char *why, mr_error *err)
{
    mr_row row = {0};
    if (!wants_skipped(m, label, column, &row)) return 0;
    mr_row_set_text(&row, "note", why);
    return mr_measuring_add(m, &row, err);
}

int mr_measured_add(mr_measuring *m, mr_row *row, int B, int T, const mr_timing *timing, double bytes, mr_error *err)
{
    if (mr_measuring_options(m)->plan.profile == MR_PROFILE_QUICK) mr_row_set_text(row, "comparable", "no");
    mr_row_set(row, "batch", B);
    mr_row_set(row, "length", T);
    mr_row_set(row, "ms", timing->median * 1e3);
    mr_row_set(row, "best_ms", timing->best * 1e3);
    mr_row_set(row, "repetitions", timing->runs);
    if (bytes > 0) mr_row_set(row, "bytes", bytes);
    return mr_measuring_add(m, row, err);
}
