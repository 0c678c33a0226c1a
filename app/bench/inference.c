/* Inference of every model: tokens one after another from an empty state, and after a context that is read at once. */
#include "bench/length_tables.h"

#include "core/clock.h"
#include "paper/paper_numbers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* AFTER: tokens generated after a context */
enum { SHORTEST = 64, LONGEST = 2048, AFTER = 16, RUNS = 5, STAMPS = 16 };

typedef struct shape {
    int shortest, longest;
    const int *batches; /* ends with 0 */
} shape;

static shape shape_of(const mr_measuring *m)
{
    static const int batches[] = {8, 16, 32, 64, 0}, small[] = {2, 0};
    const int quick = mr_measuring_options(m)->plan.profile == MR_PROFILE_QUICK;
    return quick ? (shape){8, 16, small} : (shape){SHORTEST, LONGEST, batches};
}

/* ---- tokens from an empty state: one walk gives the time of every length on its way */

typedef struct walk {
    mr_timing at[STAMPS]; /* of lengths shortest, 2·shortest, … */
    int count;
} walk;

static int walk_once(mr_timed_model *s, mr_dev *dev, const shape *sh, int longest, double *times, mr_error *err)
{
    int stamp = 0;
    mr_state_reset(s->state);
    const double start = mr_seconds();
    for (int t = 1, next = sh->shortest; t <= longest; t++) {
        mr_timed_model_token(s, s->batch.B);
        if (t < next) continue;
        times[stamp++] = mr_seconds() - start;
        next *= 2;
    }
    const int status = dev->sync(dev, err);
    return status < 0 ? status : stamp;
}

/* The longest walk that should fit into half the limit, if the shortest one takes `seconds`. */
static int affordable(const shape *sh, double seconds, double limit)
{
    int longest = sh->shortest;
    while (longest < sh->longest && 2 * seconds * longest / sh->shortest < limit / 2) longest *= 2;
    return longest;
}

static int walk_all(mr_measuring *m, mr_timed_model *s, const shape *sh, walk *w, mr_error *err)
{
    mr_dev *dev = mr_measuring_device(m);
    double times[STAMPS][RUNS], one[STAMPS] = {0}, spent = 0;
    /* warms up, and shows how long the rest will take */
    int runs = 0, status = walk_once(s, dev, sh, sh->shortest, one, err);
    const int longest = affordable(sh, one[0], mr_measuring_options(m)->cell_seconds);
    while (status >= 0 && runs < RUNS && (runs == 0 || spent + spent / runs < mr_measured_limit(m))) {
        status = walk_once(s, dev, sh, longest, one, err);
        for (int i = 0; i < status; i++) times[i][runs] = one[i];
        if (status > 0) spent += one[status - 1];
        runs++;
    }
    if (status < 0) return status;
    w->count = status;
    for (int i = 0; i < w->count; i++) {
        w->at[i].median = mr_median(times[i], runs);
        w->at[i].best = times[i][0];
        w->at[i].runs = runs;
    }
    return 0;
}

static int add_walk(mr_measuring *m, const char *label, int B, const shape *sh, const walk *w, mr_error *err)
{
    int status = 0, T = sh->shortest;
    for (int i = 0; T <= sh->longest && status == 0 && i <= w->count; i++, T *= 2) {
        mr_row row = {0};
        char column[MR_COLUMN];
        snprintf(column, sizeof column, "tokens B=%d T=%d", B, T);
        if (i == w->count) status = mr_measured_skip(m, label, column, "it would take too long", err);
        else if (mr_measuring_wants(m, label, column, "", &row))
            status = mr_measured_add(m, &row, B, T, &w->at[i], 0, err);
    }
    return status;
}

/* The walk is one measurement: if any length is missing, all are measured again. */
static int lacks_tokens(mr_measuring *m, const char *label, int B, const shape *sh)
{
    int lacks = 0;
    for (int T = sh->shortest; T <= sh->longest; T *= 2) {
        mr_row row = {0};
        char column[MR_COLUMN];
        snprintf(column, sizeof column, "tokens B=%d T=%d", B, T);
        if (mr_measured_skipped(m, label, column)) break;
        lacks |= mr_measuring_wants(m, label, column, "", &row);
        mr_row_free(&row);
    }
    return lacks;
}

