/* The short hash of a result's data, and whether a row was made from the same data. */
#include "paper/data_identity.h"

#include "core/mem.h"
#include "train/init.h"
#include "train/session.h"

#include <stdio.h>
#include <string.h>

char *mr_data_identity(char out[MR_DATA_IDENTITY], const mr_data_sums *sums)
{
    char all[3 * MR_SHA256_TEXT], sha[MR_SHA256_TEXT];
    const int other_test = strcmp(sums->train, sums->test) != 0;
    snprintf(sha, sizeof sha, "%s", sums->train);
    if (other_test || sums->init[0]) {
        const int size = snprintf(all, sizeof all, "%s%s%s%s%s", sums->train, other_test ? " " : "",
                                  other_test ? sums->test : "", sums->init[0] ? "+" : "", sums->init);
        mr_sha256_of(all, (size_t)size, sha);
    }
    snprintf(out, MR_DATA_IDENTITY, "%.*s", MR_DATA_IDENTITY - 1, sha[0] ? sha : MR_DATA_GENERATED);
    return out;
}

static int sum_file(const char *path, char sum[MR_SHA256_TEXT])
{
    unsigned char piece[1 << 14];
    mr_sha256 sha;
    FILE *file = fopen(path, "rbe");
    if (!file) return 0;
    mr_sha256_begin(&sha);
    for (size_t got; (got = fread(piece, 1, sizeof piece, file));) mr_sha256_add(&sha, piece, got);
    const int read = !ferror(file);
    fclose(file);
    if (read) mr_sha256_end(&sha, sum);
    return read;
}

int mr_data_sum_init(const mr_recipe *recipe, char sum[MR_SHA256_TEXT])
{
    char *path = NULL;
    sum[0] = 0;
    if (!recipe->train.init[0]) return 1;
    const int read = !mr_model_path(recipe->train.init, &path, NULL) && sum_file(path, sum);
    mr_free(path);
    return read;
}

/* What decides which files are read and how they are cut into sequences: the task with all its settings, the key of the
 * test, the model of `init`, the context. */
static int make_key(const mr_planned *run, const mr_recipe *recipe, char key[MR_SHA256_TEXT])
{
    mr_strbuf text = {0};
    char value[MR_TEXT_MAX];
    mr_strbuf_format(&text, "%s|%s|%s|%lld", recipe->task->type->name, run->test, recipe->train.init,
                     (long long)recipe->train.context);
    for (const mr_option *o = mr_recipe_table(recipe, MR_SECTION_TASK); o->key; o++)
        mr_strbuf_format(&text, "|%s", mr_option_print(o, mr_recipe_settings(recipe, MR_SECTION_TASK), value));
    if (!text.failed) mr_sha256_of(text.data, text.size, key);
    const int made = !text.failed;
    mr_strbuf_free(&text);
    return made;
}

/* Opens the task of the run as training does, with the vocabulary of the model of `init`, or with `test` as its test
 * does. The set is NULL where only the data is asked for. */
static int look_at(const mr_planned *run, const char *test, char sha[MR_SHA256_TEXT], mr_test_set *set)
{
    mr_recipe recipe;
    mr_error err;
    if (mr_planned_recipe(run, &recipe, &err)) return 0;
    int status = mr_init_open(&recipe, NULL, &err);
    if (!status) status = mr_settings_apply(&recipe, test, &err);
    if (!status) status = mr_recipe_open_task(&recipe, &err);
    if (!status) snprintf(sha, MR_SHA256_TEXT, "%s", recipe.task->data_sha256);
    if (!status && set) status = mr_test_set_of(recipe.task, set, &err);
    mr_recipe_free(&recipe);
    return !status;
}

mr_data_now mr_data_identity_now(mr_data_cache *cache, const mr_planned *run, const mr_recipe *recipe)
{
    char key[MR_SHA256_TEXT];
    mr_data_sums sums = {0};
    mr_data_now now = {0};
    mr_test_set set;
    if (!make_key(run, recipe, key)) return now;
    for (size_t i = 0; i < cache->count; i++)
        if (!strcmp(cache->entries[i].key, key)) return cache->entries[i].now;
    int known = look_at(run, "", sums.train, run->test[0] ? NULL : &set) && mr_data_sum_init(recipe, sums.init);
    memcpy(sums.test, sums.train, sizeof sums.test);
    if (known && run->test[0]) known = look_at(run, run->test, sums.test, &set);
    if (known) mr_data_identity(now.data, &sums);
    if (known) memcpy(now.test_set, set.identity, sizeof now.test_set);
    if (cache->count == MR_DATA_CACHE) return now;
    snprintf(cache->entries[cache->count].key, sizeof key, "%s", key);
    cache->entries[cache->count++].now = now;
    return now;
}
