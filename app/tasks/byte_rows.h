/* Rows of bytes of different lengths, each with a label, one after the other in memory. */
#ifndef MR_APP_TASKS_BYTE_ROWS_H
#define MR_APP_TASKS_BYTE_ROWS_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mr_byte_rows {
    uint32_t count;
    uint8_t *bytes;
    size_t *at;       /* [count] where each row starts */
    uint32_t *length; /* [count] */
    uint8_t *label;   /* [count] */
    /* a hash table, to find equal rows */
    uint32_t *table, table_size, room;
    size_t used, bytes_room;
} mr_byte_rows; /* starts zeroed */

/* Adds a row at the end; *index is its number, or that of an equal row (labels aside); then nothing is added. *added
 * tells which it was. 0 or MR_ENOMEM. */
int mr_byte_rows_add(mr_byte_rows *rows, const uint8_t *bytes, uint32_t length, uint8_t label, uint32_t *index,
                     int *added);
/* The same without looking for an equal row. */
int mr_byte_rows_append(mr_byte_rows *rows, const uint8_t *bytes, uint32_t length, uint8_t label);
void mr_byte_rows_free(mr_byte_rows *rows);

#endif
