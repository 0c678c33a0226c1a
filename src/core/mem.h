/* Host memory: one allocator, and the arena that first counts a plan's bytes and then hands them out. */
#ifndef MR_CORE_MEM_H
#define MR_CORE_MEM_H

#include "minrnn.h"

#include <stddef.h>

#define MR_ALIGN 64
#define MR_ARENA_ALIGN 256 /* a GPU reads rows that straddle its cache lines a third slower */

/* Allocates count·size bytes, zeroed and 64-byte aligned. NULL when the product overflows, exceeds mr_memory_total(),
 * or the system has no memory. Free with mr_free. */
void *mr_alloc(size_t count, size_t size);
void mr_free(void *p);

/* The same through a caller's allocator. NULL, or one without functions, means mr_alloc and mr_free. */
void *mr_alloc_with(const mr_allocator *allocator, size_t count, size_t size);
void mr_free_with(const mr_allocator *allocator, void *p);

char *mr_strdup(const char *s); /* NULL: out of memory; free with mr_free */

/* The most bytes this process can use: the machine's memory or its container's limit. Many systems promise more than
 * they have and kill the process that then uses it, so larger requests are refused up front. */
size_t mr_memory_total(void);

/* Hands out pieces of one block. The same code runs twice: with base NULL it only counts bytes, with base set it
 * returns addresses. base may be device memory, because the arena never touches it. A plan for several shapes takes
 * the same pieces in the same order for each shape; `largest` (one number per piece, 0 at first, or NULL) then gives
 * each piece the largest size asked for in its place. */
typedef struct mr_arena {
    char *base;
    size_t used, pieces, *largest;
} mr_arena;

void *mr_arena_take(mr_arena *arena, size_t bytes);

#endif
