/* Pairs of documents in the form of the AAN files of Long Range Arena: a line is label, id1, id2, text1, text2
 * separated by tabs. */
#ifndef MR_APP_TASKS_AAN_H
#define MR_APP_TASKS_AAN_H

#include "core/sha256.h"
#include "tasks/byte_rows.h"

typedef struct mr_pairs {
    uint32_t count, room;
    uint32_t *document; /* [count, 2] rows of the documents */
    uint32_t *length;   /* [count] of the longer one */
    uint8_t *label;     /* [count] 0 or 1 */
} mr_pairs;             /* starts zeroed */

/* Adds the pairs of a file, which is read in pieces; of each text the first `longest` bytes go to `documents`, where
 * equal ones are stored once (each paper is part of many pairs). Adds what it reads to sha. */
int mr_aan_read(const char *path, uint32_t longest, mr_byte_rows *documents, mr_pairs *pairs, mr_sha256 *sha,
                mr_error *err);
void mr_pairs_free(mr_pairs *pairs);

#endif
