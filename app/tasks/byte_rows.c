/* Rows of bytes in one array, with a hash table that finds equal rows. */
#include "tasks/byte_rows.h"

#include "core/mem.h"

#include <string.h>

/* A larger copy of an array, or NULL with the old one as it was. */
static void *enlarged(void *old, size_t used, size_t room, size_t size)
{
    void *larger = mr_alloc(room, size);
    if (larger && used) memcpy(larger, old, used * size);
    if (larger) mr_free(old);
    return larger;
}

static int make_room(mr_byte_rows *r, size_t bytes)
{
    if (r->used + bytes > r->bytes_room) {
        size_t room = 2 * r->bytes_room + bytes + 4096;
        uint8_t *larger = enlarged(r->bytes, r->used, room, 1);
        if (!larger) return MR_ENOMEM;
        r->bytes = larger;
        r->bytes_room = room;
    }
    if (r->count < r->room) return 0;
    if (r->room > INT32_MAX / 4) return MR_ENOMEM;
    uint32_t room = 2 * r->room + 64;
    size_t *at = enlarged(r->at, r->count, room, sizeof *at);
    if (at) r->at = at;
    uint32_t *length = enlarged(r->length, r->count, room, sizeof *length);
    if (length) r->length = length;
    uint8_t *label = enlarged(r->label, r->count, room, 1);
    if (label) r->label = label;
    if (!at || !length || !label) return MR_ENOMEM;
    r->room = room;
    return 0;
}

int mr_byte_rows_append(mr_byte_rows *r, const uint8_t *bytes, uint32_t length, uint8_t label)
{
    int status = make_room(r, length);
    if (status) return status;
    if (length) memcpy(r->bytes + r->used, bytes, length);
    r->at[r->count] = r->used;
    r->length[r->count] = length;
    r->label[r->count++] = label;
    r->used += length;
    return 0;
}

/* FNV-1a, eight bytes at a time. */
static uint64_t hash(const uint8_t *bytes, size_t n)
{
    uint64_t h = 0xcbf29ce484222325u ^ n, word;
    for (; n >= 8; n -= 8, bytes += 8) {
        memcpy(&word, bytes, 8);
        h = (h ^ word) * 0x100000001b3u;
        h ^= h >> 29;
    }
    for (; n; n--) h = (h ^ *bytes++) * 0x100000001b3u;
    return h ^ h >> 32;
}

/* The cell of the table where the row is, or where it would be. */
static uint32_t *cell(const mr_byte_rows *r, const uint8_t *bytes, uint32_t length)
{
    uint32_t at = (uint32_t)hash(bytes, length) & (r->table_size - 1);
    for (;; at = (at + 1) & (r->table_size - 1)) {
        uint32_t known = r->table[at];
        if (!known || (r->length[known - 1] == length && !memcmp(r->bytes + r->at[known - 1], bytes, length)))
            return &r->table[at];
    }
}

static int enlarge_table(mr_byte_rows *r)
{
    uint32_t size = r->table_size ? 2 * r->table_size : 256, *old = r->table, *table = mr_alloc(size, sizeof *table);
    if (!table) return MR_ENOMEM;
    r->table = table;
    r->table_size = size;
    for (uint32_t i = 0; i < r->count; i++) *cell(r, r->bytes + r->at[i], r->length[i]) = i + 1;
    mr_free(old);
    return 0;
}

int mr_byte_rows_add(mr_byte_rows *r, const uint8_t *bytes, uint32_t length, uint8_t label, uint32_t *index, int *added)
{
    if (2 * (uint64_t)r->count >= r->table_size && enlarge_table(r)) return MR_ENOMEM;
    uint32_t *place = cell(r, bytes, length);
    *added = *place == 0;
    if (*added && mr_byte_rows_append(r, bytes, length, label)) return MR_ENOMEM;
    if (*added) *place = r->count;
    *index = *place - 1;
    return 0;
}

void mr_byte_rows_free(mr_byte_rows *r)
{
    mr_free(r->bytes);
    mr_free(r->at);
    mr_free(r->length);
    mr_free(r->label);
    mr_free(r->table);
    memset(r, 0, sizeof *r);
}
