/* The progress line: speed, time left, and what fits the width of a terminal. */
#include "train/progress.h"

#include "core/strbuf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PART_MAX = 64, BAR_MIN = 10, BAR_MAX = 40 };

void mr_progress_start(mr_progress *p, int64_t step, int64_t steps, double deadline, double now)
{
    *p = (mr_progress){.step = step,
                       .steps = steps,
                       .loss = NAN,
                       .test_loss = NAN,
                       .accuracy = NAN,
                       .deadline = isfinite(deadline) ? deadline : NAN,
                       .utf8 = mr_locale_is_utf8(),
                       .updated = now,
                       .drawn = -INFINITY};
}

/* The speed is an average that fades over a quarter of the steps so far: quick to settle at first, calm over
 * evaluations later. It fades by steps, not by time: an evaluation adds the time that it took, and steps before it keep
 * their weight. */
void mr_progress_step(mr_progress *p, int64_t step, int64_t tokens, double loss, double now)
{
    double passed = now - p->updated;
    int64_t steps = step - p->step;
    p->step = step;
    p->loss = loss;
    p->updated = now;
    if (steps < 1 || !(passed > 0)) return;
    p->done += (double)steps;
    double kept = exp(-4 * (double)steps / p->done);
    p->past_seconds = kept * p->past_seconds + passed;
    p->past_steps = kept * p->past_steps + (double)steps;
    p->past_tokens = kept * p->past_tokens + (double)tokens;
}

void mr_progress_eval(mr_progress *p, double test_loss, double accuracy)
{
    p->test_loss = test_loss;
    p->accuracy = accuracy;
}

int mr_progress_due(mr_progress *p, double every, double now)
{
    if (now - p->drawn < every) return 0;
    p->drawn = now;
    return 1;
}

double mr_progress_seconds_left(const mr_progress *p)
{
    double by_steps = p->past_seconds / p->past_steps * (double)(p->steps - p->step); /* 0/0 before the first step */
    double left = fmin(by_steps, p->deadline - p->updated);                           /* fmin ignores one NaN */
    return left < 0 ? 0 : left;
}

/* ---- the line */

static void time_text(char out[PART_MAX], double seconds)
{
    long s = lround(fmin(seconds, 359999999));
    if (s < 3600) snprintf(out, PART_MAX, "%ld:%02ld left", s / 60, s % 60);
    else snprintf(out, PART_MAX, "%ld:%02ld:%02ld left", s / 3600, s / 60 % 60, s % 60);
}

static void loss_text(char out[PART_MAX], const char *name, double loss)
{
    char number[MR_REAL_MAX];
    if (isfinite(loss)) snprintf(out, PART_MAX, "%s %s", name, mr_real_print(number, loss, 4));
}

/* The parts of a line in their order; "" where nothing is known. */
enum { STEP, LOSS, TEST_LOSS, PERCENT, SPEED, LEFT, PARTS };

static void make_parts(char part[PARTS][PART_MAX], const mr_progress *p)
{
    char number[MR_REAL_MAX], of[24];
    int wide = snprintf(of, sizeof of, "%lld", (long long)p->steps);
    for (int i = 0; i < PARTS; i++) part[i][0] = 0;
    snprintf(part[STEP], PART_MAX, "step %*lld/%s", wide, (long long)p->step, of);
    loss_text(part[LOSS], "loss", p->loss);
    loss_text(part[TEST_LOSS], "test loss", p->test_loss);
    if (isfinite(p->accuracy)) {
        /* Cut, not rounded: only what is perfect shows as 100 %. */
        mr_real_print(number, floor(p->accuracy * 1000 + 1e-9) / 10, 4);
        snprintf(part[PERCENT], PART_MAX, "accuracy %s %%", number);
    }
    double tokens_per_s = p->past_tokens / p->past_seconds;
    if (isfinite(tokens_per_s)) snprintf(part[SPEED], PART_MAX, "%s tokens/s", mr_count_print(number, tokens_per_s, 3));
    double left = mr_progress_seconds_left(p);
    if (isfinite(left) && p->step < p->steps) time_text(part[LEFT], left);
}

/* Columns of the parts, joined by two blanks; every part but the bar is ASCII. */
static int columns(char part[PARTS][PART_MAX])
{
    int sum = 0;
    for (int i = 0; i < PARTS; i++)
        if (part[i][0]) sum += (int)strlen(part[i]) + (sum ? 2 : 0);
    return sum;
}

static void make_bar(char *out, const mr_progress *p, int cells)
{
    static const char *const eighth[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    double share = p->steps > 0 ? (double)p->step / (double)p->steps : 0;
    int parts = p->utf8 ? 8 : 1, filled = (int)(fmin(fmax(share, 0), 1) * cells * parts);
    strcpy(out, p->utf8 ? "▕" : "[");
    for (int cell = 0; cell < cells; cell++) {
        int here = filled - cell * parts;
        if (here >= parts) strcat(out, p->utf8 ? "█" : "#");
        else strcat(out, p->utf8 && here > 0 ? eighth[here] : p->utf8 ? " " : "-");
    }
    strcat(out, p->utf8 ? "▏" : "]");
}

size_t mr_progress_format(char *out, size_t size, const mr_progress *p, int width)
{
    static const int first_to_go[] = {TEST_LOSS, SPEED, PERCENT, LEFT, LOSS};
    char part[PARTS][PART_MAX], bar[3 * (BAR_MAX + 2) + 1] = "", line[MR_PROGRESS_MAX] = "";
    make_parts(part, p);
    if (width > 0) {
        for (size_t i = 0; i < sizeof first_to_go / sizeof *first_to_go && columns(part) > width - 1; i++)
            part[first_to_go[i]][0] = 0;
        int cells = width - 1 - columns(part) - 4; /* two blanks, two ends */
        if (cells >= BAR_MIN) make_bar(bar, p, cells < BAR_MAX ? cells : BAR_MAX);
    }
    for (int i = 0; i < PARTS; i++) {
        if (!part[i][0]) continue;
        if (line[0]) strcat(line, "  ");
        strcat(line, part[i]);
        if (i == STEP && bar[0]) strcat(strcat(line, "  "), bar);
    }
    if (width > 0 && !bar[0] && strlen(line) >= (size_t)width) line[width - 1] = 0;
    int bytes = snprintf(out, size, "%s", line);
    return (size_t)bytes < size ? (size_t)bytes : size ? size - 1 : 0;
}

int mr_locale_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (!value || !*value) continue;
        const char *set = strchr(value, '.');
        return set && (!strncasecmp(set, ".utf-8", 6) || !strncasecmp(set, ".utf8", 5));
    }
    return 0;
}
