/* Lines of the log: as JSON, as CSV, and read back. */
#include "train/log_entry.h"

#include "core/json.h"
#include "core/options.h"
#include "core/strbuf.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {"step", "eval", "whole"};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- writing ---- */

/* Adds `format`, in which the one %s is the number, to a line that is long enough for all of them. */
static void add_real(char out[MR_LOG_LINE], const char *format, double value, const char *unknown)
{
    char number[MR_REAL_MAX];
    const size_t used = strlen(out);
    snprintf(out + used, MR_LOG_LINE - used, "%s%s", format,
             isfinite(value) ? mr_real_print(number, value, 0) : unknown);
}

/* To a thousandth of a second. */
static double rounded(double seconds) { return round(seconds * 1000) / 1000; }

size_t mr_log_json(char out[MR_LOG_LINE], const mr_log_entry *e)
{
    snprintf(out, MR_LOG_LINE, "{\"kind\":\"%s\",\"step\":%lld", kinds[e->kind], (long long)e->step);
    add_real(out, ",\"loss\":", e->loss, "null");
    if (e->kind == MR_LOG_STEP) {
        add_real(out, ",\"lr\":", e->lr, "null");
        add_real(out, ",\"grad_norm\":", e->grad_norm, "null");
        add_real(out, ",\"tokens_per_s\":", e->tokens_per_s, "null");
    } else if (!isnan(e->accuracy)) add_real(out, ",\"accuracy\":", e->accuracy, "null");
    if (e->kind == MR_LOG_EVAL) strcat(out, e->best ? ",\"best\":true" : ",\"best\":false");
    add_real(out, ",\"seconds\":", rounded(e->seconds), "null");
    strcat(out, "}\n");
    return strlen(out);
}

const char mr_log_csv_header[] = "kind,step,loss,test_loss,accuracy,lr,grad_norm,tokens_per_s,seconds\n";

size_t mr_log_csv(char out[MR_LOG_LINE], const mr_log_entry *e)
{
    const int step = e->kind == MR_LOG_STEP;
    snprintf(out, MR_LOG_LINE, "%s,%lld", kinds[e->kind], (long long)e->step);
    add_real(out, ",", step ? e->loss : NAN, "");
    add_real(out, ",", step ? NAN : e->loss, "");
    add_real(out, ",", step ? NAN : e->accuracy, "");
    add_real(out, ",", step ? e->lr : NAN, "");
    add_real(out, ",", step ? e->grad_norm : NAN, "");
    add_real(out, ",", step ? e->tokens_per_s : NAN, "");
    add_real(out, ",", rounded(e->seconds), "");
    strcat(out, "\n");
    return strlen(out);
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

/* −1: no kind of ours. */
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
