/* INI text as a list of lines: what recipes and experiments are read from. */
#ifndef MR_APP_TRAIN_INI_H
#define MR_APP_TRAIN_INI_H

#include "core/status.h"

#include <ini.h>

enum { MR_INI_SECTION = 48 };

typedef struct mr_ini_line {
    char section[MR_INI_SECTION], key[32], value[INI_MAX_LINE];
} mr_ini_line;

typedef struct mr_ini {
    mr_ini_line *list;
    int count, room, failed;
    char wrong[INI_MAX_LINE];         /* a key too long to be one of ours */
    char (*sections)[MR_INI_SECTION]; /* every header, in the order of the text, those of empty sections too */
    int headers;
} mr_ini;

/* In the order of the text. Refuses text that is not INI, and lines that libinih would cut; `name` is the file's, for
 * errors. */
int mr_ini_read(mr_ini *ini, const char *name, const char *text, mr_error *err);
void mr_ini_free(mr_ini *ini); /* also after a failure */

/* Does an earlier line give the same key in the same section? Most keys may come once: the error that says so, and
 * a check of all lines. */
int mr_ini_came_before(const mr_ini *ini, int line);
int mr_ini_twice(const mr_ini_line *line, const char *name, mr_error *err);
int mr_ini_check_once(const mr_ini *ini, const char *name, mr_error *err);

/* A key's value, the first one where there are several, or NULL. */
const char *mr_ini_find(const mr_ini *ini, const char *section, const char *key);

/* Is it the name of such a file, by its ending? */
int mr_ini_is_name(const char *name);

#endif
