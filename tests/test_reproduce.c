/* Experiments: the files of recipes/experiments are consistent, the paper's numbers are found,
 * rows read back unchanged. */
#include "core/file.h"
#include "core/mem.h"
#include "train/recipes.h"
#include "paper/data_identity.h"
#include "paper/report.h"
#include "paper/reproduce.h"
#include "paper/settings.h"
#include "scratch.h"

#include <math.h>

static char path[MR_TEXT_MAX];

static int choose_path(void **state)
{
    int status = make_folder(state);
    in_folder("rows.json", path);
    return status;
}

static void expect_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12)) fail_msg("%.17g is not %.17g", value, expected);
}

static void expect_paper(const char *table, const char *row, const char *column, double value, double std)
{
    mr_paper_cell cell;
    if (!mr_paper_find(table, row, column, &cell)) fail_msg("%s | %s | %s: not found", table, row, column);
    expect_near(cell.value, value);
    if (isnan(std)) assert_true(isnan(cell.std));
    else expect_near(cell.std, std);
}

static void the_papers_numbers_are_found(void **unused)
{
    (void)unused;
    mr_paper_cell cell;
    expect_paper("selective_copy_layers", "2", "minGRU", 96.8, 3.2);
    expect_paper("selective_copy_comparison", "Mamba S6", "accuracy", 99.8, NAN);
    expect_paper("selective_copy_comparison", "Mamba S4", "accuracy", 56.4, NAN);
    expect_paper("selective_copy_comparison", "minLSTM", "accuracy", 96.0, 2.8);
    expect_paper("shakespeare", "Transformer", "test_loss", 1.547, NAN);
    expect_paper("shakespeare", "Transformer", "steps", 2000, NAN);
    expect_paper("efficiency", "minLSTM 4096", "speedup_over_traditional", 1361, NAN);
    expect_paper("parameters", "minLSTM / LSTM", "4", 15, NAN);
    assert_int_equal(mr_paper_find("efficiency", "Mamba 512", "speedup_over_traditional", &cell), 0);
    assert_int_equal(mr_paper_find("shakespeare", "Trans", "test_loss", &cell), 0);
    assert_int_equal(mr_paper_find("shakespeare", "minGRU", "loss", &cell), 0);
    assert_int_equal(mr_paper_find("nothing", "minGRU", "test_loss", &cell), 0);
    assert_true(isnan(cell.value));
}

static char *identity(char out[MR_DATA_IDENTITY], const char *train, const char *test, const char *init)
{
    mr_data_sums sums;
    snprintf(sums.train, sizeof sums.train, "%s", train);
    snprintf(sums.test, sizeof sums.test, "%s", test);
    snprintf(sums.init, sizeof sums.init, "%s", init);
    return mr_data_identity(out, &sums);
}

/* Sixteen digits of the data's hash; the test's data counts too, where it is other data, and so does the model that the
 * run starts from. */
static void data_is_named_by_its_hash(void **unused)
{
    (void)unused;
    char a[MR_DATA_IDENTITY], b[MR_DATA_IDENTITY];
    static const char one[] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
                      two[] = "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210";
    assert_string_equal(identity(a, one, one, ""), "0123456789abcdef");
    assert_string_equal(identity(a, "", "", ""), MR_DATA_GENERATED);
    identity(a, one, two, "");
    assert_int_equal(strlen(a), 16);
    assert_int_equal(strspn(a, "0123456789abcdef"), 16);
    assert_string_not_equal(a, "0123456789abcdef");
    assert_string_not_equal(a, identity(b, two, one, ""));
    assert_string_not_equal(a, identity(b, one, "", ""));
    assert_string_not_equal(a, identity(b, one, one, two));
    assert_string_not_equal(a, identity(b, one, two, one));
    assert_string_not_equal(identity(a, "", "", one), MR_DATA_GENERATED);
    assert_string_not_equal(a, identity(b, "", "", two));
}

