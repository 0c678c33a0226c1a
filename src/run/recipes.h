/* The recipes of the recipes folder, built into the library by scripts/embed.cmake. */
#ifndef MR_RUN_RECIPES_H
#define MR_RUN_RECIPES_H

extern const char *const mr_recipe_names[]; /* NULL-terminated */
extern const char *const mr_recipe_texts[];

#endif
