/* The short hash of a result's data, and whether a row was made from the same data. */
#include "paper/data_identity.h"

#include <stdio.h>
#include <string.h>

char *mr_data_identity(char out[MR_DATA_IDENTITY], const char *train, const char *test)
{
    char both[2 * MR_SHA256_TEXT], sha[MR_SHA256_TEXT];
    snprintf(sha, sizeof sha, "%s", train);
    if (strcmp(train, test)) {
        const int size = snprintf(both, sizeof both, "%s %s", train, test);
        mr_sha256_of(both, (size_t)size, sha);
    }
    snprintf(out, MR_DATA_IDENTITY, "%.*s", MR_DATA_IDENTITY - 1, sha[0] ? sha : MR_DATA_GENERATED);
    return out;
}

/* What decides which data is read: the task with all its settings, and the key of the test. */
static int make_key(const mr_planned *run, const mr_recipe *recipe, char key[MR_SHA256_TEXT])
{
    mr_strbuf text = {0};
    char value[MR_TEXT_MAX];
    mr_strbuf_format(&text, "%s|%s", recipe->task->type->name, run->test);
    for (const mr_option *o = mr_recipe_table(recipe, MR_SECTION_TASK); o->key; o++)
        mr_strbuf_format(&text, "|%s", mr_option_print(o, mr_recipe_settings(recipe, MR_SECTION_TASK), value));
    if (!text.failed) mr_sha256_of(text.data, text.size, key);
    const int made = !text.failed;
    mr_strbuf_free(&text);
    return made;
}

/* Opens the task of the run as training does, or with `test` as its test does. */
static int read_sha256(const mr_planned *run, const char *test, char sha[MR_SHA256_TEXT])
{
    mr_recipe recipe;
    char key[sizeof run->test];
    mr_error err;
    snprintf(key, sizeof key, "%s", test);
    const char *value = mr_setting_value(key);
    if (mr_planned_recipe(run, &recipe, &err)) return 0;
    int status = key[0] ? mr_recipe_set(&recipe, key, value, &err) : 0;
    if (!status) status = mr_recipe_open_task(&recipe, &err);
    if (!status) snprintf(sha, MR_SHA256_TEXT, "%s", recipe.task->data_sha256);
    mr_recipe_free(&recipe);
    return !status;
}

void mr_data_identity_now(mr_data_cache *cache, const mr_planned *run, const mr_recipe *recipe,
                          char out[MR_DATA_IDENTITY])
{
    char key[MR_SHA256_TEXT], train[MR_SHA256_TEXT], test[MR_SHA256_TEXT];
    out[0] = 0;
    if (!make_key(run, recipe, key)) return;
    for (size_t i = 0; i < cache->count; i++)
        if (!strcmp(cache->entries[i].key, key)) {
            snprintf(out, MR_DATA_IDENTITY, "%s", cache->entries[i].identity);
            return;
        }
    int known = read_sha256(run, "", train);
    if (known && run->test[0]) known = read_sha256(run, run->test, test);
    if (known) mr_data_identity(out, train, run->test[0] ? test : train);
    if (cache->count == MR_DATA_CACHE) return;
    snprintf(cache->entries[cache->count].key, sizeof key, "%s", key);
    snprintf(cache->entries[cache->count++].identity, MR_DATA_IDENTITY, "%s", out);
}
