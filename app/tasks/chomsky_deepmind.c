/* The fifteen tasks of "Neural Networks and the Chomsky Hierarchy", by their published definitions. */
#include "tasks/chomsky.h"

#include <string.h>

enum { END = 2 }; /* follows answers that are shorter than their room */

static int one_more(int length) { return length + 1; }
static int twice(int length) { return 2 * length; }
static int half(int length) { return (length + 1) / 2; }

/* An expression of numbers with operators between them has an odd number of symbols. */
static int odd(int length, int place)
{
    (void)place;
    return length - (length + 1) % 2;
}

/* ---- strings ---- */

static void draw_bits(const mr_chomsky_row *row) { mr_chomsky_symbols(row->rng, row->ids, row->length, 2); }

static void draw_reverse(const mr_chomsky_row *row)
{
    draw_bits(row);
    for (int i = 0; i < row->length; i++) row->answer[i] = row->ids[row->length - 1 - i];
}

static void draw_duplicate(const mr_chomsky_row *row)
{
    draw_bits(row);
    for (int i = 0; i < 2 * row->length; i++) row->answer[i] = row->ids[i % row->length];
}

/* Places are counted from 0, as the published code does (its comments count from 1). */
static void draw_odds_first(const mr_chomsky_row *row)
{
    int n = 0;
    draw_bits(row);
    for (int i = 1; i < row->length; i += 2) row->answer[n++] = row->ids[i];
    for (int i = 0; i < row->length; i += 2) row->answer[n++] = row->ids[i];
}

/* A string twice, with one of its symbols, in either copy, replaced by 2; an odd length is filled up with 3. */
static void draw_missing(const mr_chomsky_row *row)
{
    enum { HIDDEN = 2, FILLER = 3 };
    int n = row->length / 2;
    row->ids[row->length - 1] = FILLER;
    if (n == 0) {
        row->ids[0] = row->answer[0] = 1; /* nothing can be hidden */
        return;
    }
    mr_chomsky_symbols(row->rng, row->ids, n, 2);
    memcpy(row->ids + n, row->ids, (size_t)n * sizeof *row->ids);
    int32_t *hidden = row->ids + mr_rng_below(row->rng, 2 * (uint32_t)n);
    row->answer[0] = *hidden;
    *hidden = HIDDEN;
}

/* Bits of a stack, bottom first, then actions; the answer is the stack that remains, top first, and 2. */
static void draw_stack(const mr_chomsky_row *row)
{
    enum { POP = 2, PUSH_0 = 3, ACTIONS = 3 };
    int32_t stack[MR_CHOMSKY_LONGEST];
    int height = row->length == 1 ? 1 : 1 + (int)mr_rng_below(row->rng, (uint32_t)row->length - 1), n = 0;
    mr_chomsky_symbols(row->rng, row->ids, height, 2);
    mr_chomsky_symbols(row->rng, row->ids + height, row->length - height, ACTIONS);
    memcpy(stack, row->ids, (size_t)height * sizeof *stack);
    for (int i = height; i < row->length; i++) {
        row->ids[i] += POP;
        if (row->ids[i] != POP) stack[height++] = row->ids[i] - PUSH_0;
        else if (height > 0) height--;
    }
    while (height > 0) row->answer[n++] = stack[--height];
    row->answer[n] = END;
}

/* ---- arithmetic modulo five ---- */

enum { MODULUS = 5, PLUS = MODULUS, MINUS, TIMES };

static void draw_arithmetic(const mr_chomsky_row *row)
{
    int sum = 0, product = 1;
    for (int i = 0; i < odd(row->length, 0); i++) {
        if (i % 2 == 0) {
            row->ids[i] = (int32_t)mr_rng_below(row->rng, MODULUS);
            product = product * row->ids[i] % MODULUS;
            continue;
        }
        row->ids[i] = PLUS + (int32_t)mr_rng_below(row->rng, 3);
        if (row->ids[i] == TIMES) continue;
        sum += product;
        product = row->ids[i] == MINUS ? MODULUS - 1 : 1;
    }
    row->answer[0] = (sum + product) % MODULUS;
}

/* How brackets are written depends on whether there is a token for × before them. */
typedef struct grammar {
    mr_rng *rng;
    int operators; /* 2: + and −; 3: × too */
} grammar;

static int32_t opening(const grammar *g) { return PLUS + g->operators; }

/* An expression of exactly n tokens: d, −d, (d), (−d), or (left operator right). Returns its value. */
static int expression(const grammar *g, int32_t *to, int n)
{
    if (n >= 3) {
        to[0] = opening(g);
        to[n - 1] = opening(g) + 1;
        if (n < 5) return expression(g, to + 1, n - 2);
        int before = 1 + (int)mr_rng_below(g->rng, (uint32_t)n - 4);
        int left = expression(g, to + 1, before), right = expression(g, to + before + 2, n - 3 - before);
        int32_t op = to[before + 1] = PLUS + (int32_t)mr_rng_below(g->rng, (uint32_t)g->operators);
        if (op == TIMES) return left * right % MODULUS;
        return (op == PLUS ? left + right : left + MODULUS - right) % MODULUS;
    }
    int32_t digit = to[n - 1] = (int32_t)mr_rng_below(g->rng, MODULUS);
    if (n == 1) return digit;
    to[0] = MINUS;
    return (MODULUS - digit) % MODULUS;
}

