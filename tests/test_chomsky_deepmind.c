/* DeepMind's fifteen tasks: each compared with a second definition, and the distribution within strings. */
#include "chomsky_support.h"

/* ---- strings */

static void check_reversed(const question *q)
{
    assert_int_equal(q->m, q->n);
    for (int left = 0, right = q->n - 1; right >= 0; left++, right--) assert_int_equal(q->answer[left], q->ids[right]);
}

static void check_duplicated(const question *q)
{
    assert_int_equal(q->m, 2 * q->n);
    for (int i = 0; i < q->n; i++) {
        assert_that(q->answer[i], ==, q->ids[i]);
        assert_that(q->answer[q->n + i], ==, q->ids[i]);
    }
}

/* Symbol i goes to place i / 2, after all symbols from odd places if i is even. */
static void check_odds_first(const question *q)
{
    assert_int_equal(q->m, q->n);
    for (int i = 0; i < q->n; i++) assert_int_equal(q->ids[i], q->answer[i / 2 + (i % 2 ? 0 : q->n / 2)]);
}

static void check_hidden(const question *q)
{
    int half = q->n / 2, hidden = 0;
    assert_int_equal(q->m, 1);
    if (q->n == 1) {
        assert_that(q->ids[0], ==, 1);
        assert_that(q->answer[0], ==, 1);
        return;
    }
    for (int i = 0; i < half; i++) {
        int a = q->ids[i], b = q->ids[half + i];
        assert_true(a <= 2);
        assert_true(b <= 2);
        assert_true(a + b < 4);
        if (a != b) hidden++;
        if (a != b) assert_int_equal(a + b - 2, q->answer[0]); /* one of them is hidden, as 2 */
    }
    assert_int_equal(hidden, 1);
    if (q->n % 2) assert_int_equal(q->ids[q->n - 1], 3);
}

/* Read backwards: a POP cancels the next PUSH, or the top of the stack, if there is one. */
static int final_stack(const question *q, int32_t *out)
{
    int skip = 0, n = 0;
    for (int i = q->n - 1; i >= 0; i--) {
        if (q->ids[i] == 2) skip++;
        else if (skip) skip--;
        else out[n++] = q->ids[i] % 3 == 1; /* 1 in the stack, 4: PUSH 1 */
    }
    return n;
}

static void check_stack_answer(const question *q, int cut)
{
    int32_t expected[2048];
    int n = final_stack(q, expected), actions = 0;
    for (int i = 0; i < q->n; i++) {
        actions |= q->ids[i] >= 2;
        assert_true(!actions || q->ids[i] >= 2);
    }
    assert_int_equal(actions, q->n > 1);
    assert_that(q->ids[0], <, 2);
    assert_int_equal(q->m, cut ? n + 1 : q->n + 1);
    for (int i = 0; i < q->m; i++) assert_int_equal(q->answer[i], i < n ? expected[i] : i == n ? 2 : 0);
}

static void check_stack(const question *q) { check_stack_answer(q, 0); }
static void check_stack_cut(const question *q) { check_stack_answer(q, 1); }

/* ---- arithmetic: a parser */

typedef struct reader {
    const char *at;
    int x;
} reader;

static int read_sum(reader *r);

static int read_factor(reader *r)
{
    char c = *r->at++;
    if (c >= '0' && c <= '4') return c - '0';
    if (c == 'x') return r->x;
    if (c == '-') return 5 - read_factor(r);
    if (c != '(') fail_msg("\"%c\" where a number should be", c);
    int value = read_sum(r);
    assert_int_equal(*r->at, ')');
    r->at++;
    return value;
}

static int read_product(reader *r)
{
    int value = read_factor(r);
    while (*r->at == '*') {
        r->at++;
        value = value * read_factor(r) % 5;
    }
    return value;
}

static int read_sum(reader *r)
{
    int value = read_product(r);
    while (*r->at == '+' || *r->at == '-') {
        int sign = *r->at++ == '+' ? 1 : 4;
        value = (value + sign * read_product(r)) % 5;
    }
    return value % 5;
}

