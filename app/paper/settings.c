/* Settings as text: added, tidied up, applied to a recipe. */
#include "paper/settings.h"

#include <stdio.h>
#include <string.h>

char *mr_setting_value(char *setting)
{
    char *at = setting + strcspn(setting, "=");
    if (*at) *at++ = 0;
    return at;
}

/* The setting of that key among the first `n` bytes, or NULL. */
static char *find(char *settings, size_t n, const char *key, size_t length)
{
    for (char *at = settings; at < settings + n; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (at < settings + n && !strncmp(at, key, length) && at[length] == '=') return at;
    }
    return NULL;
}

/* Takes one setting away, and the blank after it. */
static void drop(char *at)
{
    char *rest = at + strcspn(at, " ");
    rest += strspn(rest, " ");
    memmove(at, rest, strlen(rest) + 1);
}

int mr_settings_add(char *settings, size_t room, const char *key, const char *value)
{
    char *old = find(settings, strlen(settings), key, strlen(key));
    if (old) drop(old);
    size_t used = strlen(settings);
    while (used && settings[used - 1] == ' ') settings[--used] = 0;
    const int n = snprintf(settings + used, room - used, "%s%s=%s", used ? " " : "", key, value);
    return n >= 0 && (size_t)n < room - used;
}

void mr_settings_tidy(char *settings)
{
    for (char *at = settings; *at;) {
        const size_t length = strcspn(at, "= "), setting = strcspn(at, " ");
        char *rest = at + setting;
        if (at[length] == '=' && find(rest, strlen(rest), at, length)) drop(at);
        else at = rest + strspn(rest, " ");
    }
}

int mr_settings_apply(mr_recipe *recipe, const char *settings, mr_error *err)
{
    char copy[1024], *rest = copy;
    int status = 0;
    snprintf(copy, sizeof copy, "%s", settings);
    for (char *key = strtok_r(copy, " ", &rest); !status && key; key = strtok_r(NULL, " ", &rest)) {
        const char *value = mr_setting_value(key);
        if (!mr_option_find(recipe->task->type->options, key))
            status = mr_fail(err, MR_EINVAL, "unknown key %.60s; the test takes keys of the task %s alone", key,
                             recipe->task->type->name);
        else status = mr_recipe_set(recipe, key, value, err);
    }
    return status;
}
