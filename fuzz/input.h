/* What the fuzz targets share: checks that abort, and the input as a named file. */
#ifndef MR_FUZZ_INPUT_H
#define MR_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts when a law does not hold, which libFuzzer reports as a finding. */
static inline void must(int holds, const char *law)
{
    if (holds) return;
    fprintf(stderr, "does not hold: %s\n", law);
    abort();
}

/* Writes the input to a file in memory, the same one for every input, and returns its path. */
static inline const char *as_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("input", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    must(fd >= 0 && !ftruncate(fd, 0) && pwrite(fd, data, size, 0) == (ssize_t)size, "the input is a file");
    return path;
}

#endif
