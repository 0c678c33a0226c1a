/* A temporary folder for a test, and a check of error messages. */
#ifndef MR_TESTS_SCRATCH_H
#define MR_TESTS_SCRATCH_H

#include "assert_that.h"
#include "core/file.h"
#include "core/options.h"
#include "core/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[200];

static inline void assert_says(const mr_error *err, const char *part)
{
    if (!strstr(err->text, part)) fail_msg("the error \"%s\" does not say \"%s\"", err->text, part);
}

static inline void in_folder(const char *name, char path[MR_TEXT_MAX])
{
    snprintf(path, MR_TEXT_MAX, "%s/%s", folder, name);
}

static inline void write_file(const char *name, const void *data, size_t size, char path[MR_TEXT_MAX])
{
    in_folder(name, path);
    assert_int_equal(mr_file_replace(path, data, size, NULL), 0);
}

/* Setup and teardown of a group of tests. The folder lies under TMPDIR where there is one. */
static inline int make_folder(void **state)
{
    const char *parent = getenv("TMPDIR");
    (void)state;
    snprintf(folder, sizeof folder, "%s/minrnn-test-XXXXXX", parent && *parent ? parent : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    char command[sizeof folder + 16];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 && access(folder, F_OK) ? 0 : -1;
}

#endif
