/* The key gate-init, parsed. */
#include "model/gate_init.h"

#include "core/options.h"

#include <string.h>

static const struct form {
    const char *name;
    mr_gate_init_kind kind;
    int biases; /* 1: one or more biases must follow; 0: one number may follow */
    double least, most;
    const char *range;
} forms[] = {
    {"forget-bias", MR_GATE_INIT_FORGET_BIAS, 1, -100, 100, "a bias must be a number from -100 to 100"},
    {"sums", MR_GATE_INIT_SUMS, 1, -100, 20, "a bias must be a number from -100 to 20"},
    {"timescales-uniform", MR_GATE_INIT_TIMESCALES_UNIFORM, 0, 1, 1e9,
     "the longest time scale must be a number from 1 to 1e9"},
    {"timescales", MR_GATE_INIT_TIMESCALES, 0, 1, 1e9, "the longest time scale must be a number from 1 to 1e9"},
};

/* Reads numbers separated by commas. Returns 0 when the text is something else. */
static int read_numbers(const char *text, const struct form *form, mr_gate_init *gates)
{
    const int room = form->biases ? MR_GATE_INIT_VALUES : 1;
    char one[32];
    for (gates->count = 0; gates->count < room; text++) {
        const size_t n = strcspn(text, ",");
        double *value = &gates->values[gates->count];
        if (n >= sizeof one) return 0;
        memcpy(one, text, n);
        one[n] = 0;
        if (!mr_real_read(one, value) || *value < form->least || *value > form->most) return 0;
        gates->count++;
        text += n;
        if (!*text) return 1;
    }
    return 0;
}

int mr_gate_init_read(const char *text, mr_gate_init *gates, mr_error *err)
{
    const size_t n = strcspn(text, "=");
    *gates = (mr_gate_init){.kind = MR_GATE_INIT_DEFAULT};
    if (!strcmp(text, "default")) return 0;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const struct form *form = &forms[i];
        if (strlen(form->name) != n || strncmp(text, form->name, n)) continue;
        gates->kind = form->kind;
        if (!text[n] && !form->biases) return 0;
        if (text[n] && read_numbers(text + n + 1, form, gates)) return 0;
        return mr_fail(err, MR_ECONFIG, "gate-init = %s: %s", text, form->range);
    }
    return mr_fail(
        err, MR_ECONFIG,
        "gate-init = %s: must be default, forget-bias=X[,Y…], sums=X[,Y…], timescales[=T] or timescales-uniform[=T]",
        text);
}

double mr_gate_init_bias(const mr_gate_init *gates, int block)
{
    return gates->count ? gates->values[block < gates->count ? block : gates->count - 1] : 0;
}

int mr_gate_init_timed(const mr_gate_init *gates)
{
    return gates->kind == MR_GATE_INIT_TIMESCALES || gates->kind == MR_GATE_INIT_TIMESCALES_UNIFORM;
}
