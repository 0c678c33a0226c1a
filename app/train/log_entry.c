/* Lines of the log: as JSON, as CSV, and read back. */
#include "train/log_entry.h"

#include "core/json.h"
#include "core/json_write.h"
#include "core/options.h"

#include <math.h>
#include <string.h>

static const char *const kinds[] = {"step", "eval", "whole"};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- writing ---- */

/* To a thousandth of a second. */
static double rounded(double seconds) { return round(seconds * 1000) / 1000; }

void mr_log_json(mr_strbuf *out, const mr_log_entry *e)
{
    mr_json_writer w = {.text = out};
    mr_json_write_open(&w, '{');
    mr_json_field_text(&w, "kind", kinds[e->kind]);
    mr_json_field_whole(&w, "step", e->step);
    mr_json_field_real(&w, "loss", e->loss, 0);
    if (e->kind == MR_LOG_STEP) {
        mr_json_field_real(&w, "lr", e->lr, 0);
        mr_json_field_real(&w, "grad_norm", e->grad_norm, 0);
        mr_json_field_real(&w, "tokens_per_s", e->tokens_per_s, 0);
    } else if (!isnan(e->accuracy)) mr_json_field_real(&w, "accuracy", e->accuracy, 0);
    if (e->kind == MR_LOG_EVAL) {
        mr_json_write_key(&w, "best");
        mr_json_write_word(&w, e->best ? "true" : "false");
    }
    mr_json_field_real(&w, "seconds", rounded(e->seconds), 0);
    mr_json_write_close(&w, '}');
    mr_strbuf_add(out, "\n");
}

const char mr_log_csv_header[] = "kind,step,loss,test_loss,accuracy,lr,grad_norm,tokens_per_s,seconds\n";

void mr_log_csv(mr_strbuf *out, const mr_log_entry *e)
{
    const int step = e->kind == MR_LOG_STEP;
    const double columns[] = {step ? e->loss : NAN, step ? NAN : e->loss,      step ? NAN : e->accuracy,
                              step ? e->lr : NAN,   step ? e->grad_norm : NAN, step ? e->tokens_per_s : NAN,
                              rounded(e->seconds)};
    mr_strbuf_format(out, "%s,%lld", kinds[e->kind], (long long)e->step);
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        char number[MR_REAL_MAX];
        mr_strbuf_format(out, ",%s", isfinite(columns[i]) ? mr_real_print(number, columns[i], 0) : "");
    }
    mr_strbuf_add(out, "\n");
}

/* ---- reading back ---- */

/* A number; NAN for null, and for anything else. */
static double read_real(mr_json *json)
{
    char copy[MR_REAL_MAX] = "";
    const char *text;
    double value;
    size_t size = mr_json_number(json, &text);
    if (size && size < sizeof copy) memcpy(copy, text, size);
    if (!size) mr_json_word(json, "null");
    return mr_real_read(copy, &value) ? value : NAN;
}

/* The place of a value in its entry; NULL: not a number. */
static double *number_of(mr_log_entry *e, const char *key)
{
    const struct {
        const char *key;
        double *value;
    } numbers[] = {{"loss", &e->loss},           {"lr", &e->lr},
                   {"grad_norm", &e->grad_norm}, {"tokens_per_s", &e->tokens_per_s},
                   {"accuracy", &e->accuracy},   {"seconds", &e->seconds}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!strcmp(key, numbers[i].key)) return numbers[i].value;
    return NULL;
}

/* −1: unknown kind. */
static int read_kind(mr_json *json)
{
    size_t length;
    const char *kind = mr_json_string(json, &length);
    for (int i = 0; kind && i < KINDS; i++)
        if (!strcmp(kind, kinds[i])) return i;
    return -1;
}

int mr_log_parse(const char *line, size_t size, mr_log_entry *e)
{
    char room[MR_LOG_LINE];
    mr_json json;
    int kind = -1;
    *e = (mr_log_entry){
        .step = -1, .loss = NAN, .lr = NAN, .grad_norm = NAN, .tokens_per_s = NAN, .accuracy = NAN, .seconds = NAN};
    if (size > sizeof room) return 0;
    mr_json_start(&json, line, size, room);
    mr_json_enter(&json, '{');
    while (mr_json_item(&json, '}')) {
        size_t length;
        const char *key = mr_json_key(&json, &length);
        if (!key) return 0;
        double *number = number_of(e, key);
        if (number) *number = read_real(&json);
        else if (!strcmp(key, "kind")) kind = read_kind(&json);
        else if (!strcmp(key, "step")) mr_json_whole(&json, &e->step);
        else if (mr_json_word(&json, "true")) e->best = !strcmp(key, "best");
        else if (!mr_json_word(&json, "false")) read_real(&json);
    }
    e->kind = (mr_log_kind)(kind < 0 ? 0 : kind);
    return mr_json_done(&json) && kind >= 0 && e->step >= 0;
}