static void spell(const question *q, const char *alphabet, char *text)
{
    for (int i = 0; i < q->n; i++) text[i] = alphabet[q->ids[i]];
    text[q->n] = 0;
}

static int value_of(const char *text, int x, char end)
{
    reader r = {text, x};
    int value = read_sum(&r);
    assert_int_equal(*r.at, end);
    return value;
}

static void check_expression(const question *q)
{
    char text[256];
    spell(q, "01234+-*_", text);
    assert_int_equal(q->m, 1);
    assert_int_equal(q->n % 2, 1);
    assert_null(strchr(text, '_'));
    assert_int_equal(q->answer[0], value_of(text, 0, 0));
}

/* Brackets come in pairs, at least one pair for every operation. */
static void check_grammar(const char *text, int n)
{
    int open = 0, close = 0, binary = 0;
    for (int i = 0; i < n; i++) {
        open += text[i] == '(';
        close += text[i] == ')';
        binary += text[i] == '+' || text[i] == '*' || (text[i] == '-' && i > 0 && !strchr("(+-*", text[i - 1]));
    }
    assert_int_equal(open, close);
    assert_that(open, >=, binary);
}

static void check_brackets(const question *q)
{
    char text[256];
    spell(q, "01234+-*()?", text);
    check_grammar(text, q->n);
    assert_int_equal(q->m, 1);
    assert_int_equal(q->answer[0], value_of(text, 0, 0));
    assert_true(q->n < 3 || (text[0] == '(' && text[q->n - 1] == ')'));
}

/* Only the answer makes the equation true. */
static void check_equation(const question *q)
{
    char text[256];
    spell(q, "01234+-()x=", text);
    assert_int_equal(q->m, 1);
    if (q->n < 3) {
        assert_string_equal(text, q->n == 1 ? "0" : "00");
        assert_int_equal(q->answer[0], 0);
        return;
    }
    check_grammar(text, q->n - 2);
    assert_int_equal(text[q->n - 2], '=');
    assert_non_null(strchr(text, 'x'));
    assert_null(strchr(strchr(text, 'x') + 1, 'x'));
    for (int x = 0; x < 5; x++) assert_int_equal(value_of(text, x, '=') == text[q->n - 1] - '0', x == q->answer[0]);
}

/* ---- binary numbers, of 128 bits at most */

typedef unsigned __int128 number;

static number lowest_first(const int32_t *bits, int n)
{
    number x = 0;
    for (int i = 0; i < n; i++) {
        assert_true(bits[i] == 0 || bits[i] == 1);
        x += (number)bits[i] << i;
    }
    return x;
}

/* The number in the answer: ends at a 2, has no leading zero; only zeros, or nothing, may follow. */
static number answered(const question *q, int room, int cut)
{
    int n = 0;
    while (n < q->m && q->answer[n] != 2) n++;
    assert_that(n, <, q->m);
    assert_int_equal(q->m, cut ? n + 1 : room);
    for (int i = n + 1; i < q->m; i++) assert_int_equal(q->answer[i], 0);
    if (q->n > 2 && n > 1) assert_int_equal(q->answer[n - 1], 1);
    return lowest_first(q->answer, n);
}

static int operator_at(const question *q)
{
    int at = 0;
    while (at < q->n && q->ids[at] != 2) at++;
    assert_that(at, >=, 1);
    assert_that(at, <, q->n - 1);
    return at;
}

static void check_sum(const question *q, int cut)
{
    number said = answered(q, q->n + 1, cut);
    if (q->n <= 2) {
        assert_true(said == lowest_first(q->ids, q->n));
        assert_true(said < 3);
        return;
    }
    int at = operator_at(q);
    number a = lowest_first(q->ids, at), b = lowest_first(q->ids + at + 1, q->n - at - 1);
    assert_true(a > 0);
    assert_true(b > 0);
    assert_true(said == a + b);
}

