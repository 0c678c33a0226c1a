/* Files that are built into the command by scripts/embed.cmake: names and texts, NULL-terminated, each pair in the same
 * order. */
#ifndef MR_APP_TRAIN_RECIPES_H
#define MR_APP_TRAIN_RECIPES_H

extern const char *const mr_recipe_names[]; /* of recipes/ */
extern const char *const mr_recipe_texts[];
extern const char *const mr_experiment_names[]; /* of recipes/experiments/ */
extern const char *const mr_experiment_texts[];
extern const char *const mr_paper_names[]; /* of data/: one, the paper's tables as JSON */
extern const char *const mr_paper_texts[];

#endif
