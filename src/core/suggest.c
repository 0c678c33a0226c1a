/* What a wrong name was probably meant as: another program's word for it, or the nearest in spelling. */
#include "core/options.h"

#include <string.h>

enum { LONGEST_KEY = 64 }; /* longer keys are never suggested or corrected */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Damerau-Levenshtein distance: letters missing, added, replaced or swapped. Both strings fit in LONGEST_KEY. */
static size_t typing_distance(const char *a, const char *b)
{
    size_t rows[3][LONGEST_KEY + 1], length_b = strlen(b);
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= length_b; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t *recycled = before;
        before = above;
        above = row;
        row = recycled;
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            size_t replaced = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(replaced, 1 + least(above[j], row[j - 1]));
            int swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return row[length_b];
}

/* Is a candidate nearer to a mistyped name than `best`, which it then replaces? */
static int is_nearer(const char *name, const char *candidate, size_t *best)
{
    if (strlen(candidate) > LONGEST_KEY) return 0;
    const size_t distance = typing_distance(name, candidate);
    if (distance >= *best) return 0;
    *best = distance;
    return 1;
}

/* The first distance that is too far; 0: nothing is near. */
static size_t too_far(const char *name)
{
    const size_t length = strlen(name);
    return length > LONGEST_KEY ? 0 : (length < 6 ? 1 : length / 3) + 1;
}

const char *mr_name_nearest(const char *const *names, const char *name)
{
    const char *nearest = NULL;
    for (size_t best = too_far(name); *names; names++)
        if (is_nearer(name, *names, &best)) nearest = *names;
    return nearest;
}

/* What other programs call a key of ours. */
static const struct alias {
    const char *theirs, *ours;
} aliases[] = {
    {"learning-rate", "lr"},
    {"batch-size", "batch"},
    {"bs", "batch"},
    {"epochs", "steps"},
    {"max-epochs", "steps"},
    {"num-epochs", "steps"},
    {"max-steps", "steps"},
    {"num-steps", "steps"},
    {"iterations", "steps"},
    {"iters", "steps"},
    {"max-iters", "steps"},
    {"num-layers", "layers"},
    {"n-layers", "layers"},
    {"n-layer", "layers"},
    {"depth", "layers"},
    {"hidden-size", "dim"},
    {"hidden-dim", "dim"},
    {"hidden", "dim"},
    {"dimension", "dim"},
    {"d-model", "dim"},
    {"n-embd", "dim"},
    {"embedding-size", "dim"},
    {"width", "dim"},
    {"gpu", "device"},
    {"cuda", "device"},
    {"cpu", "device"},
    {"num-threads", "threads"},
    {"workers", "threads"},
    {"seq-len", "context"},
    {"sequence-length", "context"},
    {"block-size", "context"},
    {"context-length", "context"},
    {"wd", "weight-decay"},
    {"grad-clip", "clip"},
    {"clip-grad", "clip"},
    {"max-norm", "clip"},
    {"warmup-steps", "warmup"},
    {"scheduler", "schedule"},
    {"lr-schedule", "schedule"},
    {"opt", "optimizer"},
    {"precision", "dtype"},
    {"gradient-accumulation", "accumulate"},
    {"grad-accum", "accumulate"},
    {"early-stopping", "patience"},
    {"output", "out"},
    {"output-dir", "out"},
    {"out-dir", "out"},
    {"save", "out"},
    {"dataset", "data"},
    {"input", "data"},
    {"file", "data"},
    {"text", "data"},
    {"continue", "resume"},
    {"model", "mixer"},
    {"arch", "mixer"},
    {"cell", "mixer"},
    {"rnn", "mixer"},
    {"max-tokens", "tokens"},
    {"max-new-tokens", "tokens"},
    {"n-predict", "tokens"},
    {"num-tokens", "tokens"},
    {"n-tokens", "tokens"},
    {"length", "tokens"},
    {"max-length", "tokens"},
    {"temp", "temperature"},
    {"max-time", "max-seconds"},
    {"time-limit", "max-seconds"},
    {"silent", "quiet"},
    {"random-seed", "seed"},
    {"tokenizer", "vocab"},
};

static const char *find_in_tables(const mr_option *const *tables, const char *key)
{
    for (; *tables; tables++) {
        const mr_option *option = mr_option_find(*tables, key);
        if (option && !(option->flags & MR_OPT_DERIVED)) return option->key;
    }
    return NULL;
}

/* Underscores count as hyphens. */
static const char *find_alias(const mr_option *const *tables, const char *key)
{
    char plain[LONGEST_KEY + 1];
    size_t length = 0;
    for (; key[length]; length++) {
        if (length == LONGEST_KEY) return NULL;
        plain[length] = key[length] == '_' ? '-' : key[length];
    }
    plain[length] = 0;
    const char *found = find_in_tables(tables, plain);
    for (size_t i = 0; !found && i < sizeof aliases / sizeof *aliases; i++)
        if (!strcmp(plain, aliases[i].theirs)) found = find_in_tables(tables, aliases[i].ours);
    return found;
}

const char *mr_option_nearest(const mr_option *const *tables, const char *key)
{
    const char *nearest = find_alias(tables, key);
    size_t best = too_far(key);
    if (nearest) return nearest;
    for (; *tables; tables++)
        for (const mr_option *option = *tables; option->key; option++)
            if (!(option->flags & MR_OPT_DERIVED) && is_nearer(key, option->key, &best)) nearest = option->key;
    return nearest;
}