static void check_times(const question *q, int cut)
{
    number said = answered(q, q->n, cut);
    if (q->n <= 2) {
        assert_true(said == 0);
        assert_true(q->answer[q->n - 1] == 2);
        return;
    }
    int at = operator_at(q);
    number a = lowest_first(q->ids, at), b = lowest_first(q->ids + at + 1, q->n - at - 1);
    assert_true(a > 0);
    assert_true(b > 0);
    assert_true(said == a * b);
}

static void check_addition(const question *q) { check_sum(q, 0); }
static void check_addition_cut(const question *q) { check_sum(q, 1); }
static void check_multiplication(const question *q) { check_times(q, 0); }
static void check_multiplication_cut(const question *q) { check_times(q, 1); }

static number highest_first(const int32_t *bits, int n)
{
    number x = 0;
    for (int i = 0; i < n; i++) x = 2 * x + (number)bits[i];
    return x;
}

static void check_root(const question *q)
{
    number x = highest_first(q->ids, q->n), root = highest_first(q->answer, q->m);
    assert_int_equal(q->m, (q->n + 1) / 2);
    assert_true(x > 0);
    assert_true(root * root <= x);
    assert_true(x < (root + 1) * (root + 1));
}

/* ---- all of them */

static void tasks_are_what_they_are_called(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        checker *train, *eval;
        int symbols, classes;
    } tasks[] = {
        {"even_pairs", check_pairs, check_pairs, 2, 2},
        {"modular_arithmetic", check_expression, check_expression, 9, 5},
        {"parity_check", check_parity, check_parity, 2, 2},
        {"cycle_navigation", check_walk, check_walk, 3, 5},
        {"modular_arithmetic_brackets", check_brackets, check_brackets, 11, 5},
        {"reverse_string", check_reversed, check_reversed, 2, 2},
        {"stack_manipulation", check_stack, check_stack_cut, 5, 3},
        {"solve_equation", check_equation, check_equation, 11, 5},
        {"duplicate_string", check_duplicated, check_duplicated, 2, 2},
        {"missing_duplicate_string", check_hidden, check_hidden, 4, 2},
        {"odds_first", check_odds_first, check_odds_first, 2, 2},
        {"binary_addition", check_addition, check_addition_cut, 3, 3},
        {"binary_multiplication", check_multiplication, check_multiplication_cut, 3, 3},
        {"compute_sqrt", check_root, check_root, 2, 2},
        {"bucket_sort", check_sorted, check_sorted, 5, 5},
    };
    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++) {
        mr_task *task = open_language("deepmind", tasks[i].name, 512, NULL);
        assert_int_equal(task->interface.inputs, tasks[i].symbols + 1);
        assert_int_equal(task->interface.outputs, tasks[i].classes);
        assert_int_equal(task->eval_batches, 60);
        mr_task_free(task);
        check_language("deepmind", tasks[i].name, tasks[i].train, tasks[i].eval);
    }
}

/* Every length from the first that is not trained on, 512 strings each; each length is a group. */
static void every_longer_length_is_scored(void **state)
{
    (void)state;
    mr_task *task = open_language("deepmind", "odds_first", 200, NULL);
    mr_batch batch = new_batch(task);
    assert_int_equal(task->eval_batches, 180);
    assert_int_equal(task->max_T, 224);
    for (int i = 0; i < task->eval_batches; i++) {
        task->type->eval_batch(task, i, &batch);
        assert_int_equal(batch.B, i % 3 == 2 ? 112 : 200);
        assert_int_equal(task->type->eval_group(task, i), i / 3);
        assert_int_equal(question_of(task, &batch, 0).n, 41 + i / 3);
    }
    mr_batch_free(&batch);
    mr_task_free(task);
}

/* ---- what is drawn within strings of one length */

enum { DRAWS = 8000 };
typedef void counter(const question *q, int *counts);

