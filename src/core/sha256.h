/* SHA-256 (FIPS 180-4), to check that a data file is the published one, or the one that a run started with. */
#ifndef MR_CORE_SHA256_H
#define MR_CORE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define MR_SHA256_TEXT 65 /* 64 hexadecimal digits and the terminator */

typedef struct mr_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64];
} mr_sha256;

void mr_sha256_begin(mr_sha256 *sha);
void mr_sha256_add(mr_sha256 *sha, const void *data, size_t size);
void mr_sha256_end(mr_sha256 *sha, char text[MR_SHA256_TEXT]); /* lower-case hexadecimal */

/* All of the above for one block of bytes. */
void mr_sha256_of(const void *data, size_t size, char text[MR_SHA256_TEXT]);

#endif
