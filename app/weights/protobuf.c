/* A writer of protobuf's wire format (protobuf.h). */
#include "weights/protobuf.h"

#include "core/mem.h"

#include <string.h>

/* How a field's value is stored: the lower three bits of its tag. */
enum { VARINT = 0, LENGTH_DELIMITED = 2 };

static int make_room(mr_proto *message, size_t more)
{
    if (message->failed) return 0;
    if (message->room - message->size >= more) return 1;
    const size_t room = message->size + more + message->size / 2 + 64;
    char *data = room > more ? mr_alloc(room, 1) : NULL;
    if (!data) {
        message->failed = 1;
        return 0;
    }
    if (message->size) memcpy(data, message->data, message->size);
    mr_free(message->data);
    message->data = data;
    message->room = room;
    return 1;
}

void mr_proto_add(mr_proto *message, const void *data, size_t size)
{
    if (!size || !make_room(message, size)) return;
    memcpy(message->data + message->size, data, size);
    message->size += size;
}

/* Seven bits a byte, the lowest first; the highest bit says that more follow. */
static void add_varint(mr_proto *message, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;
    for (; value >= 128; value >>= 7) bytes[count++] = (unsigned char)(value | 128);
    bytes[count++] = (unsigned char)value;
    mr_proto_add(message, bytes, count);
}

static void add_tag(mr_proto *message, int field, int kind)
{
    add_varint(message, (uint64_t)field << 3 | (uint64_t)kind);
}

void mr_proto_whole(mr_proto *message, int field, int64_t value)
{
    add_tag(message, field, VARINT);
    add_varint(message, (uint64_t)value);
}

void mr_proto_begin(mr_proto *message, int field, size_t size)
{
    add_tag(message, field, LENGTH_DELIMITED);
    add_varint(message, size);
}

void mr_proto_bytes(mr_proto *message, int field, const void *data, size_t size)
{
    mr_proto_begin(message, field, size);
    mr_proto_add(message, data, size);
}

void mr_proto_text(mr_proto *message, int field, const char *text)
{
    mr_proto_bytes(message, field, text, strlen(text));
}

void mr_proto_message(mr_proto *message, int field, mr_proto *inner)
{
    mr_proto_bytes(message, field, inner->data, inner->size);
    message->failed |= inner->failed;
    inner->size = 0;
}

void mr_proto_free(mr_proto *message)
{
    mr_free(message->data);
    *message = (mr_proto){0};
}
