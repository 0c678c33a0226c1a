/* What the tests of safetensors share: one path, in a folder that must be empty again at the end. */
#ifndef MR_TESTS_SAFETENSORS_SUPPORT_H
#define MR_TESTS_SAFETENSORS_SUPPORT_H

#include "scratch.h"

static char path[MR_TEXT_MAX];

static inline int make_path(void **state)
{
    if (make_folder(state)) return -1;
    in_folder("x.safetensors", path);
    return 0;
}

/* Fails where another file was left. */
static inline int remove_path(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

#endif
