/* The share of GRU's and LSTM's parameters that minGRU and minLSTM need, counted in the tables of real models. */
#include "bench/length_tables.h"

#include "plot/chart.h"
#include "paper/paper_numbers.h"

#include "core/file.h"
#include "core/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EXPANSIONS = 4, PAIRS = 2 };

static const struct pair {
    const char *label;    /* as in the paper's table */
    int min, traditional; /* places in mr_measured_models */
} pairs[PAIRS] = {{"minGRU / GRU", 0, 2}, {"minLSTM / LSTM", 1, 3}};

/* ---- counting */

typedef struct counts {
    double cell, whole; /* the first layer's own projections, without biases; all of the model */
} counts;

static int is_projection(const mr_param *p)
{
    return p->ndim == 2 && !strncmp(p->name, "blocks.0.mixer.", 15) && !strstr(p->name, ".down.");
}

static int count(mr_dev *dev, const mr_measured_model *model, int expansion, counts *out, mr_error *err)
{
    const mr_interface interface = {MR_INPUT_TOKENS, 16, MR_HEAD_TOKEN, MR_LOSS_XENT, 16};
    mr_config config;
    mr_model *built;
    *out = (counts){0};
    mr_options_default(mr_config_options, &config);
    mr_config_set_interface(&config, &interface);
    config.mixer = mr_measured_mixer(model);
    config.layers = MR_TIMED_LAYERS;
    config.expansion = expansion;
    int status = mr_model_new(&config, dev, MR_DECAY_MATRICES, &built, err);
    if (status < 0) return status;
    const mr_params *params = mr_model_params(built);
    for (const mr_param *p = params->list; p < params->list + params->count; p++)
        if (is_projection(p)) out->cell += (double)p->count;
    out->whole = (double)mr_model_count(built);
    mr_model_free(built);
    return 0;
}

static int add(mr_measuring *m, const char *label, const char *column, double ours, double theirs, mr_error *err)
{
    mr_row row = {0};
    if (!mr_measuring_wants(m, label, column, "", &row)) return 0;
    mr_row_set(&row, "parameters", ours);
    mr_row_set(&row, "parameters_of_traditional", theirs);
    mr_row_set(&row, "percent", 100 * ours / theirs);
    return mr_measuring_add(m, &row, err);
}

static void column_of(char column[MR_COLUMN], int whole, int expansion)
{
    snprintf(column, MR_COLUMN, "%s, expansion %d", whole ? "model" : "cell", expansion);
}

static int measure(mr_measuring *m, mr_error *err)
{
    int status = 0;
    for (int i = 0; i < PAIRS; i++)
        for (int e = 1; e <= EXPANSIONS && status == 0; e++) {
            counts min, traditional;
            char column[MR_COLUMN];
            status = count(mr_measuring_device(m), &mr_measured_models[pairs[i].min], e, &min, err);
            if (status == 0)
                status = count(mr_measuring_device(m), &mr_measured_models[pairs[i].traditional], e, &traditional, err);
            column_of(column, 0, e);
            if (status == 0) status = add(m, pairs[i].label, column, min.cell, traditional.cell, err);
            column_of(column, 1, e);
            if (status == 0) status = add(m, pairs[i].label, column, min.whole, traditional.whole, err);
        }
    return status;
}

/* ---- reporting */

/* [0]: the paper's, [1]: the cell's, [2]: the whole model's. */
typedef struct shares {
    double of[PAIRS][3][EXPANSIONS];
} shares;

static shares shares_of(const mr_device_rows *v)
{
    shares s;
    for (int i = 0; i < PAIRS; i++)
        for (int e = 1; e <= EXPANSIONS; e++) {
            mr_paper_cell paper = {NAN, NAN};
            char number[16], column[MR_COLUMN];
            snprintf(number, sizeof number, "%d", e);
            mr_paper_find("parameters", pairs[i].label, number, &paper);
            s.of[i][0][e - 1] = paper.value;
            for (int whole = 0; whole < 2; whole++) {
                column_of(column, whole, e);
                s.of[i][1 + whole][e - 1] = mr_device_rows_number(v, pairs[i].label, column, "percent");
            }
        }
    return s;
}

static int draw(const shares *s, const char *dir, mr_error *err)
{
    static const char *const groups[EXPANSIONS] = {"expansion 1", "expansion 2", "expansion 3", "expansion 4"};
    mr_chart_series series[2 * PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        series[2 * i] = (mr_chart_series){.name = pairs[i].label,
                                          .n = EXPANSIONS,
                                          .y = s->of[i][1],
                                          .colour = mr_model_colour(mr_measured_models[pairs[i].min].label)};
        series[2 * i + 1] =
            (mr_chart_series){.name = "paper", .n = EXPANSIONS, .y = s->of[i][0], .style = MR_CHART_PAPER};
    }
    const mr_chart chart = {.title = "Parameters of the cell, in % of the traditional one",
                            .y = {.label = "%"},
                            .series = series,
                            .count = 2 * PAIRS,
                            .groups = groups,
                            .group_count = EXPANSIONS};
    char *path = mr_path_join(dir, "parameters.svg");
    int status = path ? mr_chart_write(path, &chart, err) : mr_no_memory(err, "a path");
    mr_free(path);
    return status;
}

static int report(const mr_rows *rows, const char *dir, mr_error *err)
{
    static const char *const whose[] = {"the paper's", "the cell's projections", "the whole model"};
    mr_strbuf md = {0};
    mr_device_rows v = {0};
    mr_strbuf_add(&md, "# Parameters\n\nIn percent of the traditional cell's. The cell: its own projections, without "
                       "biases and without the down-projection, as "
                       "the paper counts. The whole model: three layers of 64 channels with norms, down-projections, "
                       "embedding and head.\n\n"
                       "| | expansion 1 | 2 | 3 | 4 |\n|---|---:|---:|---:|---:|\n");
    if (!mr_device_rows_next(rows, &v)) return mr_measured_report_save(dir, "parameters", &md, err);
    const shares s = shares_of(&v);
    for (int i = 0; i < PAIRS; i++)
        for (int k = 0; k < 3; k++) {
            mr_strbuf_format(&md, "| %s, %s ", pairs[i].label, whose[k]);
            for (int e = 0; e < EXPANSIONS; e++) mr_length_table_cell(&md, s.of[i][k][e], 3, "");
            mr_strbuf_add(&md, "|\n");
        }
    mr_strbuf_add(&md, "\n![parameters](parameters.svg)\n");
    int status = draw(&s, dir, err), saved = mr_measured_report_save(dir, "parameters", &md, err);
    return status ? status : saved;
}

const mr_measured mr_parameters = {"parameters", "share of GRU's and LSTM's parameters that minGRU and minLSTM need",
                                   measure, report};
