#include "core/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t round_up(size_t bytes) { return (bytes + MR_ALIGN - 1) & ~(size_t)(MR_ALIGN - 1); }

void *mr_alloc(size_t count, size_t size)
{
    if (size && count > (SIZE_MAX - MR_ALIGN) / size) return NULL;
    size_t bytes = round_up(count * size);
    void *p = aligned_alloc(MR_ALIGN, bytes ? bytes : MR_ALIGN);
    if (p) memset(p, 0, bytes ? bytes : MR_ALIGN);
    return p;
}

void mr_free(void *p) { free(p); }

char *mr_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = mr_alloc(n, 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

void *mr_arena_take(mr_arena *arena, size_t bytes)
{
    size_t at = arena->used;
    arena->used += round_up(bytes);
    return arena->base ? arena->base + at : NULL;
}
