/* Host memory: aligned and zeroed blocks, from the C library or from the caller's allocator, and the arena. */
#include "core/mem.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

static size_t round_up(size_t bytes) { return (bytes + MR_ALIGN - 1) & ~(size_t)(MR_ALIGN - 1); }

/* Large blocks go into huge pages where the system has them, because rows that are far apart would each need a page
 * table entry. */
enum { HUGE_PAGE = 2 << 20, LARGE = 2 * HUGE_PAGE };
enum { DOUBTFUL = 1 << 30 }; /* smaller requests are left to the system, larger ones are compared with its memory */

static void *alloc_large(size_t bytes)
{
    if (bytes > SIZE_MAX - HUGE_PAGE) return NULL;
    bytes = (bytes + HUGE_PAGE - 1) & ~(size_t)(HUGE_PAGE - 1);
    void *p = aligned_alloc(HUGE_PAGE, bytes);
#if defined(MADV_HUGEPAGE)
    if (p) (void)madvise(p, bytes, MADV_HUGEPAGE); /* advisory: failure is harmless */
#endif
    return p;
}

#if defined(__linux__)
/* The memory limit of this container (cgroup v2 or v1); SIZE_MAX: none. */
static size_t container_limit(void)
{
    static const char *const files[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    unsigned long long limit = 0;
    for (int i = 0; i < 2 && !limit; i++) {
        FILE *file = fopen(files[i], "re");
        if (file && fscanf(file, "%llu", &limit) != 1) limit = 0; /* "max" */
        if (file) fclose(file);
    }
    return limit && limit < SIZE_MAX ? (size_t)limit : SIZE_MAX;
}
#else
static size_t container_limit(void) { return SIZE_MAX; }
#endif

/* Physical memory in bytes; SIZE_MAX: unknown. */
static size_t machine_memory(void)
{
#if defined(_SC_PHYS_PAGES)
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    if (pages > 0 && page > 0) return (size_t)pages * (size_t)page;
#endif
    return SIZE_MAX;
}

size_t mr_memory_total(void)
{
    size_t machine = machine_memory(), container = container_limit();
    return container < machine ? container : machine;
}

void *mr_alloc(size_t count, size_t size)
{
    if (size && count > (SIZE_MAX - MR_ALIGN) / size) return NULL;
    size_t bytes = round_up(count * size);
    if (!bytes) bytes = MR_ALIGN;
    if (bytes >= DOUBTFUL && bytes > mr_memory_total()) return NULL;
    void *p = bytes < LARGE ? aligned_alloc(MR_ALIGN, bytes) : alloc_large(bytes);
    if (p) memset(p, 0, bytes);
    return p;
}

void mr_free(void *p) { free(p); }

/* Aligns a block of the caller's allocator. The block's own address is stored just before the address returned. */
void *mr_alloc_with(const mr_allocator *allocator, size_t count, size_t size)
{
    if (!allocator || !allocator->alloc) return mr_alloc(count, size);
    if (size && count > (SIZE_MAX - 2 * MR_ALIGN) / size) return NULL;
    const size_t bytes = count * size;
    char *block = allocator->alloc(allocator->user, bytes + 2 * MR_ALIGN);
    if (!block) return NULL;
    char *p = block + 2 * MR_ALIGN - 1 - ((uintptr_t)block + 2 * MR_ALIGN - 1) % MR_ALIGN;
    memcpy(p - sizeof block, &block, sizeof block);
    return memset(p, 0, bytes);
}

void mr_free_with(const mr_allocator *allocator, void *p)
{
    void *block;
    if (!allocator || !allocator->alloc) {
        mr_free(p);
        return;
    }
    if (!p) return;
    memcpy(&block, (char *)p - sizeof block, sizeof block);
    allocator->release(allocator->user, block);
}

char *mr_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = mr_alloc(n, 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

void *mr_arena_take(mr_arena *arena, size_t bytes)
{
    size_t at = arena->used, *largest = arena->largest ? &arena->largest[arena->pieces] : NULL;
    arena->pieces++;
    if (largest && *largest < bytes) *largest = bytes;
    if (largest) bytes = *largest;
    arena->used += (bytes + MR_ARENA_ALIGN - 1) / MR_ARENA_ALIGN * MR_ARENA_ALIGN;
    return arena->base ? arena->base + at : NULL;
}
