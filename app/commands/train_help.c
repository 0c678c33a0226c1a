/* Help about training. There are a hundred keys, so the overview shows those that most runs need. */
#include "commands/train_help.h"

#include "train/recipe.h"
#include "train/recipes.h"
#include "commands/commands.h"

#include <string.h>

static int sentence_length(const char *text)
{
    const size_t line = strcspn(text, "\n");
    for (size_t i = 1; i < line; i++)
        if (text[i] == ' ' && strchr(".?", text[i - 1])) return (int)i;
    return (int)line;
}

/* The first sentence of a recipe says what it is. */
static void print_recipes(FILE *to)
{
    fprintf(to, "\nrecipes (`minrnn train RECIPE --help` lists the keys of one):\n");
    for (int i = 0; mr_recipe_names[i]; i++) {
        const char *text = mr_recipe_texts[i] + strspn(mr_recipe_texts[i], "# ");
        fprintf(to, "  %-26s %.*s\n", mr_recipe_names[i], sentence_length(text), text);
    }
}

static void print_overview(const mr_args *args)
{
    static const char *const keys[] = {"out",     "resume", "init",       "data",  "steps",  "max-seconds", "batch",
                                       "context", "lr",     "eval-every", "mixer", "layers", "dim",         "dropout",
                                       "seed",    "device", "threads",    "quiet", "json",   NULL};
    const mr_task_type *text = mr_task_type_find("text");
    const mr_option *const tables[] = {args->flags, text->options, mr_train_table(), mr_model_table()};
    printf("%s", args->usage);
    print_recipes(stdout);
    printf("\nthe most used flags (`minrnn train --help all` lists all):\n");
    for (int i = 0; keys[i]; i++)
        for (int t = 0; t < 4 && !mr_args_print_option(stdout, tables[t], keys[i]); t++) continue;
    printf("\nexamples:\n%s", args->examples);
}

/* The command's own flags. Those that are keys of a recipe as well come with these. */
static void print_flags(const mr_option *flags)
{
    for (const mr_option *o = flags; o->key; o++)
        if (!mr_option_find(mr_train_table(), o->key)) mr_args_print_option(stdout, flags, o->key);
}

static void print_all(const mr_args *args)
{
    printf("%s\n", args->usage);
    print_flags(args->flags);
    print_recipes(stdout);
    printf("\nkeys of a recipe, as flags (default):\n[model]\n");
    mr_args_print_options(stdout, mr_model_table(), MR_OPT_DERIVED);
    printf("[train]\n");
    mr_args_print_options(stdout, mr_train_table(), MR_OPT_DERIVED);
    for (const mr_task_type *const *t = mr_task_types(); *t; t++) {
        printf("[task] %s: %s\n", (*t)->name, (*t)->summary);
        mr_args_print_options(stdout, (*t)->options, MR_OPT_DERIVED);
    }
    printf("\nexamples:\n%s", args->examples);
}

/* A call that trains the recipe as it is. A text has to be given. */
static void print_example(const mr_recipe *recipe, const char *name)
{
    char value[MR_TEXT_MAX] = "-";
    const char *task = recipe->task->type->name;
    const mr_option *data = mr_option_find(recipe->task->type->options, "data");
    if (data && (data->flags & MR_OPT_MANY)) mr_option_print(data, recipe->task->settings, value);
    printf("\nexamples:\n  minrnn train %s%s --out runs/%s\n", name, value[0] ? "" : " --data book.txt", task);
    printf("  minrnn train --out runs/%s --resume --steps %lld\n", task, 2 * (long long)mr_train_steps(&recipe->train));
}

static int print_recipe(const mr_args *args, const char *name)
{
    mr_recipe recipe;
    mr_error err;
    if (!mr_recipe_is_path(name) && !mr_recipe_is_known(name))
        return mr_unknown_name("train", "recipe", name, mr_recipe_names);
    if (mr_recipe_load(&recipe, name, &err)) return mr_report("train", &err);
    printf("usage: minrnn train %s --out DIR [--resume] [--key value …]\n\n", name);
    print_flags(args->flags);
    printf("\nkeys of the recipe, as flags (its value)\n[task] %s: %s\n", recipe.task->type->name,
           recipe.task->type->summary);
    mr_args_print_values(stdout, recipe.task->type->options, recipe.task->settings);
    for (int section = MR_SECTION_MODEL; section <= MR_SECTION_TRAIN; section++) {
        printf("[%s]\n", mr_section_names[section]);
        mr_args_print_values(stdout, mr_recipe_table(&recipe, section), mr_recipe_settings(&recipe, section));
    }
    print_example(&recipe, name);
    mr_recipe_free(&recipe);
    return MR_EXIT_DONE;
}

int mr_train_help(const mr_args *args, const char *topic)
{
    if (!topic) return print_overview(args), MR_EXIT_DONE;
    if (!strcmp(topic, "all")) return print_all(args), MR_EXIT_DONE;
    return print_recipe(args, topic);
}
