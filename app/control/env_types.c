/* The three environments in numbers. */
#include "control/env.h"

#include <string.h>

const mr_env_type mr_env_types[] = {
    {"hopper", "Hopper", "hopper.xml", 11, 3, -20.272305, 3234.3, 3600, 1.25},
    {"halfcheetah", "HalfCheetah", "half_cheetah.xml", 17, 6, -280.178953, 12135.0, 12000, 0},
    {"walker2d", "Walker2d", "walker2d.xml", 17, 6, 1.629008, 4592.3, 5000, 1.25},
    {0}};

const mr_env_type *mr_env_type_find(const char *name)
{
    for (const mr_env_type *t = mr_env_types; t->name; t++)
        if (!strcmp(t->name, name)) return t;
    return NULL;
}

double mr_env_score(const mr_env_type *type, double reward)
{
    return 100 * (reward - type->random) / (type->expert - type->random);
}
