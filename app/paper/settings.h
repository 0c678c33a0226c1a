/* Settings of a run as one text, "recipe=NAME key=value …", a key at most once. */
#ifndef MR_APP_PAPER_SETTINGS_H
#define MR_APP_PAPER_SETTINGS_H

#include "train/recipe.h"

/* Cuts "key=value" in two and returns the value; "" if there is none. */
char *mr_setting_value(char *setting);

/* Adds the setting at the end, and takes away an earlier one of that key. 0: there is no room. */
int mr_settings_add(char *settings, size_t room, const char *key, const char *value);

/* Of a key that is given several times only the last one stays: it is the one that holds. Rows of early versions have
 * all of them. */
void mr_settings_tidy(char *settings);

/* Sets them one after another in a recipe: keys of its task alone. */
int mr_settings_apply(mr_recipe *recipe, const char *settings, mr_error *err);

#endif
