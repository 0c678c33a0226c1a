/* A writer of protobuf's wire format: fields with numbers are added to a message, one after another. It knows nothing
 * of schemas. A message inside another one is written by itself first.
 *
 *     mr_proto point = {0}, line = {0};
 *     mr_proto_whole(&point, 1, 7);
 *     mr_proto_message(&line, 2, &point);
 *
 * Start from {0}. When memory runs out, `failed` is set and everything added later is dropped, so one check at the end
 * is enough. */
#ifndef MR_APP_WEIGHTS_PROTOBUF_H
#define MR_APP_WEIGHTS_PROTOBUF_H

#include <stddef.h>
#include <stdint.h>

typedef struct mr_proto {
    char *data; /* NULL while empty */
    size_t size, room;
    int failed;
} mr_proto;

void mr_proto_whole(mr_proto *message, int field, int64_t value); /* int32, int64, enum: a varint */
void mr_proto_text(mr_proto *message, int field, const char *text);
void mr_proto_bytes(mr_proto *message, int field, const void *data, size_t size);
/* Adds a message as a field and empties it, so that it can be filled again. */
void mr_proto_message(mr_proto *message, int field, mr_proto *inner);

/* The beginning of a field of `size` bytes, which the caller adds by mr_proto_add, in pieces or all at once, or writes
 * after it. */
void mr_proto_begin(mr_proto *message, int field, size_t size);
void mr_proto_add(mr_proto *message, const void *data, size_t size);

void mr_proto_free(mr_proto *message);

#endif
