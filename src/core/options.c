/* Options parsed from text, printed as text, and found by their key or by a mistyped one. */
#include "core/options.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__APPLE__)
#include <xlocale.h> /* newlocale, uselocale */
#endif

enum { SHOWN = 100 }; /* bytes of a wrong value that an error message repeats */

static void *field_of(const mr_option *option, void *settings) { return (char *)settings + option->offset; }

static size_t field_size(mr_option_type type)
{
    switch (type) {
    case MR_OPT_INT: return sizeof(int64_t);
    case MR_OPT_REAL: return sizeof(double);
    case MR_OPT_PAIR: return 2 * sizeof(double);
    case MR_OPT_TEXT: return MR_TEXT_MAX;
    default: return sizeof(int);
    }
}

/* ---- numbers, in the C locale: a program that uses the library may have chosen one with a decimal comma */

static locale_t enter_c_locale(locale_t *previous)
{
    locale_t c = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    *previous = c ? uselocale(c) : (locale_t)0;
    return c;
}

static void leave_c_locale(locale_t c, locale_t previous)
{
    if (!c) return;
    uselocale(previous);
    freelocale(c);
}

/* Decimal text only (strtod alone would take hexadecimal, "inf", "nan" and leading blanks). */
int mr_real_read(const char *text, double *value)
{
    char *end;
    locale_t previous, c;
    if (!*text || text[strspn(text, "+-.0123456789eE")]) return 0;
    c = enter_c_locale(&previous);
    *value = strtod(text, &end);
    leave_c_locale(c, previous);
    return end != text && !*end && isfinite(*value);
}

/* The shortest %g text that reads back as the same number; of two equally short ones, the one without exponent. */
static void print_real(double value, char out[32])
{
    char text[32];
    locale_t previous, c = enter_c_locale(&previous);
    snprintf(out, 32, "%.17g", value);
    for (int digits = 16; digits >= 1; digits--) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strlen(text) < strlen(out) && strtod(text, NULL) == value) strcpy(out, text);
    }
    leave_c_locale(c, previous);
}

static int read_int(const char *text, int64_t *value)
{
    char *end;
    if (!*text || text[strspn(text, "+-0123456789")]) return 0;
    errno = 0;
    long long wide = strtoll(text, &end, 10);
    *value = wide;
    return end != text && !*end && !errno;
}

static int within(const mr_option *option, double value) { return value >= option->min && value <= option->max; }

/* ---- errors: what values are allowed */

static void print_limit(const mr_option *option, double limit, char out[32])
{
    int whole = option->type == MR_OPT_INT && fabs(limit) < 0x1p63;
    if (whole) snprintf(out, 32, "%lld", (long long)limit);
    else print_real(limit, out);
}

static void describe_range(const mr_option *option, const char *what, char *out, size_t room)
{
    char min[32], max[32];
    print_limit(option, option->min, min);
    print_limit(option, option->max, max);
    snprintf(out, room, "%s from %s to %s", what, min, max);
}

static void describe_choices(const mr_option *option, char *out, size_t room)
{
    size_t used = (size_t)snprintf(out, room, "one of ");
    for (const char *const *choice = option->choices; *choice && used < room; choice++)
        used += (size_t)snprintf(out + used, room - used, "%s%s", choice == option->choices ? "" : ", ", *choice);
}

static int refuse(const mr_option *option, const char *text, mr_error *err)
{
    char allowed[512];
    switch (option->type) {
    case MR_OPT_INT: describe_range(option, "a whole number", allowed, sizeof allowed); break;
    case MR_OPT_REAL: describe_range(option, "a number", allowed, sizeof allowed); break;
    case MR_OPT_PAIR: describe_range(option, "two numbers (as in 0.9,0.99), each", allowed, sizeof allowed); break;
    case MR_OPT_CHOICE: describe_choices(option, allowed, sizeof allowed); break;
    case MR_OPT_TEXT: snprintf(allowed, sizeof allowed, "shorter than %d bytes", MR_TEXT_MAX); break;
    default: snprintf(allowed, sizeof allowed, "yes or no");
    }
    return mr_fail(err, MR_EINVAL, "%s = %.*s%s: must be %s", option->key, SHOWN, text,
                   strlen(text) > SHOWN ? "..." : "", allowed);
}

/* ---- from text */

static int parse_bool(const char *text, int *field)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
    for (int i = 0; i < 8; i++)
        if (!strcmp(text, words[i])) {
            *field = i % 2;
            return 1;
        }
    return 0;
}