/* Every run of every experiment has a recipe that takes its settings. */
static void every_planned_run_has_a_recipe(void **unused)
{
    (void)unused;
    size_t seen = 0;
    for (int i = 0; mr_experiment_names[i]; i++)
        for (int profile = 0; profile < MR_PROFILES; profile++) {
            mr_error err = {0};
            mr_experiment e;
            mr_planned *runs = NULL;
            size_t count = 0;
            mr_plan_options options = {.profile = (mr_profile)profile, .seeds = 2, .first_seed = 1};
            if (mr_experiment_load(&e, mr_experiment_names[i], &err) ||
                mr_experiment_plan(&e, &options, &runs, &count, &err))
                fail_msg("%s", err.text);
            assert_that(count, >=, mr_experiment_has_profile(&e, options.profile) ? 4 : 0);
            assert_that(count % 2, ==, 0);
            for (size_t k = 0; k < count; k++, seen++) {
                mr_recipe recipe;
                assert_int_equal(runs[k].seed, k < count / 2 ? 1 : 2);
                if (mr_planned_recipe(&runs[k], &recipe, &err))
                    fail_msg("%s, %s/%s: %s", e.name, runs[k].row, runs[k].column, err.text);
                if (mr_recipe_check_model(&recipe, &err))
                    fail_msg("%s, %s/%s: %s", e.name, runs[k].row, runs[k].column, err.text);
                assert_int_equal(mr_train_seed(&recipe.train), runs[k].seed);
                if (profile == MR_PROFILE_SEARCH) assert_true(isnan(runs[k].paper.value) && !runs[k].test[0]);
                mr_recipe_free(&recipe);
            }
            mr_free(runs);
            mr_experiment_free(&e);
        }
    assert_that(seen, >, 500);
}

static mr_planned *plan(const char *name, const mr_plan_options *options, size_t *count)
{
    mr_error err = {0};
    mr_experiment e;
    mr_planned *runs = NULL;
    if (mr_experiment_load(&e, name, &err) || mr_experiment_plan(&e, options, &runs, count, &err))
        fail_msg("%s", err.text);
    mr_experiment_free(&e);
    return runs;
}

/* The value of one key of a run's recipe. */
static const char *value_of(const mr_planned *run, const char *key, char out[MR_TEXT_MAX])
{
    mr_recipe recipe;
    mr_error err = {0};
    out[0] = 0;
    if (mr_planned_recipe(run, &recipe, &err)) fail_msg("%s", err.text);
    for (int section = 0; section < MR_SECTIONS; section++) {
        const mr_option *o = mr_option_find(mr_recipe_table(&recipe, section), key);
        if (o) mr_option_print(o, mr_recipe_settings(&recipe, section), out);
    }
    mr_recipe_free(&recipe);
    return out;
}

/* --as-paper: the paper's steps, no growing sequences, no augmentation, no early end, nothing chosen. */
static void the_papers_settings_are_its_own(void **unused)
{
    (void)unused;
    static const struct {
        const char *name, *steps;
    } papers[] = {{"chomsky", "500000"}, {"selective-copy", "400000"}, {"shakespeare", "5000"},
                  {"listops", "250000"}, {"image", "250000"},          {"retrieval", "250000"}};
    static const char *const off[][2] = {
        {"start-length", "0"},      {"flip", "no"},          {"shift", "0"}, {"patience", "0"},
        {"transition", "positive"}, {"gate-init", "default"}};
    char value[MR_TEXT_MAX];
    for (size_t i = 0; i < sizeof papers / sizeof *papers; i++) {
        size_t count;
        mr_planned *runs = plan(papers[i].name, &(mr_plan_options){.profile = MR_PROFILE_PAPER, .seeds = 1}, &count);
        for (size_t k = 0; k < count; k++) {
            if (strstr(runs[k].row, "signed")) continue; /* not in the paper */
            assert_string_equal(value_of(&runs[k], "steps", value), papers[i].steps);
            assert_int_equal(runs[k].tried, 1);
            for (size_t n = 0; n < sizeof off / sizeof *off; n++)
                if (*value_of(&runs[k], off[n][0], value)) assert_string_equal(value, off[n][1]);
        }
        mr_free(runs);
    }
}