static int measure_tokens(mr_measuring *m, const mr_measured_model *model, int B, const shape *sh, mr_error *err)
{
    mr_timed_model s = {0};
    walk w = {0};
    mr_dev *dev = mr_measuring_device(m);
    mr_timed_shape what = mr_timed_paper_shape(mr_measured_mixer(model));
    what.window = sh->longest;
    if (!lacks_tokens(m, model->label, B, sh)) return 0;
    int status = mr_timed_model_open(&s, dev, &what, B, 1, 0, err);
    if (status == 0) status = mr_timed_model_stream(&s, err);
    if (status == 0) status = walk_all(m, &s, sh, &w, err);
    mr_timed_model_close(&s);
    return status ? status : add_walk(m, model->label, B, sh, &w, err);
}

/* ---- with a context */

static void run_context(void *arg)
{
    mr_timed_model *s = arg;
    mr_timed_model_context(s);
    for (int i = 0; i < AFTER; i++) mr_timed_model_token(s, s->batch.B);
}

static int measure_context(mr_measuring *m, const mr_measured_model *model, int B, int T, double *last, int *over,
                           mr_error *err)
{
    mr_row row = {0};
    mr_timed_model s = {0};
    mr_timing timing;
    char column[MR_COLUMN], why[MR_COLUMN];
    mr_dev *dev = mr_measuring_device(m);
    mr_timed_shape what = mr_timed_paper_shape(mr_measured_mixer(model));
    const double expected = 2 * *last;
    what.window = T + AFTER;
    snprintf(column, sizeof column, "context B=%d T=%d", B, T);
    *over = mr_measured_skipped(m, model->label, column);
    if (*over || !mr_measuring_wants(m, model->label, column, "", &row)) return 0;
    if (2 * expected > mr_measuring_options(m)->cell_seconds) {
        mr_row_free(&row);
        *over = 1;
        snprintf(why, sizeof why, "about %.3g s", expected);
        return mr_measured_skip(m, model->label, column, why, err);
    }
    int status = mr_timed_model_open(&s, dev, &what, B, T, 0, err);
    if (status == 0) status = mr_timed_model_stream(&s, err);
    if (status == 0) status = mr_time(dev, run_context, &s, mr_measured_limit(m), &timing, err);
    mr_timed_model_close(&s);
    if (status == 0) *last = timing.median;
    if (status == 0) return mr_measured_add(m, &row, B, T, &timing, 0, err);
    mr_row_free(&row);
    return status;
}

static int measure(mr_measuring *m, mr_error *err)
{
    const shape sh = shape_of(m);
    int status = 0;
    for (const int *B = sh.batches; *B; B++)
        for (int i = 0; i < MR_MODELS && status == 0; i++) {
            double last = 0;
            int over = 0;
            if (mr_measuring_over(m)) return 0;
            status = measure_tokens(m, &mr_measured_models[i], *B, &sh, err);
            for (int T = sh.shortest; T <= sh.longest && status == 0 && !over && !mr_measuring_over(m); T *= 2)
                status = measure_context(m, &mr_measured_models[i], *B, T, &last, &over, err);
        }
    return status;
}

/* ---- reporting */

/* By how many percent the speed of the first is above that of the second, at the longest length that both have;
 * negative: it is slower. */
static double percent_faster(const mr_length_table *t, const char *first, const char *second)
{
    double faster = NAN;
    for (size_t i = 0; i < t->lengths; i++) {
        const double here =
            100 *
            (mr_length_table_number(t, second, t->T[i], "ms") / mr_length_table_number(t, first, t->T[i], "ms") - 1);
        if (isfinite(here)) faster = here;
    }
    return faster;
}

typedef struct comparison {
    const char *paper, *first, *second;
    int context, sign; /* sign −1: the paper says how much slower */
} comparison;