/* b,a is accepted for the choice a,b. */
static int is_choice(const char *text, const char *choice)
{
    const size_t first = strcspn(text, ","), size = strlen(text);
    if (!strcmp(text, choice)) return 1;
    if (first == size || strlen(choice) != size) return 0;
    const size_t second = size - first - 1;
    return !strncmp(choice, text + first + 1, second) && choice[second] == ',' &&
           !strncmp(choice + second + 1, text, first);
}

static int parse_choice(const mr_option *option, const char *text, int *field)
{
    for (int i = 0; option->choices[i]; i++)
        if (is_choice(text, option->choices[i])) {
            *field = i;
            return 1;
        }
    return 0;
}

static int parse_pair(const mr_option *option, const char *text, double *field)
{
    char first[64];
    double a, b;
    size_t comma = strcspn(text, ","), length = comma;
    if (!text[comma]) return 0;
    const char *second = text + comma + 1;
    second += strspn(second, " ");
    while (length && text[length - 1] == ' ') length--;
    if (length >= sizeof first) return 0;
    memcpy(first, text, length);
    first[length] = 0;
    if (!mr_real_read(first, &a) || !mr_real_read(second, &b) || !within(option, a) || !within(option, b)) return 0;
    field[0] = a;
    field[1] = b;
    return 1;
}

static int parse_int(const mr_option *option, const char *text, int64_t *field)
{
    int64_t value;
    if (!read_int(text, &value) || !within(option, (double)value)) return 0;
    *field = value;
    return 1;
}

static int parse_real(const mr_option *option, const char *text, double *field)
{
    double value;
    if (!mr_real_read(text, &value) || !within(option, value)) return 0;
    *field = value;
    return 1;
}

static int parse_text(const char *text, char *field)
{
    if (strlen(text) >= MR_TEXT_MAX) return 0;
    strcpy(field, text);
    return 1;
}

static int parse(const mr_option *option, void *field, const char *text)
{
    switch (option->type) {
    case MR_OPT_INT: return parse_int(option, text, field);
    case MR_OPT_REAL: return parse_real(option, text, field);
    case MR_OPT_BOOL: return parse_bool(text, field);
    case MR_OPT_CHOICE: return parse_choice(option, text, field);
    case MR_OPT_PAIR: return parse_pair(option, text, field);
    default: return parse_text(text, field);
    }
}

int mr_option_parse(const mr_option *option, void *settings, const char *text, mr_error *err)
{
    return parse(option, field_of(option, settings), text) ? 0 : refuse(option, text, err);
}

int mr_option_add(const mr_option *option, void *settings, const char *text, mr_error *err)
{
    char *field = field_of(option, settings);
    const size_t used = strlen(field);
    if (used + 1 + strlen(text) >= MR_TEXT_MAX)
        return mr_fail(err, MR_EINVAL, "%s = %.*s%s: all values together must be shorter than %d bytes", option->key,
                       SHOWN, text, strlen(text) > SHOWN ? "..." : "", MR_TEXT_MAX);
    field[used] = '\n';
    strcpy(field + used + 1, text);
    return 0;
}

/* Fields that the task derives may have no default: they start as zero. */
void mr_options_default(const mr_option *table, void *settings)
{
    for (const mr_option *option = table; option->key; option++) {
        memset(field_of(option, settings), 0, field_size(option->type));
        if (option->fallback) parse(option, field_of(option, settings), option->fallback);
    }
}

/* ---- to text */

char *mr_option_print(const mr_option *option, const void *settings, char out[MR_TEXT_MAX])
{
    const void *field = (const char *)settings + option->offset;
    char a[32], b[32];
    switch (option->type) {
    case MR_OPT_INT: snprintf(out, MR_TEXT_MAX, "%lld", (long long)*(const int64_t *)field); break;
    case MR_OPT_REAL: print_real(*(const double *)field, out); break;
    case MR_OPT_BOOL: strcpy(out, *(const int *)field ? "yes" : "no"); break;
    case MR_OPT_CHOICE: snprintf(out, MR_TEXT_MAX, "%s", option->choices[*(const int *)field]); break;
    case MR_OPT_PAIR:
        print_real(((const double *)field)[0], a);
        print_real(((const double *)field)[1], b);
        snprintf(out, MR_TEXT_MAX, "%s,%s", a, b);
        break;
    case MR_OPT_TEXT: snprintf(out, MR_TEXT_MAX, "%s", (const char *)field); break;
    }
    return out;
}

/* ---- finding keys */

const mr_option *mr_option_find(const mr_option *table, const char *key)
{
    for (const mr_option *option = table; option->key; option++)
        if (!strcmp(option->key, key)) return option;
    return NULL;
}
