/* Event files of TensorBoard, written byte by byte: the format is small, and its library is not. */
#include "train/event_file.h"

#include "core/file.h"
#include "core/mem.h"
#include "train/append_file.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME_START "events.out.tfevents."

struct mr_event_file {
    mr_append_file *file;
};

/* ---- records ---- */

/* CRC-32C (Castagnoli), bit by bit: an entry has some two hundred bytes. */
static uint32_t crc32c(const uint8_t *bytes, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    return ~crc;
}

static uint32_t masked_crc(const uint8_t *bytes, size_t n)
{
    const uint32_t crc = crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void put_whole(uint8_t *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (uint8_t)(value >> 8 * i);
}

/* ---- messages ---- */

enum { MESSAGE_BYTES = 512 };

/* A message of Protocol Buffers. Only numbers and names from this file are put into one: less than half of its room. */
typedef struct message {
    uint8_t bytes[MESSAGE_BYTES];
    size_t size;
} message;

static void add_bytes(message *m, const void *bytes, size_t n)
{
    memcpy(m->bytes + m->size, bytes, n);
    m->size += n;
}

static void add_varint(message *m, uint64_t value)
{
    uint8_t byte;
    do {
        byte = (uint8_t)((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
        add_bytes(m, &byte, 1);
        value >>= 7;
    } while (value);
}

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */

static void add_key(message *m, int field, int wire) { add_varint(m, (uint64_t)(field << 3 | wire)); }

static void add_block(message *m, int field, const void *bytes, size_t n)
{
    add_key(m, field, BYTES);
    add_varint(m, n);
    add_bytes(m, bytes, n);
}

/* Event: wall_time 1, step 2, file_version 3, summary 5, session_log 7. */
static message new_event(int64_t step)
{
    message event = {.size = 0};
    struct timespec now;
    uint64_t bits;
    uint8_t wall_time[8];
    timespec_get(&now, TIME_UTC);
    const double seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &seconds, sizeof bits);
    put_whole(wall_time, bits, 8);
    add_key(&event, 1, FIXED64);
    add_bytes(&event, wall_time, sizeof wall_time);
    add_key(&event, 2, VARINT);
    add_varint(&event, (uint64_t)step);
    return event;
}

/* Summary: value 1, which has a tag 1 and a simple_value 2. Numbers that are not known are left out. */
static void add_scalar(message *summary, const char *tag, double value)
{
    message scalar = {.size = 0};
    const float number = (float)value;
    uint32_t bits;
    uint8_t fixed[4];
    if (!isfinite(value)) return;
    memcpy(&bits, &number, sizeof bits);
    put_whole(fixed, bits, 4);
    add_block(&scalar, 1, tag, strlen(tag));
    add_key(&scalar, 2, FIXED32);
    add_bytes(&scalar, fixed, sizeof fixed);
    add_block(summary, 1, scalar.bytes, scalar.size);
}

static int write_record(mr_append_file *file, const message *event, mr_error *err)
{
    uint8_t record[8 + 4 + MESSAGE_BYTES + 4];
    put_whole(record, event->size, 8);
    put_whole(record + 8, masked_crc(record, 8), 4);
    memcpy(record + 12, event->bytes, event->size);
    put_whole(record + 12 + event->size, masked_crc(event->bytes, event->size), 4);
    return mr_append(file, record, event->size + 16, err);
}

/* ---- the file ---- */

/* One more than the highest that the folder has: TensorBoard reads the files of a folder in the order of their
 * names. */
static long next_number(const char *dir)
{
    long highest = 0;
    DIR *folder = opendir(dir);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (strncmp(entry->d_name, NAME_START, strlen(NAME_START))) continue;
        const long number = strtol(entry->d_name + strlen(NAME_START), NULL, 10);
        if (number > highest && number < 999999999) highest = number;
    }
    if (folder) closedir(folder);
    return highest + 1;
}

static int begin(mr_event_file *f, int64_t step, mr_error *err)
{
    static const uint8_t start[] = {1 << 3 | VARINT, 1}; /* SessionLog: status 1 = START 1 */
    message version = new_event(0), session = new_event(step + 1);
    add_block(&version, 3, "brain.Event:2", strlen("brain.Event:2"));
    add_block(&session, 7, start, sizeof start);
    int status = write_record(f->file, &version, err);
    return status ? status : write_record(f->file, &session, err);
}

int mr_event_file_open(const char *dir, int64_t step, mr_event_file **out, mr_error *err)
{
    char name[64];
    snprintf(name, sizeof name, NAME_START "%010ld.minrnn", next_number(dir));
    char *path = mr_path_join(dir, name);
    mr_event_file *f = *out = mr_alloc(1, sizeof *f);
    int status = path && f ? mr_append_open(path, 0, &f->file, err) : mr_no_memory(err, "the event file");
    if (!status) status = begin(f, step, err);
    mr_free(path);
    if (!status) return 0;
    mr_event_file_close(f, NULL);
    *out = NULL;
    return status;
}

int mr_event_file_add(mr_event_file *f, const mr_log_entry *e, mr_error *err)
{
    message event = new_event(e->step), summary = {.size = 0};
    if (e->kind == MR_LOG_STEP) {
        add_scalar(&summary, "loss", e->loss);
        add_scalar(&summary, "lr", e->lr);
        add_scalar(&summary, "grad_norm", e->grad_norm);
        add_scalar(&summary, "tokens_per_s", e->tokens_per_s);
    } else if (e->kind == MR_LOG_EVAL) {
        add_scalar(&summary, "test_loss", e->loss);
        add_scalar(&summary, "accuracy", e->accuracy);
    } else add_scalar(&summary, "whole_test_loss", e->loss);
    add_block(&event, 5, summary.bytes, summary.size);
    return write_record(f->file, &event, err);
}

int mr_event_file_flush(mr_event_file *f, int sync, mr_error *err) { return mr_append_flush(f->file, sync, err); }

int mr_event_file_close(mr_event_file *f, mr_error *err)
{
    if (!f) return 0;
    int status = mr_append_close(f->file, err);
    mr_free(f);
    return status;
}
