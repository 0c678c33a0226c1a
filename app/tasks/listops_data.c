/* ListOps: random trees by Long Range Arena's rules, and its published files. */
#include "tasks/listops_data.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/pool.h"
#include "core/rng.h"

#include <inttypes.h>
#include <string.h>

/* The data set is a constant: no seed of a run changes it. */
static const uint64_t data_seed = 0x6c6973746f7073; /* "listops" */

/* ---- trees */

typedef struct tree {
    mr_rng rng;
    const mr_listops_shape *shape;
    int used;
    uint8_t tokens[MR_LISTOPS_LONGEST];
} tree;

static int median(const int *values, int n)
{
    int below[11] = {0}, middle[2] = {(n - 1) / 2, n / 2}, found[2] = {0};
    for (int i = 0; i < n; i++) below[values[i] + 1]++;
    for (int digit = 0; digit < 10; digit++) {
        below[digit + 1] += below[digit]; /* now: how many are at most this digit */
        for (int k = 0; k < 2; k++)
            if (middle[k] >= below[digit] && middle[k] < below[digit + 1]) found[k] = digit;
    }
    return (found[0] + found[1]) / 2;
}

static int apply(int operator, const int * values, int n)
{
    int least = values[0], most = values[0], sum = values[0];
    for (int i = 1; i < n; i++) {
        if (values[i] < least) least = values[i];
        if (values[i] > most) most = values[i];
        sum += values[i];
    }
    if (operator== MR_LISTOPS_MIN) return least;
    if (operator== MR_LISTOPS_MAX) return most;
    return operator== MR_LISTOPS_MED ? median(values, n) : sum % 10;
}

/* A tree that got too long is thrown away, so nothing more of it is made. */
static int is_too_long(const tree *t) { return t->used >= t->shape->max_length; }

static int put(tree *t, int token)
{
    if (!is_too_long(t)) t->tokens[t->used++] = (uint8_t)token;
    return token;
}

/* One node with all below it; returns its value. A node is an operator with chance 1/4, above the last level. One draw
 * decides whether it is one and, if not, which digit; a second one decides the operator and how many arguments. */
static int grow(tree *t, int depth)
{
    int values[MR_LISTOPS_ARGUMENTS], n, operator;
    uint32_t draw = mr_rng_below(&t->rng, 40);
    if (depth >= t->shape->depth || draw >= 10) return put(t, MR_LISTOPS_ZERO + (int)(draw % 10)) - MR_LISTOPS_ZERO;
    draw = mr_rng_below(&t->rng, 4 * (uint32_t)(t->shape->arguments - 1));
    n = 2 + (int)(draw / 4);
    values[0] = 0; /* for static analysers: there are two or more */
    operator= put(t, MR_LISTOPS_MIN + (int)(draw % 4));
    for (int i = 0; i < n; i++) {
        values[i] = grow(t, depth + 1);
        if (is_too_long(t)) return 0;
    }
    put(t, MR_LISTOPS_END);
    return apply(operator, values, n);
}

/* Attempts are numbered, and each has its own random numbers; blocks of them are tried on all cores and then collected
 * in order, so the set does not depend on the number of cores. */
enum { BLOCK = 4096, BLOCKS = 32, THREADS = 16 };

typedef struct attempts {
    const mr_listops_shape *shape;
    uint64_t first;
    mr_byte_rows found[BLOCKS];
    tree trees[THREADS];
    int failed[BLOCKS];
} attempts;

static void try_block(void *arg, int block, int slot)
{
    attempts *a = arg;
    tree *t = &a->trees[slot];
    mr_byte_rows *found = &a->found[block];
    found->count = 0;
    found->used = 0;
    a->failed[block] = 0;
    for (uint64_t i = 0; i < BLOCK; i++) {
        uint64_t attempt = a->first + (uint64_t)block * BLOCK + i;
        t->rng = mr_rng_at(data_seed, MR_STREAM_EVAL, (uint32_t)(attempt >> 32), (uint32_t)attempt);
        t->shape = a->shape;
        t->used = 0;
        int value = grow(t, 1);
        if (t->used > a->shape->min_length && t->used < a->shape->max_length)
            a->failed[block] |= mr_byte_rows_append(found, t->tokens, (uint32_t)t->used, (uint8_t)value);
    }
}

static int take_found(const attempts *a, uint32_t wanted, mr_byte_rows *rows)
{
    for (int block = 0; block < BLOCKS; block++) {
        const mr_byte_rows *found = &a->found[block];
        if (a->failed[block]) return MR_ENOMEM;
        for (uint32_t i = 0; i < found->count && rows->count < wanted; i++) {
            uint32_t index;
            int added;
            if (mr_byte_rows_add(rows, found->bytes + found->at[i], found->length[i], found->label[i], &index, &added))
                return MR_ENOMEM;
        }
    }
    return 0;
}

static int processors(void)
{
    const int n = mr_processors();
    return n > THREADS ? THREADS : n;
}

