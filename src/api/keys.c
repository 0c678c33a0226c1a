/* The public list of keys: one row for each option of a model's configuration and of its training. */
#include "api/api.h"

#include <string.h>

/* A public row is a copy of an option's row, so both must number their types and flags alike. */
_Static_assert((int)MR_KEY_INT == (int)MR_OPT_INT && (int)MR_KEY_TEXT == (int)MR_OPT_TEXT,
               "the types of keys and options");
_Static_assert((int)MR_KEY_DERIVED == (int)MR_OPT_DERIVED && (int)MR_KEY_MAY_CHANGE == (int)MR_OPT_MAY_CHANGE &&
                   (int)MR_KEY_SPARSE == (int)MR_OPT_SPARSE,
               "the flags of keys and options");

enum { MOST = 96 };

static mr_key rows[MOST];
static int count;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void add_rows(const mr_option *table, unsigned flags)
{
    for (const mr_option *o = table; o->key && count < MOST; o++)
        rows[count++] = (mr_key){.name = o->key,
                                 .type = (mr_key_type)o->type,
                                 .fallback = o->fallback,
                                 .min = o->min,
                                 .max = o->max,
                                 .choices = o->choices,
                                 .help = o->help,
                                 .flags = o->flags | flags};
}

/* Runs once. The result is always the same, because the tables are constant. */
static void make_rows(void)
{
    add_rows(mr_config_options, 0);
    add_rows(mr_learn_table, MR_KEY_LEARN);
}

const mr_key *mr_key_at(int index)
{
    pthread_once(&once, make_rows);
    return index >= 0 && index < count ? &rows[index] : NULL;
}

const mr_key *mr_key_find(const char *name)
{
    for (int i = 0; mr_key_at(i); i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

const char *mr_key_nearest(const char *name)
{
    const mr_option *const tables[] = {mr_config_options, mr_learn_table, NULL};
    return mr_option_nearest(tables, name);
}
