/* Memory: one allocator for the host, and the arena by which a plan is first counted and then laid out. */
#ifndef MR_CORE_MEM_H
#define MR_CORE_MEM_H

#include "minrnn.h"

#include <stddef.h>

#define MR_ALIGN 64
#define MR_ARENA_ALIGN 256 /* a GPU reads rows that straddle its cache lines a third slower */

/* count·size bytes, zeroed, 64-byte aligned; NULL when that overflows, is more than the machine has, or is not to be
 * had. Freed by mr_free. */
void *mr_alloc(size_t count, size_t size);
void mr_free(void *p);

/* The same by an allocator of the caller's; NULL, or one without functions, is mr_alloc and mr_free. */
void *mr_alloc_by(const mr_allocator *by, size_t count, size_t size);
void mr_free_by(const mr_allocator *by, void *p);

char *mr_strdup(const char *s);

/* The bytes that this process could at most use: what the machine has, or a container's limit. Systems promise more
 * than they have and kill whoever takes them at their word, so what is larger is refused before it is asked for. */
size_t mr_memory_total(void);

/* A plan runs twice over the same code: with base NULL it only counts, with base set it hands out addresses. The
 * base may be device memory: the arena never touches what it hands out. A plan for several shapes takes the same
 * pieces in the same order for each; with `largest` (one number a piece, 0 at first) a piece has the size of the
 * largest that was ever asked for in its place. */
typedef struct mr_arena {
    char *base;
    size_t used, pieces, *largest;
} mr_arena;

void *mr_arena_take(mr_arena *arena, size_t bytes);

#endif