static void plan_options_choose_runs(void **unused)
{
    (void)unused;
    size_t count;
    mr_planned *runs = plan("selective-copy", &(mr_plan_options){.seeds = 1}, &count);
    assert_int_equal(count, 2 * 3 + 6); /* two models with three columns, six with one */
    mr_free(runs);
    runs = plan("selective-copy", &(mr_plan_options){.seeds = 1, .only = "minGRU/2", .steps = 77}, &count);
    assert_int_equal(count, 1);
    assert_string_equal(runs->row, "minGRU");
    assert_string_equal(runs->column, "2 layers");
    assert_string_equal(runs->settings, "recipe=selective-copy layers=2 mixer=mingru steps=77");
    expect_near(runs->paper.value, 96.8);
    mr_free(runs);
    runs = plan("selective-copy", &(mr_plan_options){.seeds = 1, .only = "=GRU/3 layers"}, &count); /* not minGRU's */
    assert_int_equal(count, 1);
    assert_string_equal(runs->row, "GRU");
    mr_free(runs);
    runs = plan("selective-copy", &(mr_plan_options){.seeds = 2, .first_seed = 7, .only = "*/3 layers"}, &count);
    assert_int_equal(count, 16);
    assert_that(runs[0].seed, ==, 7);
    assert_that(runs[7].seed, ==, 7);
    assert_that(runs[8].seed, ==, 8);
    mr_free(runs);
    /* the warm-up follows the steps */
    runs = plan("listops", &(mr_plan_options){.profile = MR_PROFILE_PAPER, .seeds = 1, .steps = 400}, &count);
    mr_recipe recipe;
    assert_int_equal(mr_planned_recipe(runs, &recipe, NULL), 0);
    char warmup[MR_TEXT_MAX];
    assert_string_equal(mr_option_print(mr_option_find(mr_train_table(), "warmup"), &recipe.train, warmup), "40");
    assert_string_equal(runs->test, "split=test");
    mr_recipe_free(&recipe);
    mr_free(runs);
    /* settings of a profile for a single row */
    static const struct {
        mr_profile profile;
        const char *row;
        int counts;
    } cells[] = {{MR_PROFILE_OURS, "minLSTM/majority", 1},
                 {MR_PROFILE_PAPER, "minLSTM/majority", 0},
                 {MR_PROFILE_OURS, "LSTM/majority", 0}};
    for (int i = 0; i < 3; i++) {
        runs =
            plan("chomsky", &(mr_plan_options){.profile = cells[i].profile, .seeds = 1, .only = cells[i].row}, &count);
        for (size_t k = 0; k < count; k++)
            if (!strncmp(runs[k].row, cells[i].row, strlen(runs[k].row)))
                assert_int_equal(strstr(runs[k].settings, "normalize-gates=no") != NULL, cells[i].counts);
        assert_that(count, >=, 1);
        mr_free(runs);
    }
}

static void settings_have_each_key_once(void **unused)
{
    (void)unused;
    char text[32] = "";
    assert_true(mr_settings_add(text, sizeof text, "a", "1"));
    assert_true(mr_settings_add(text, sizeof text, "ab", "2"));
    assert_true(mr_settings_add(text, sizeof text, "a", "3")); /* not the start of ab */
    assert_string_equal(text, "ab=2 a=3");
    assert_true(mr_settings_add(text, sizeof text, "a", "4")); /* the last one leaves no blank */
    assert_string_equal(text, "ab=2 a=4");
    assert_true(mr_settings_add(text, sizeof text, "ba", "5"));
    assert_true(mr_settings_add(text, sizeof text, "a", "6"));
    assert_string_equal(text, "ab=2 ba=5 a=6");
    assert_true(mr_settings_add(text, sizeof text, "c", "012345678901234")); /* 31 characters */
    assert_string_equal(text, "ab=2 ba=5 a=6 c=012345678901234");
    assert_false(mr_settings_add(text, sizeof text, "c", "0123456789012345"));
}

/* One line of the table below: the settings of the only run. */
static void expect_settings(const char *name, mr_profile profile, const char *only, const char *settings, int tried)
{
    size_t count;
    mr_planned *runs = plan(name, &(mr_plan_options){.profile = profile, .seeds = 1, .only = only}, &count);
    assert_int_equal(count, 1);
    assert_string_equal(runs->settings, settings);
    assert_int_equal(runs->tried, tried);
    mr_free(runs);
}