static void add_comparison(mr_strbuf *md, const mr_device_rows *v, const comparison *c, int B)
{
    char prefix[MR_COLUMN], row[MR_COLUMN * 2];
    mr_paper_cell paper = {NAN, NAN};
    snprintf(prefix, sizeof prefix, "%s B=%d T=", c->context ? "context" : "tokens", B);
    snprintf(row, sizeof row, "%s %d", c->paper, B);
    const mr_length_table t = mr_length_table_of(v, prefix);
    const double ours = percent_faster(&t, c->first, c->second);
    mr_paper_find("inference", row, "percent", &paper);
    if (!isfinite(ours) && !isfinite(paper.value)) return;
    mr_strbuf_format(md, "| %s against %s, %s | %d ", c->first, c->second,
                     c->context ? "with context" : "without context", B);
    mr_length_table_cell(md, paper.value, 3, c->sign > 0 ? " % faster" : " % slower");
    mr_length_table_cell(md, fabs(ours), 3, ours < 0 ? " % slower" : " % faster");
    mr_strbuf_add(md, "|\n");
}

static void add_comparisons(mr_strbuf *md, const mr_device_rows *v)
{
    static const comparison list[] = {{"minGRU faster than Mamba, with context", "minGRU", "Mamba", 1, 1},
                                      {"minLSTM slower than Mamba, with context", "minLSTM", "Mamba", 1, -1},
                                      {"minGRU faster than GRU", "minGRU", "GRU", 0, 1},
                                      {"minLSTM faster than LSTM", "minLSTM", "LSTM", 0, 1}};
    mr_strbuf_add(md, "| comparison, at the longest length | batch | the paper's | ours |\n|---|---:|---:|---:|\n");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        for (int B = 2; B <= 64; B *= 2) add_comparison(md, v, &list[i], B);
    mr_strbuf_add(md, "\n");
}

static int add_part(mr_strbuf *md, const mr_device_rows *v, const char *dir, int first, mr_error *err)
{
    int status = 0;
    mr_length_table_heading(md, v);
    add_comparisons(md, v);
    for (int context = 0; context < 2; context++)
        for (int B = 2; B <= 64 && status == 0; B *= 2) {
            char prefix[MR_COLUMN], name[MR_COLUMN], title[2 * MR_COLUMN];
            const char *way = context ? "with context" : "without context";
            snprintf(prefix, sizeof prefix, "%s B=%d T=", context ? "context" : "tokens", B);
            snprintf(name, sizeof name, context ? "inference-context-%d" : "inference-%d", B);
            snprintf(title, sizeof title, "Inference %s, %d streams", way, B);
            const mr_length_table t = mr_length_table_of(v, prefix);
            if (!t.lengths) continue;
            mr_strbuf_format(md, "### %s\n\n", title);
            mr_length_table_start(md, &t, context ? "ms: context of T, then 16 tokens" : "ms: T tokens");
            for (size_t i = 0; i < t.count; i++) mr_length_table_numbers(md, &t, t.labels[i], "ms", 1);
            mr_length_table_notes(md, &t);
            const mr_length_chart chart = {.name = context || B != 64 ? name : "inference",
                                           .title = title,
                                           .y_label = "time (ms)",
                                           .key = "ms",
                                           .per = 1};
            status = mr_length_table_draw(md, &t, &chart, dir, first, err);
        }
    return status;
}

static int report(const mr_rows *rows, const char *dir, mr_error *err)
{
    mr_strbuf md = {0};
    mr_device_rows v = {0};
    int status = 0;
    mr_strbuf_add(&md,
                  "# Inference\n\nThree layers 64 → 384, median. Without context: T tokens one after another, from "
                  "nothing, each until its logits are there. "
                  "With context: T tokens at once, then 16 tokens one after another.\n\n");
    for (int first = 1; status == 0 && mr_device_rows_next(rows, &v); first = 0)
        status = add_part(&md, &v, dir, first, err);
    const int saved = mr_measured_report_save(dir, "inference", &md, err);
    return status ? status : saved;
}

const mr_measured mr_inference = {"inference", "tokens one after another, without and with a context, 8 to 64 streams",
                                  measure, report};
