/* Fuzzes recipes: bytes must be refused with a message; a recipe that can be printed must read back as the same. */
#include "input.h"
#include "train/recipe.h"

#include <string.h>

static void check_again(const mr_recipe *recipe)
{
    mr_strbuf first = {0}, second = {0};
    mr_recipe again;
    mr_error err = {0};
    if (!mr_recipe_print(recipe, &first, &err)) {
        must(!mr_recipe_load(&again, as_file((const uint8_t *)first.data, first.size), &err),
             "a printed recipe can be read");
        must(!mr_recipe_print(&again, &second, &err), "it can be printed again");
        must(first.size == second.size && !memcmp(first.data, second.data, first.size), "both prints are the same");
        mr_recipe_free(&again);
    } else must(err.text[0] != 0, "an error says why");
    mr_strbuf_free(&first);
    mr_strbuf_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr_recipe recipe;
    mr_error err = {0};
    if (mr_recipe_load(&recipe, as_file(data, size), &err)) {
        must(err.text[0] != 0 && !strchr(err.text, '\n'), "an error is one line");
        return 0;
    }
    check_again(&recipe);
    mr_recipe_free(&recipe);
    return 0;
}
