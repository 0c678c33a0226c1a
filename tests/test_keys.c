/* The keys of recipes: all have a row in the tables, and the pages that list some of them list the right ones. */
#include "core/mem.h"
#include "scratch.h"
#include "tasks/task.h"
#include "train/keys.h"

#include "minrnn_experimental.h"

/* A key without a slot would be dropped silently. */
static void every_key_of_the_library_has_its_slot(void **state)
{
    (void)state;
    for (int i = 0; mr_key_at(i); i++) {
        const mr_key *key = mr_key_at(i);
        const mr_option *table = key->flags & MR_KEY_LEARN ? mr_train_table() : mr_model_table();
        if (!mr_option_find(table, key->name))
            fail_msg("%s has no slot: raise the number of them in app/train/keys.h", key->name);
    }
}

/* Two rows with the same key, or with the same place in memory: the second one could not be set. */
static void every_row_has_its_own_key_and_place(void **state)
{
    (void)state;
    for (const mr_option *o = mr_train_table(); o->key; o++)
        for (const mr_option *other = o + 1; other->key; other++)
            if (!strcmp(o->key, other->key) || o->offset == other->offset)
                fail_msg("%s and %s are the same key, or share a field", o->key, other->key);
}

/* The text of a file of the source tree. */
static char *page(const char *name)
{
    char path[MR_TEXT_MAX], *text;
    size_t size;
    mr_error err = {0};
    snprintf(path, sizeof path, "%s/%s", MINRNN_SOURCE_DIR, name);
    if (mr_file_read(path, 1 << 20, &text, &size, &err)) fail_msg("%s", err.text);
    return text;
}

static int quotes(const char *text, const char *key)
{
    char quoted[96];
    snprintf(quoted, sizeof quoted, "`%s`", key);
    return strstr(text, quoted) != NULL;
}

/* How many keys of the table may change on resume. Each must be in the list, and no other one. */
static int keys_in_list(const mr_option *table, const char *list)
{
    int count = 0;
    for (const mr_option *o = table; o->key; o++) {
        const int may_change = (o->flags & MR_OPT_MAY_CHANGE) != 0;
        if (may_change && !quotes(list, o->key))
            fail_msg("docs/runs.md, \"These keys may change\": `%s` is missing", o->key);
        if (!may_change && quotes(list, o->key))
            fail_msg("docs/runs.md, \"These keys may change\": `%s` may not", o->key);
        count += may_change;
    }
    return count;
}

/* tests/cli_states.sh takes the list from the page, too. */
static void the_page_lists_the_keys_that_may_change(void **state)
{
    (void)state;
    char *text = page("docs/runs.md"), *list = strstr(text, "These keys may change:");
    assert_non_null(list);
    *strchr(list, '.') = 0;
    int count = keys_in_list(mr_train_table(), list) + keys_in_list(mr_model_table(), list), listed = 0;
    for (const mr_task_type *const *type = mr_task_types(); *type; type++) keys_in_list((*type)->options, list);
    for (const char *at = list; *at; at++) listed += *at == '`';
    assert_int_equal(listed, 2 * count);
    mr_free(text);
}

static void the_page_of_tasks_has_their_keys(void **state)
{
    (void)state;
    char *text = page("docs/tasks.md");
    for (const mr_task_type *const *type = mr_task_types(); *type; type++)
        for (const mr_option *o = (*type)->options; o->key; o++)
            if (!quotes(text, o->key)) fail_msg("docs/tasks.md does not name `%s` of %s", o->key, (*type)->name);
    mr_free(text);
}

/* What a second reader of model files must know. */
static void the_page_of_the_format_has_the_keys_of_models(void **state)
{
    (void)state;
    char *text = page("docs/format.md"), *reader = page("tests/reader.py");
    for (const mr_option *o = mr_model_table(); o->key; o++) {
        char name[80];
        snprintf(name, sizeof name, "model.%s", o->key);
        if (!quotes(text, name)) fail_msg("docs/format.md does not name `%s`", name);
        snprintf(name, sizeof name, "\"model.%s\"", o->key);
        if (!strstr(reader, name)) fail_msg("tests/reader.py does not know %s", name);
    }
    mr_free(reader);
    mr_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_the_library_has_its_slot), cmocka_unit_test(every_row_has_its_own_key_and_place),
        cmocka_unit_test(the_page_lists_the_keys_that_may_change), cmocka_unit_test(the_page_of_tasks_has_their_keys),
        cmocka_unit_test(the_page_of_the_format_has_the_keys_of_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
