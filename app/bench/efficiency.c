/* Training steps of every model for growing lengths: time, speed-up over GRU and LSTM, memory. */
#include "bench/length_tables.h"

#include "paper/paper_numbers.h"

#include <math.h>
#include <stdio.h>

enum { BATCH = 64, SHORTEST = 64, LONGEST = 65536 };

/* ---- measuring */

/* What the last length took: the next one is predicted from it. */
typedef struct progress {
    double seconds, bytes;
    int T;
} progress;

/* Forward, loss and backward, as the paper has it: no optimiser. */
static void run_step(void *arg) { mr_timed_model_step(arg, 0); }

static int time_step(mr_measuring *m, const mr_measured_model *model, int B, int T, double limit, mr_timing *timing,
                     progress *p, mr_error *err)
{
    mr_timed_model s = {0};
    mr_dev *dev;
    const mr_timed_shape shape = mr_timed_paper_shape(mr_measured_mixer(model));
    int status = mr_measured_open(m, &dev, err);
    if (status < 0) return status;
    status = mr_timed_model_open(&s, dev, &shape, B, T, 1, err);
    if (status == 0) status = mr_time(dev, run_step, &s, limit, timing, err);
    if (status == 0) *p = (progress){timing->median, (double)dev->taken, T};
    mr_timed_model_close(&s);
    mr_dev_close(dev);
    return status;
}

/* Empty, or why this length would be too much. */
static void predict_excess(mr_measuring *m, const mr_measured_model *model, const progress *p, int T, char *why,
                           size_t size)
{
    const mr_reproduce_options *o = mr_measuring_options(m);
    const double longer = p->T ? (double)T / p->T : 0, memory = (double)mr_measuring_device(m)->memory;
    /* a lower bound for much longer sequences: short ones do not show how a step grows */
    const double seconds = p->seconds * pow(longer, longer > 2 ? 1 : model->growth), bytes = p->bytes * longer;
    *why = 0;
    if (2 * seconds > o->cell_seconds) snprintf(why, size, "about %.3g s a step", seconds);
    else if (memory > 0 && bytes > 0.6 * memory) snprintf(why, size, "about %.3g GB", bytes / 1e9);
}

/* *over is set when this length, and so every longer one, takes too much. */
static int measure_length(mr_measuring *m, const mr_measured_model *model, int B, int T, progress *p, int *over,
                          mr_error *err)
{
    mr_row row = {0};
    mr_timing timing;
    char column[MR_COLUMN], why[MR_COLUMN];
    const double limit = mr_measured_limit(m);
    snprintf(column, sizeof column, "B=%d T=%d", B, T);
    *over = mr_measured_skipped(m, model->label, column);
    if (*over || !mr_measuring_wants(m, model->label, column, "", &row)) return 0;
    int status = p->T || T <= SHORTEST ? 0 : time_step(m, model, B, SHORTEST, 0, &timing, p, err);
    predict_excess(m, model, p, T, why, sizeof why);
    if (status == 0 && !*why) status = time_step(m, model, B, T, limit, &timing, p, err);
    if (status == MR_ENOMEM) snprintf(why, sizeof why, "does not fit into the memory");
    if (status == 0 && !*why) return mr_measured_add(m, &row, B, T, &timing, p->bytes, err);
    mr_row_free(&row);
    *over = *why != 0;
    return *why ? mr_measured_skip(m, model->label, column, why, err) : status;
}

static int measure(mr_measuring *m, mr_error *err)
{
    const int quick = mr_measuring_options(m)->plan.profile == MR_PROFILE_QUICK;
    const int B = quick ? 4 : BATCH, shortest = quick ? 16 : SHORTEST, longest = quick ? 32 : LONGEST;
    int status = 0;
    for (int i = 0; i < MR_MODELS; i++) {
        progress p = {0};
        int over = 0;
        for (int T = shortest; T <= longest && status == 0 && !over; T *= 2) {
            if (mr_measuring_over(m)) return 0;
            status = measure_length(m, &mr_measured_models[i], B, T, &p, &over, err);
        }
    }
    return status;
}

/* ---- reporting */

/* Speed-up is what the paper calls it: how many times as long GRU and LSTM take. */
static void add_speedups(mr_strbuf *md, const mr_length_table *t)
{
    mr_length_table_start(md, t, "speed-up");
    for (int min = 0; min < 2; min++) {
        const char *label = mr_measured_models[min].label, *traditional = mr_measured_models[min + 2].label;
        mr_length_table_paper(md, t, "efficiency", label, "speedup_over_traditional", "×");
        mr_length_table_ratios(md, t, label, traditional);
        for (size_t i = MR_MODELS; i < t->count; i++)
            if (mr_length_table_same_model(t->labels[i], traditional))
                mr_length_table_ratios(md, t, label, t->labels[i]);
    }
    mr_strbuf_add(md, "\n");
    if (t->count == MR_MODELS) return;
    mr_length_table_start(md, t, "ours over PyTorch's");
    for (int k = 0; k < MR_MODELS; k++)
        for (size_t i = MR_MODELS; i < t->count; i++)
            if (mr_length_table_same_model(t->labels[i], t->labels[k]))
                mr_length_table_ratios(md, t, t->labels[k], t->labels[i]);
    mr_strbuf_add(md, "\n");
}

