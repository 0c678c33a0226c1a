/* The log: what is written reads back bit for bit, a kill loses at most the last line, a
 * resumed run truncates the log. */
#include "core/mem.h"
#include "core/rng.h"
#include "train/runlog.h"
#include "core/strbuf.h"
#include "scratch.h"
#include "skip_because.h"

#include <locale.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char path[MR_TEXT_MAX];

static int choose_path(void **state)
{
    int status = make_folder(state);
    in_folder("log.jsonl", path);
    return status;
}

static mr_runlog *open_log(uint64_t offset)
{
    mr_runlog *log;
    mr_error err = {0};
    if (mr_runlog_open(folder, MR_LOG_JSONL, offset, 0, &log, &err)) fail_msg("%s", err.text);
    return log;
}

static int add_step(mr_runlog *log, int64_t step, double loss, double lr, double grad_norm, double tokens_per_s)
{
    const mr_log_entry entry = {.kind = MR_LOG_STEP,
                                .step = step,
                                .loss = loss,
                                .lr = lr,
                                .grad_norm = grad_norm,
                                .tokens_per_s = tokens_per_s,
                                .seconds = 0.5 * (double)step};
    return mr_runlog_add(log, &entry, NULL);
}

static int add_eval(mr_runlog *log, int64_t step, double loss, double accuracy, int best)
{
    const mr_log_entry entry = {.kind = MR_LOG_EVAL,
                                .step = step,
                                .loss = loss,
                                .accuracy = accuracy,
                                .best = best,
                                .seconds = 0.5 * (double)step};
    return mr_runlog_add(log, &entry, NULL);
}

static long long file_size(void)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (long long)st.st_size;
}

static void expect_content(const char *expected)
{
    char content[2048] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    content[fread(content, 1, sizeof content - 1, file)] = 0;
    fclose(file);
    assert_string_equal(content, expected);
}

static void append_raw(const char *text)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void lines_have_the_documented_form(void **unused)
{
    (void)unused;
    mr_runlog *log = open_log(0);
    assert_int_equal(add_step(log, 1, 2.5, 3e-4, 0.1, 51200), 0);
    assert_int_equal(add_step(log, 2, NAN, 1e-5, INFINITY, 0), 0);
    assert_int_equal(add_eval(log, 2, 1.0 / 3, 0.25, 1), 0);
    assert_int_equal(add_eval(log, 3, 2, NAN, 0), 0);
    assert_int_equal(mr_runlog_close(log, NULL), 0);
    expect_content(
        "{\"kind\":\"step\",\"step\":1,\"loss\":2.5,\"lr\":0.0003,\"grad_norm\":0.1,\"tokens_per_s\":51200,\"seconds\":"
        "0.5}\n"
        "{\"kind\":\"step\",\"step\":2,\"loss\":null,\"lr\":1e-05,\"grad_norm\":null,\"tokens_per_s\":0,\"seconds\":1}"
        "\n"
        "{\"kind\":\"eval\",\"step\":2,\"loss\":0.3333333333333333,\"accuracy\":0.25,\"best\":true,\"seconds\":1}\n"
        "{\"kind\":\"eval\",\"step\":3,\"loss\":2,\"best\":false,\"seconds\":1.5}\n");
}

static void steps_are_gathered(void **unused)
{
    (void)unused;
    mr_runlog *log = open_log(0);
    for (int i = 1; i <= 100; i++) assert_int_equal(add_step(log, i, 1, 1, 1, 1), 0);
    assert_int_equal(file_size(), 0);
    uint64_t offset = mr_runlog_offset(log);
    assert_that(offset, >, 0);
    assert_int_equal(mr_runlog_flush(log, 1, NULL), 0);
    assert_int_equal(file_size(), offset);
    assert_int_equal(mr_runlog_offset(log), offset);
    for (int i = 101; i <= 5000; i++) assert_int_equal(add_step(log, i, 1, 1, 1, 1), 0);
    assert_that(file_size(), >, (long long)offset); /* more than the buffer holds: some is written */
    offset = mr_runlog_offset(log);
    assert_int_equal(mr_runlog_close(log, NULL), 0);
    assert_int_equal(file_size(), offset);
}

static void resume_cuts_back(void **unused)
{
    (void)unused;
    mr_runlog *log = open_log(0);
    add_eval(log, 1, 1, NAN, 1);
    uint64_t checkpoint = mr_runlog_offset(log);
    add_eval(log, 2, 0.5, NAN, 1);
    assert_int_equal(mr_runlog_close(log, NULL), 0);
    append_raw("{\"kind\":\"st");
    log = open_log(checkpoint);
    assert_int_equal(mr_runlog_offset(log), checkpoint);
    add_eval(log, 2, 0.25, NAN, 1);
    assert_int_equal(mr_runlog_close(log, NULL), 0);
    expect_content("{\"kind\":\"eval\",\"step\":1,\"loss\":1,\"best\":true,\"seconds\":0.5}\n"
                   "{\"kind\":\"eval\",\"step\":2,\"loss\":0.25,\"best\":true,\"seconds\":1}\n");
    assert_int_equal(mr_runlog_close(open_log(0), NULL), 0); /* a new run starts empty */
    assert_int_equal(file_size(), 0);
}