static void assert_drawn_uniformly(const char *name, int length, counter *count, int cells)
{
    char text[16];
    int counts[64] = {0};
    snprintf(text, sizeof text, "%d", length);
    mr_task *task = open_language("deepmind", name, DRAWS,
                                  (setting[]){{"eval-from", text}, {"eval-to", text}, {"eval-samples", "8000"}, {0}});
    mr_batch batch = new_batch(task);
    task->type->eval_batch(task, 0, &batch);
    assert_int_equal(batch.B, DRAWS);
    for (int row = 0; row < DRAWS; row++) {
        question q = question_of(task, &batch, row);
        count(&q, counts);
    }
    assert_uniform(counts, cells, name);
    mr_batch_free(&batch);
    mr_task_free(task);
}

static void count_height(const question *q, int *counts)
{
    int height = 0;
    while (q->ids[height] < 2) height++;
    counts[height - 1]++;
}

static void count_hidden(const question *q, int *counts)
{
    for (int i = 0; i < q->n; i++) counts[i] += q->ids[i] == 2;
}

static void count_actions(const question *q, int *counts)
{
    for (int i = 0; i < q->n; i++)
        if (q->ids[i] >= 2) counts[q->ids[i] - 2]++;
}

static void count_operator_place(const question *q, int *counts) { counts[operator_at(q) - 1]++; }
static void count_number(const question *q, int *counts) { counts[(int)highest_first(q->ids, q->n) - 1]++; }

static void count_left_of_five(const question *q, int *counts)
{
    if (operator_at(q) == 3) counts[(int)lowest_first(q->ids, 3) - 1]++;
}

static void count_operators(const question *q, int *counts)
{
    for (int i = 1; i < q->n; i += 2) counts[q->ids[i] - 5]++;
}

static void count_digits(const question *q, int *counts)
{
    for (int i = 0; i < q->n; i++)
        if (q->ids[i] < 5) counts[q->ids[i]]++;
}

/* (left operator right) with eight tokens: the left side has one to four. */
static void count_split(const question *q, int *counts)
{
    int depth = 0;
    for (int i = 0; i < q->n; i++) {
        depth += (q->ids[i] == 8) - (q->ids[i] == 9);
        if (depth == 1 && i > 1 && q->ids[i] >= 5 && q->ids[i] <= 7) {
            counts[i - 2]++;
            return;
        }
    }
}

/* (d ∘ d): the operator. */
static void count_middle(const question *q, int *counts) { counts[q->ids[2] - 5]++; }

/* (d ∘ d) = v: of the five tokens before "=", three lead to the first digit. */
static int first_digits;
static void count_solution(const question *q, int *counts)
{
    counts[q->answer[0]]++;
    first_digits += q->ids[1] == 9;
}

static void draws_within_strings_are_uniform(void **state)
{
    (void)state;
    assert_drawn_uniformly("stack_manipulation", 9, count_height, 8);
    assert_drawn_uniformly("stack_manipulation", 9, count_actions, 3);
    assert_drawn_uniformly("missing_duplicate_string", 10, count_hidden, 10);
    assert_drawn_uniformly("missing_duplicate_string", 11, count_hidden, 10);
    assert_drawn_uniformly("binary_addition", 10, count_operator_place, 8);
    assert_drawn_uniformly("binary_multiplication", 9, count_operator_place, 7);
    assert_drawn_uniformly("binary_multiplication", 9, count_left_of_five, 7);
    assert_drawn_uniformly("compute_sqrt", 5, count_number, 31);
    assert_drawn_uniformly("modular_arithmetic", 9, count_operators, 3);
    assert_drawn_uniformly("modular_arithmetic", 9, count_digits, 5);
    assert_drawn_uniformly("modular_arithmetic_brackets", 8, count_split, 4);
    assert_drawn_uniformly("modular_arithmetic_brackets", 5, count_middle, 3);
    assert_drawn_uniformly("modular_arithmetic_brackets", 11, count_digits, 5);
    first_digits = 0;
    assert_drawn_uniformly("solve_equation", 7, count_solution, 5);
    if (!(fabs(first_digits - 0.6 * DRAWS) <= 6 * sqrt(0.24 * DRAWS)))
        fail_msg("x is the first digit %d times of %d", first_digits, DRAWS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_are_what_they_are_called),
        cmocka_unit_test(every_longer_length_is_scored),
        cmocka_unit_test(draws_within_strings_are_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
