/* The small JSON files beside weights: config.json (settings of a model) and the map of an index (which shard has a
 * tensor). Both are read as a list of keys with plain values. */
#ifndef MR_APP_WEIGHTS_SIDECAR_H
#define MR_APP_WEIGHTS_SIDECAR_H

#include "core/status.h"

#include <stddef.h>

typedef struct mr_sidecar_entry {
    const char *key;
    const char *value; /* numbers and words as they are written; NULL: a list or an object */
    int is_text;       /* it was in quotes */
} mr_sidecar_entry;

typedef struct mr_sidecar {
    char *room; /* all texts */
    mr_sidecar_entry *entries;
    int count, capacity;
} mr_sidecar;

/* Reads an object. `inside` NULL: its own entries; otherwise those of the object under that key, which must be there.
 * Refuses what is not JSON and keys that are there twice. `name` is the file's, for messages. */
int mr_sidecar_read(mr_sidecar *sidecar, const char *name, const char *text, size_t size, const char *inside,
                    mr_error *err);
void mr_sidecar_free(mr_sidecar *sidecar);

const mr_sidecar_entry *mr_sidecar_find(const mr_sidecar *sidecar, const char *key); /* or NULL */
/* The value of a key; NULL: it is missing, null, or no plain value. */
const char *mr_sidecar_value(const mr_sidecar *sidecar, const char *key);

#endif