int mr_listops_generate(const mr_listops_shape *shape, uint32_t count, mr_byte_rows *rows, mr_error *err)
{
    const uint64_t most = 1000000 + 200 * (uint64_t)count; /* attempts; the published shape takes about 25 a tree */
    const uint32_t wanted = rows->count + count;
    attempts *a = mr_alloc(1, sizeof *a);
    mr_pool *pool = a ? mr_pool_new(processors(), NULL) : NULL;
    int status = pool ? 0 : MR_ENOMEM;
    if (a) a->shape = shape;
    for (; !status && rows->count < wanted && a->first < most; a->first += BLOCK * BLOCKS) {
        mr_pool_run(pool, try_block, a, BLOCKS);
        status = take_found(a, wanted, rows);
    }
    for (int i = 0; a && i < BLOCKS; i++) mr_byte_rows_free(&a->found[i]);
    mr_pool_free(pool);
    mr_free(a);
    if (status) return mr_no_memory(err, "the trees of listops");
    if (rows->count == wanted) return 0;
    return mr_fail(err, MR_ECONFIG,
                   "only %" PRIu32 " different trees of more than %d and fewer than %d tokens were found, and %" PRIu32
                   " are needed: widen --min-length and --max-length, raise --depth or --arguments, or ask for fewer",
                   rows->count, shape->min_length, shape->max_length, wanted);
}

/* ---- published files */

static const struct {
    const char *text;
    uint8_t token;
} words[] = {{"[MIN", MR_LISTOPS_MIN},
             {"[MAX", MR_LISTOPS_MAX},
             {"[MED", MR_LISTOPS_MED},
             {"[SM", MR_LISTOPS_SM},
             {"]", MR_LISTOPS_END}};

/* The token of a word, MR_LISTOPS_PAD for a parenthesis, −1 for anything else. */
static int token_of(const char *word, size_t n)
{
    if (n == 1 && word[0] >= '0' && word[0] <= '9') return MR_LISTOPS_ZERO + word[0] - '0';
    if (n == 1 && (word[0] == '(' || word[0] == ')')) return MR_LISTOPS_PAD;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].text) == n && !memcmp(words[i].text, word, n)) return words[i].token;
    return -1;
}

typedef struct reader {
    const char *path;
    int line;
    uint32_t longest, used;
    uint8_t *tokens;
    mr_error *err;
} reader;

static int read_source(reader *r, const char *at, const char *end)
{
    r->used = 0;
    while (at < end) {
        size_t n = 0;
        while (at < end && *at == ' ') at++;
        while (at + n < end && at[n] != ' ') n++;
        int token = n ? token_of(at, n) : MR_LISTOPS_PAD;
        if (token < 0)
            return mr_fail(r->err, MR_EDATA, "%s, line %d: \"%.*s\" is not a token of ListOps", r->path, r->line,
                           n > 40 ? 40 : (int)n, at);
        if (token != MR_LISTOPS_PAD && r->used < r->longest) r->tokens[r->used++] = (uint8_t)token;
        at += n;
    }
    return r->used ? 0 : mr_fail(r->err, MR_EDATA, "%s, line %d: the column Source is empty", r->path, r->line);
}

static int read_line(reader *r, const char *at, const char *end, mr_byte_rows *rows)
{
    const char *tab = memchr(at, '\t', (size_t)(end - at));
    if (!tab)
        return mr_fail(r->err, MR_EDATA, "%s, line %d: has no tab; there must be two columns, Source and Target",
                       r->path, r->line);
    if (end - tab != 2 || tab[1] < '0' || tab[1] > '9')
        return mr_fail(r->err, MR_EDATA, "%s, line %d: the column Target is \"%.*s\"; it must be a digit", r->path,
                       r->line, end - tab > 40 ? 40 : (int)(end - tab - 1), tab + 1);
    int status = read_source(r, at, tab);
    if (!status && mr_byte_rows_append(rows, r->tokens, r->used, (uint8_t)(tab[1] - '0')))
        status = mr_no_memory(r->err, r->path);
    return status;
}

static int read_lines(reader *r, const char *at, const char *end, mr_byte_rows *rows)
{
    for (; at < end; r->line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at)), *next;
        if (!stop) stop = end;
        next = stop < end ? stop + 1 : end;
        if (stop > at && stop[-1] == '\r') stop--;
        if (r->line == 1) {
            if (stop - at != 13 || memcmp(at, "Source\tTarget", 13))
                return mr_fail(r->err, MR_EDATA, "%s, line 1: must name the columns, \"Source TAB Target\"", r->path);
        } else {
            int status = read_line(r, at, stop, rows);
            if (status) return status;
        }
        at = next;
    }
    return 0;
}

int mr_listops_read(const char *path, uint32_t longest, mr_byte_rows *rows, mr_error *err)
{
    char *text = NULL;
    size_t size;
    uint32_t before = rows->count;
    reader r = {.path = path, .line = 1, .longest = longest, .tokens = mr_alloc(longest, 1), .err = err};
    int status = r.tokens ? mr_file_read(path, UINT32_MAX, &text, &size, err) : mr_no_memory(err, path);
    if (!status) status = read_lines(&r, text, text + size, rows);
    if (!status && rows->count == before) status = mr_fail(err, MR_EDATA, "%s: has no rows", path);
    mr_free(text);
    mr_free(r.tokens);
    return status;
}