/* What is said later holds: all runs, a column, a row, a cell, the setting that is used of those tried, quick. */
static void sections_follow_one_another(void **unused)
{
    (void)unused;
    static const char text[] =
        "[experiment]\nsummary = s\nscore = accuracy\nrecipe = chomsky-parity\nbudget = steps\n"
        "test = split=test\nsearch = eval-lengths=9\n"
        "[ours]\nsteps = 1\n[ours /c]\nsteps = 2\nlr = 1e-2\n"
        "[ours A]\nuse = x\nlr = 1e-3\ndim = 8\n[ours A/c]\nuse = y\ndim = 16\n"
        "[try A: x]\nclip = 2\n[try A/c: y]\nclip = 3\ndim = 24\n"
        "[try A/c: z]\nclip = 4\n[as-paper]\n[as-paper A]\nsteps = 7\n[quick]\nsteps = 5\nclip = 6\n"
        "[row A]\nmixer = mingru\nlr = 1e-4\n[row B]\nmixer = gru\n[column c]\n[column d]\n";
    char name[MR_TEXT_MAX];
    write_file("plan.ini", text, strlen(text), name);
#define START "recipe=chomsky-parity steps=2 mixer=mingru lr=1e-3 "
    expect_settings(name, MR_PROFILE_OURS, "=A/c", START "clip=3 dim=24", 3);
    expect_settings(name, MR_PROFILE_OURS, "=A/d", "recipe=chomsky-parity steps=1 mixer=mingru lr=1e-3 dim=8 clip=2",
                    1);
    expect_settings(name, MR_PROFILE_OURS, "=B/c", "recipe=chomsky-parity steps=2 lr=1e-2 mixer=gru", 1);
    expect_settings(name, MR_PROFILE_QUICK, "=A/c", "recipe=chomsky-parity mixer=mingru lr=1e-3 dim=24 steps=5 clip=6",
                    3);
    expect_settings(name, MR_PROFILE_PAPER, "=A/c", "recipe=chomsky-parity mixer=mingru lr=1e-4 steps=7", 1);
    expect_settings(name, MR_PROFILE_SEARCH, "=A/d",
                    "recipe=chomsky-parity steps=1 mixer=mingru lr=1e-3 dim=8 search=x clip=2 eval-lengths=9", 1);
    size_t count;
    mr_planned *runs = plan(name, &(mr_plan_options){.profile = MR_PROFILE_SEARCH, .seeds = 1, .only = "=A/c"}, &count);
    assert_int_equal(count, 3);
    assert_string_equal(runs[2].settings, START "dim=16 search=z clip=4 eval-lengths=9");
    assert_string_equal(runs[2].setting, "z");
    assert_string_equal(runs[2].test, "");
    mr_free(runs);
}

static mr_row make_row(const char *label, int seed, double score)
{
    mr_row row = {0};
    mr_row_set_text(&row, "experiment", "selective-copy");
    mr_row_set_text(&row, "profile", "ours");
    mr_row_set_text(&row, "row", label);
    mr_row_set_text(&row, "column", "3 layers");
    mr_row_set_text(&row, "kind", "cpu");
    mr_row_set_text(&row, "dtype", "f32");
    mr_row_set_text(&row, "settings", "a=\"b\"\\ \x01 é");
    mr_row_set(&row, "seed", seed);
    mr_row_set(&row, "score", score);
    return row;
}

static void put(mr_rows *rows, mr_row row) { assert_int_equal(mr_rows_put(rows, &row, NULL), 0); }

static void rows_read_back(void **unused)
{
    (void)unused;
    mr_rows rows = {0}, back = {0};
    mr_error err = {0};
    mr_row row = make_row("minGRU", 1, 0.1 + 0.2);
    row.curve = mr_alloc(2, sizeof *row.curve);
    row.points = 2;
    row.curve[0] = (mr_curve_point){7, 1.0 / 3, NAN, NAN};
    row.curve[1] = (mr_curve_point){9, NAN, 2.5, 0.75};
    put(&rows, row);
    put(&rows, make_row("minGRU", 2, 5));
    put(&rows, make_row("minGRU", 2, 6)); /* the same run: replaces the row */
    assert_int_equal(rows.count, 2);
    if (mr_rows_write(&rows, path, "selective-copy", &err) || mr_rows_read(&back, path, &err)) fail_msg("%s", err.text);
    assert_int_equal(back.count, 2);
    assert_that(mr_row_number(&back.list[0], "score"), ==, 0.1 + 0.2);
    assert_string_equal(mr_row_text(&back.list[0], "settings"), "a=\"b\"\\ \x01 é");
    assert_int_equal(back.list[0].points, 2);
    assert_that(back.list[0].curve[0].train_loss, ==, 1.0 / 3);
    assert_true(isnan(back.list[0].curve[0].test_loss));
    assert_that(back.list[0].curve[1].step, ==, 9);
    assert_that(back.list[0].curve[1].accuracy, ==, 0.75);
    assert_that(mr_row_number(&back.list[1], "score"), ==, 6);
    assert_ptr_equal(mr_rows_find(&back, &rows.list[1]), &back.list[1]);
    mr_rows_free(&back);
    mr_rows_free(&rows);
}

#define WHOLE "\"experiment\": \"x\", \"row\": \"r\", \"column\": \"c\", \"kind\": \"cpu\", \"dtype\": \"f32\""