/* How many percent more memory `label` takes than `than`, at the longest length that both have. */
static double more_memory(const mr_length_table *t, const char *label, const char *than, double *at)
{
    double more = NAN;
    for (size_t i = 0; i < t->lengths; i++) {
        double here = 100 * (mr_length_table_number(t, label, t->T[i], "bytes") /
                                 mr_length_table_number(t, than, t->T[i], "bytes") -
                             1);
        if (!isfinite(here)) continue;
        more = here;
        *at = t->T[i];
    }
    return more;
}

static void add_memory(mr_strbuf *md, const mr_length_table *t)
{
    static const char both[] = "minGRU, minLSTM over GRU, LSTM";
    static const struct {
        const char *label, *than, *paper;
    } pairs[] = {{"minGRU", "GRU", both}, {"minLSTM", "LSTM", both}, {"Mamba", "minGRU", "Mamba over minGRU"}};
    mr_length_table_start(md, t, "MB");
    for (size_t i = 0; i < t->count; i++) mr_length_table_numbers(md, t, t->labels[i], "bytes", 1e6);
    mr_strbuf_add(md, "\n| memory | the paper's | ours | at T |\n|---|---:|---:|---:|\n");
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        mr_paper_cell paper = {NAN, NAN};
        double at = NAN;
        const double more = more_memory(t, pairs[i].label, pairs[i].than, &at);
        mr_paper_find("memory", pairs[i].paper, "1", &paper);
        mr_strbuf_format(md, "| %s over %s ", pairs[i].label, pairs[i].than);
        mr_length_table_cell(md, paper.value, 3, " % more");
        mr_length_table_cell(md, fabs(more), 3, more < 0 ? " % less" : " % more");
        mr_length_table_cell(md, at, 6, "");
        mr_strbuf_add(md, "|\n");
    }
    mr_strbuf_add(md, "\n");
}

static int add_part(mr_strbuf *md, const mr_device_rows *v, const char *dir, int first, mr_error *err)
{
    static const mr_length_chart time = {.name = "efficiency",
                                         .title = "Training step, batch of 64",
                                         .y_label = "forward, loss, backward (ms)",
                                         .key = "ms",
                                         .per = 1,
                                         .paper_name = "paper (T4 GPU)",
                                         .paper_table = "efficiency",
                                         .paper_column = "ms"};
    static const mr_length_chart memory = {.name = "efficiency-memory",
                                           .title = "Memory of a training step, batch of 64",
                                           .y_label = "device memory (MB)",
                                           .key = "bytes",
                                           .per = 1e6};
    mr_length_table t = mr_length_table_of(v, "B=64 T=");
    if (!t.lengths) t = mr_length_table_of(v, "B=4 T="); /* of quick runs */
    mr_length_table_heading(md, v);
    mr_length_table_start(md, &t, "ms a step");
    for (size_t i = 0; i < t.count; i++) mr_length_table_numbers(md, &t, t.labels[i], "ms", 1);
    for (int i = 0; i < MR_MODELS; i++)
        mr_length_table_paper(md, &t, "efficiency", mr_measured_models[i].label, "ms", "");
    mr_length_table_notes(md, &t);
    int status = mr_length_table_draw(md, &t, &time, dir, first, err);
    add_speedups(md, &t);
    add_memory(md, &t);
    return status ? status : mr_length_table_draw(md, &t, &memory, dir, first, err);
}

static int report(const mr_rows *rows, const char *dir, mr_error *err)
{
    mr_strbuf md = {0};
    mr_device_rows v = {0};
    int status = 0;
    mr_strbuf_add(&md, "# Training steps\n\nForward, loss and backward of three layers 64 → 384 (norm, mixer, "
                       "down-projection, residual), median. Memory is all that "
                       "the device took: parameters, gradients, moments, activations, scratch; PyTorch's is its peak "
                       "without parameters. The paper's are of a T4.\n\n");
    for (int first = 1; status == 0 && mr_device_rows_next(rows, &v); first = 0)
        status = add_part(&md, &v, dir, first, err);
    const int saved = mr_measured_report_save(dir, "efficiency", &md, err);
    return status ? status : saved;
}

const mr_measured mr_efficiency = {
    "efficiency", "training step: time, speed-up over GRU and LSTM, memory, for growing lengths", measure, report};