static void another_log_is_refused(void **unused)
{
    (void)unused;
    mr_runlog *log = open_log(0);
    mr_error err = {0};
    add_eval(log, 1, 1, NAN, 1);
    uint64_t end = mr_runlog_offset(log);
    assert_int_equal(mr_runlog_close(log, NULL), 0);
    assert_int_equal(mr_runlog_open(folder, MR_LOG_BOTH, end + 1, 0, &log, &err), MR_EDATA);
    assert_says(&err, path);
    assert_null(log);
    assert_int_equal(mr_runlog_open(folder, MR_LOG_JSONL, end - 1, 0, &log, &err), MR_EDATA);
    assert_int_equal(file_size(), end); /* refused is untouched */
    assert_int_equal(mr_runlog_open("/nonexistent", MR_LOG_JSONL, 0, 0, &log, &err), MR_EIO);
    assert_int_equal(mr_runlog_close(NULL, &err), 0);
}

/* A limit on file sizes simulates a full disk: part is written, then an error is reported, and nothing is lost. */
static void full_disk_is_an_error(void **unused)
{
    (void)unused;
    struct rlimit was;
    mr_error err = {0};
    mr_runlog *log = open_log(0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    struct rlimit tight = {100, was.rlim_max};
    for (int i = 1; i <= 10; i++) assert_int_equal(add_eval(log, i, 1, NAN, 1), 0);
    uint64_t offset = mr_runlog_offset(log);

    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    int status = mr_runlog_flush(log, 0, &err);
    long long partly = file_size();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(status, MR_EIO);
    assert_says(&err, path);
    assert_int_equal(partly, 100);
    assert_int_equal(mr_runlog_offset(log), offset);

    assert_int_equal(mr_runlog_close(log, &err), 0); /* there is room again */
    mr_curve_point *points;
    size_t n;
    assert_int_equal(mr_runlog_read(path, &points, &n, &err), 0);
    assert_int_equal(n, 10);
    assert_int_equal(points[9].step, 10);
    mr_free(points);
}

static int same_double(double a, double b) { return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0; }

static void reads_back_bit_for_bit(void **unused)
{
    (void)unused;
    enum { N = 3000 };
    static double loss[N];
    mr_rng rng = mr_rng_at(1, 0, 0, 0);
    mr_runlog *log = open_log(0);
    for (int i = 0; i < N; i++) {
        uint64_t bits = (uint64_t)mr_rng_u32(&rng) << 32 | mr_rng_u32(&rng);
        memcpy(&loss[i], &bits, sizeof bits); /* any double there is */
        if (i % 3) assert_int_equal(add_step(log, i, loss[i], 1, 1, 1), 0);
        else assert_int_equal(add_eval(log, i, loss[i], i % 2 ? 0.5 : NAN, 0), 0);
    }
    assert_int_equal(mr_runlog_close(log, NULL), 0);
    mr_curve_point *points;
    size_t n;
    mr_error err = {0};
    if (mr_runlog_read(path, &points, &n, &err)) fail_msg("%s", err.text);
    assert_int_equal(n, N);
    for (int i = 0; i < N; i++) {
        double back = i % 3 ? points[i].train_loss : points[i].test_loss,
               other = i % 3 ? points[i].test_loss : points[i].train_loss;
        assert_int_equal(points[i].step, i);
        assert_true(same_double(back, isfinite(loss[i]) ? loss[i] : NAN));
        assert_true(isnan(other));
        assert_true(same_double(points[i].accuracy, i % 3 == 0 && i % 2 ? 0.5 : NAN));
    }
    mr_free(points);
}

static void torn_and_foreign_lines_are_skipped(void **unused)
{
    (void)unused;
    mr_curve_point *points;
    size_t n;
    mr_error err = {0};
    mr_runlog *log = open_log(0);
    add_eval(log, 7, 1.5, 0.75, 1);
    assert_int_equal(mr_runlog_close(log, NULL), 0);
    append_raw("{\"kind\":\"step\",\"step\":8,\"lo");
    assert_int_equal(mr_runlog_read(path, &points, &n, &err), 0);
    assert_int_equal(n, 1);
    assert_that(points[0].step, ==, 7);
    assert_that(points[0].test_loss, ==, 1.5);
    assert_that(points[0].accuracy, ==, 0.75);
    mr_free(points);
    append_raw("\n");
    assert_int_equal(mr_runlog_read(path, &points, &n, &err), MR_EFORMAT);
    assert_says(&err, "line 2");
    assert_null(points);
    assert_int_equal(mr_runlog_read("/nonexistent/log.jsonl", &points, &n, &err), MR_EIO);
}

/* Lines of other versions and strangers' lines: the known numbers are taken, damage is refused, nothing is overrun. */
static void lines_are_parsed_strictly(void **unused)
{
    (void)unused;
    static const struct {
        const char *line;
        int fine;
    } lines[] = {
        {"{\"kind\":\"step\",\"step\":1,\"loss\":2,\"lr\":3,\"grad_norm\":4,\"tokens_per_s\":5,\"seconds\":6}\n", 1},
        {"{\"kind\":\"step\",\"step\":1,\"loss\":2,\"lr\":3,\"grad_norm\":4,\"tokens_per_s\":5}\n", 1}, /* of 0.1 */
        {"{\"kind\":\"whole\",\"step\":7,\"loss\":2}\n", 1},
        {"{\"kind\":\"step\",\"step\":1,\"new\":true,\"newer\":2}\n", 1},
        {"{\"kind\":\"other\",\"step\":1}\n", 0},
        {"{\"kind\":\"step\",\"step\":-1}\n", 0},
        {"{\"kind\":\"step\"}\n", 0},
        {"{\"step\":1}\n", 0},
        {"{\"kind\":\"step\",\"step\":1", 0},
        {"[]\n", 0},
        {"\n", 0},
        {"", 0},
    };
    mr_log_entry e;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (mr_log_parse(lines[i].line, strlen(lines[i].line), &e) != lines[i].fine) fail_msg("line %zu", i);
    assert_int_equal(mr_log_parse(lines[0].line, strlen(lines[0].line), &e), 1);
    assert_true(e.loss == 2 && e.lr == 3 && e.grad_norm == 4 && e.tokens_per_s == 5 && e.seconds == 6);
    assert_int_equal(mr_log_parse(lines[1].line, strlen(lines[1].line), &e), 1);
    assert_true(isnan(e.seconds));
    char longer[2 * MR_LOG_LINE];
    memset(longer, ' ', sizeof longer);
    assert_int_equal(mr_log_parse(longer, sizeof longer, &e), 0);
}

/* The longest line that there can be is read back. */
static void longest_line_is_read_back(void **unused)
{
    (void)unused;
    const double wide = -2.2250738585072014e-308;
    const mr_log_entry entry = {.kind = MR_LOG_STEP,
                                .step = INT64_MAX,
                                .loss = wide,
                                .lr = wide,
                                .grad_norm = wide,
                                .tokens_per_s = wide,
                                .accuracy = wide,
                                .seconds = 1e300};
    mr_log_entry back;
    mr_strbuf line = {0};
    mr_log_json(&line, &entry);
    assert_true(line.size < MR_LOG_LINE);
    assert_non_null(strstr(line.data, "\"seconds\":1e+300}\n"));
    assert_int_equal(mr_log_parse(line.data, line.size, &back), 1);
    assert_true(back.step == INT64_MAX && back.loss == wide && back.grad_norm == wide);
    mr_strbuf_free(&line);
}

/* A final score of the whole test set is no point of the curve. */
static void whole_scores_are_no_points(void **unused)
{
    (void)unused;
    mr_curve_point *points;
    size_t n;
    mr_runlog *log = open_log(0);
    const mr_log_entry whole = {.kind = MR_LOG_WHOLE, .step = 4, .loss = 9, .accuracy = NAN};
    add_eval(log, 4, 1.5, NAN, 1);
    assert_int_equal(mr_runlog_add(log, &whole, NULL), 0);
    assert_int_equal(mr_runlog_close(log, NULL), 0);
    assert_int_equal(mr_runlog_read(path, &points, &n, NULL), 0);
    assert_int_equal(n, 1);
    assert_true(points[0].test_loss == 1.5);
    mr_free(points);
}

/* A host program may have chosen a decimal comma. */
static void a_point_in_every_locale(void **unused)
{
    (void)unused;
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) {
        skip_because("no locale with a decimal comma is installed");
    }
    char comma[8], tenth[MR_REAL_MAX], small[MR_REAL_MAX];
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    mr_real_print(tenth, 0.1, 0);
    mr_real_print(small, -1.25e-300, 0);
    setlocale(LC_NUMERIC, "C");
    assert_string_equal(comma, "0,5");
    assert_string_equal(tenth, "0.1");
    assert_string_equal(small, "-1.25e-300");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_the_documented_form),
        cmocka_unit_test(steps_are_gathered),
        cmocka_unit_test(resume_cuts_back),
        cmocka_unit_test(another_log_is_refused),
        cmocka_unit_test(full_disk_is_an_error),
        cmocka_unit_test(reads_back_bit_for_bit),
        cmocka_unit_test(torn_and_foreign_lines_are_skipped),
        cmocka_unit_test(lines_are_parsed_strictly),
        cmocka_unit_test(longest_line_is_read_back),
        cmocka_unit_test(whole_scores_are_no_points),
        cmocka_unit_test(a_point_in_every_locale),
    };
    return cmocka_run_group_tests(tests, choose_path, remove_folder);
}