static void malformed_rows_are_refused(void **unused)
{
    (void)unused;
    static const char *const wrong[] = {"",
                                        "[]",
                                        "{}",
                                        "{\"rows\": 3}",
                                        "{\"rows\": [3]}",
                                        "{\"rows\": [{}]}",
                                        "{\"rows\": [{" WHOLE "}]",
                                        "{\"rows\": [{" WHOLE ", \"a\": [1]}]}",
                                        "{\"rows\": [{" WHOLE ", \"curve\": [[1, 2, 3]]}]}",
                                        "{\"rows\": [{" WHOLE ", \"curve\": [[-1, 2, 3, 4]]}]}",
                                        "{\"rows\": [{" WHOLE ", \"a_key_of_more_than_thirty_one_characters\": 1}]}",
                                        "{\"rows\": [{" WHOLE ", \"seed\": 1}]}",
                                        "{\"rows\": [{" WHOLE ", \"seed\": 1, \"score\": \"2\"}]}",
                                        "{\"rows\": [{" WHOLE ", \"seed\": 1.5, \"score\": 2}]}",
                                        "{\"rows\": [{" WHOLE ", \"seed\": \"1\", \"score\": 2}]}",
                                        "{\"rows\": [{" WHOLE ", \"score\": 2}]}",
                                        "{\"rows\": [{\"experiment\": \"x\", \"row\": \"r\"}]}",
                                        "{\"rows\": []} x",
                                        "{\"other\": [], \"rows\": []}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        mr_rows rows = {0};
        assert_int_equal(mr_file_replace(path, wrong[i], strlen(wrong[i]), NULL), 0);
        if (mr_rows_read(&rows, path, NULL) != MR_EFORMAT) fail_msg("taken: %s", wrong[i]);
        mr_rows_free(&rows);
    }
    static const char *const right[] = {"{\"rows\": [{" WHOLE "}]}",
                                        "{\"rows\": [{" WHOLE ", \"seed\": 1, \"score\": 2}]}",
                                        "{\"rows\": [{" WHOLE ", \"seed\": 1, \"failed\": \"diverged\"}]}"};
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
        mr_rows rows = {0};
        assert_int_equal(mr_file_replace(path, right[i], strlen(right[i]), NULL), 0);
        if (mr_rows_read(&rows, path, NULL)) fail_msg("not taken: %s", right[i]);
        mr_rows_free(&rows);
    }
}

static void seeds_are_grouped(void **unused)
{
    (void)unused;
    mr_experiment e;
    mr_rows rows = {0};
    mr_group *groups;
    size_t count;
    put(&rows, make_row("minLSTM", 1, 50));
    put(&rows, make_row("minGRU", 1, 90));
    put(&rows, make_row("minGRU", 3, 96));
    mr_row diverged = make_row("minGRU", 2, NAN);
    mr_row_set_text(&diverged, "failed", "step 7");
    put(&rows, diverged);
    assert_int_equal(mr_experiment_load(&e, "selective-copy", NULL), 0);
    assert_int_equal(mr_report_groups(&e, &rows, &groups, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_string_equal(mr_row_text(groups[0].first, "row"), "minGRU"); /* the order of the file */
    assert_int_equal(groups[0].seeds, 3);
    assert_int_equal(groups[0].failed, 1);
    expect_near(groups[0].mean, 93);
    expect_near(groups[0].std, sqrt(18));
    expect_near(groups[1].mean, 50);
    assert_true(isnan(groups[1].std));
    mr_free(groups);
    mr_experiment_free(&e);
    mr_rows_free(&rows);
}

static void numbers_are_rounded_for_people(void **unused)
{
    (void)unused;
    char text[64];
    assert_string_equal(mr_report_number(text, 96.81234, 3.21, 4), "96.81 ± 3.2");
    assert_string_equal(mr_report_number(text, 1.5, NAN, 4), "1.5");
    assert_string_equal(mr_report_number(text, NAN, 1, 4), "");
    assert_string_equal(mr_report_time(text, 61), "1:01");
    assert_string_equal(mr_report_time(text, 3 * 3600 + 125), "3:02:05");
    assert_string_equal(mr_report_time(text, NAN), "0:00");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_papers_numbers_are_found),   cmocka_unit_test(every_planned_run_has_a_recipe),
        cmocka_unit_test(plan_options_choose_runs),       cmocka_unit_test(the_papers_settings_are_its_own),
        cmocka_unit_test(data_is_named_by_its_hash),      cmocka_unit_test(rows_read_back),
        cmocka_unit_test(malformed_rows_are_refused),     cmocka_unit_test(seeds_are_grouped),
        cmocka_unit_test(numbers_are_rounded_for_people), cmocka_unit_test(settings_have_each_key_once),
        cmocka_unit_test(sections_follow_one_another)};
    return cmocka_run_group_tests(tests, choose_path, remove_folder);
}