static void draw_brackets(const mr_chomsky_row *row)
{
    row->answer[0] = expression(&(grammar){row->rng, 3}, row->ids, row->length);
}

/* An expression of + and −, "=" and its value, with one digit replaced by x: from a random token on, the next
 * digit. */
static void draw_equation(const mr_chomsky_row *row)
{
    const grammar g = {row->rng, 2};
    const int32_t x = opening(&g) + 2, equals = opening(&g) + 3;
    int n = row->length - 2;
    if (n < 1) { /* too short for an equation */
        memset(row->ids, 0, (size_t)row->length * sizeof *row->ids);
        return;
    }
    row->ids[n + 1] = expression(&g, row->ids, n);
    row->ids[n] = equals;
    int at = (int)mr_rng_below(row->rng, (uint32_t)n);
    while (row->ids[at] >= MODULUS) at = (at + 1) % n;
    row->answer[0] = row->ids[at];
    row->ids[at] = x;
}

/* ---- binary numbers ---- */

enum { OPERATOR = 2 };

/* A number of n bits that is not 0, every one equally likely. */
static void draw_number(mr_rng *rng, int32_t *bits, int n)
{
    int32_t any = 0;
    while (!any) {
        mr_chomsky_symbols(rng, bits, n, 2);
        for (int i = 0; i < n; i++) any |= bits[i];
    }
}

/* Two numbers, lowest bit first, of n and length − 1 − n bits, with an operator between them. Returns n. */
static int draw_operands(const mr_chomsky_row *row)
{
    int n = 1 + (int)mr_rng_below(row->rng, (uint32_t)row->length - 2);
    draw_number(row->rng, row->ids, n);
    row->ids[n] = OPERATOR;
    draw_number(row->rng, row->ids + n + 1, row->length - 1 - n);
    return n;
}

/* The answer holds sums of bits for each place, n of them: carries them, and puts the end after the highest bit. */
static void finish_number(int32_t *answer, int n)
{
    for (int i = 0; i + 1 < n; i++) {
        answer[i + 1] += answer[i] / 2;
        answer[i] %= 2;
    }
    while (n > 1 && !answer[n - 1]) n--;
    answer[n] = END;
}

/* Inputs of one or two tokens have no room for two numbers: one of them is drawn below the largest. */
static void draw_short_number(const mr_chomsky_row *row)
{
    uint32_t number = mr_rng_below(row->rng, row->length == 1 ? 1 : 3);
    for (int i = 0; i < row->length; i++) row->ids[i] = (int32_t)(number >> i & 1);
}

static void draw_addition(const mr_chomsky_row *row)
{
    if (row->length <= 2) {
        draw_short_number(row);
        memcpy(row->answer, row->ids, (size_t)row->length * sizeof *row->ids);
        finish_number(row->answer, row->length);
        return;
    }
    int n = draw_operands(row), m = row->length - 1 - n;
    for (int i = 0; i < n; i++) row->answer[i] += row->ids[i];
    for (int i = 0; i < m; i++) row->answer[i] += row->ids[n + 1 + i];
    finish_number(row->answer, (n > m ? n : m) + 1);
}

static void draw_multiplication(const mr_chomsky_row *row)
{
    if (row->length <= 2) {
        draw_short_number(row);
        row->answer[row->length - 1] = END;
        return;
    }
    int n = draw_operands(row), m = row->length - 1 - n;
    const int32_t *left = row->ids, *right = row->ids + n + 1;
    for (int i = 0; i < n; i++)
        if (left[i])
            for (int j = 0; j < m; j++) row->answer[i + j] += right[j];
    finish_number(row->answer, n + m);
}

/* The root by hand, highest bits first: two bits of the number are brought down for each bit of the root. After k bits
 * of it, what remains is in rest[k−1 … 2k+1], and (root, 0, 1), which ends at the same place, is subtracted if that is
 * possible. */
static int can_take(const uint8_t *rest, const int32_t *root, int k)
{
    if (k > 0 && rest[k - 1]) return 1;
    for (int i = 0; i < k; i++)
        if (rest[k + i] != root[i]) return rest[k + i] > root[i];
    return rest[2 * k] || rest[2 * k + 1];
}

static void take(uint8_t *rest, const int32_t *root, int k)
{
    int borrow = 1;                        /* the last bit of what is taken */
    for (int i = 2 * k + 1; i >= k; i--) { /* rest[k−1] is not looked at again */
        int bit = rest[i] - borrow - (i < 2 * k ? root[i - k] : 0);
        borrow = bit < 0;
        rest[i] = (uint8_t)(bit & 1);
    }
}

static void draw_root(const mr_chomsky_row *row)
{
    uint8_t rest[MR_CHOMSKY_LONGEST + 1] = {0};
    int pad = row->length % 2;
    draw_number(row->rng, row->ids, row->length);
    for (int i = 0; i < row->length; i++) rest[pad + i] = (uint8_t)row->ids[i];
    for (int k = 0; k < half(row->length); k++) {
        row->answer[k] = can_take(rest, row->answer, k);
        if (row->answer[k]) take(rest, row->answer, k);
    }
}

#define PAPER(...)
#define DEEPMIND(name, ...) {#name, __VA_ARGS__},
const mr_chomsky mr_chomsky_deepmind[] = {
#include "tasks/chomsky.def"
    {0}};
