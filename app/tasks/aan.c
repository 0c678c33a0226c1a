/* Reads AAN files: lines of five columns, checked one by one. */
#include "tasks/aan.h"

#include "core/file.h"
#include "core/mem.h"

#include <string.h>

enum { COLUMNS = 5, LABEL = 0, TEXT = 3, LABEL_ROOM = 16, PIECE = 1 << 20 };

typedef struct reader {
    const char *path;
    mr_error *err;
    mr_byte_rows *documents;
    mr_pairs *pairs;
    uint32_t longest;
    uint64_t line;
    int column;  /* where in the line */
    int started; /* the line has bytes */
    char label[LABEL_ROOM];
    uint32_t label_used, used[2]; /* of the texts, which are cut */
    uint8_t *text[2];
} reader;

static void start_line(reader *r)
{
    r->line++;
    r->column = r->started = 0;
    r->label_used = r->used[0] = r->used[1] = 0;
}

static void take_byte(reader *r, char c)
{
    r->started = 1;
    if (c == '\t') {
        r->column++;
    } else if (r->column == LABEL) {
        if (r->label_used < LABEL_ROOM - 1) r->label[r->label_used++] = c;
    } else if (r->column >= TEXT && r->column < COLUMNS) {
        int which = r->column - TEXT;
        if (r->used[which] < r->longest) r->text[which][r->used[which]++] = (uint8_t)c;
    }
}

/* 0, 1, or −1 for anything else. The published files write 0.0 and 1.0. */
static int label_of(const reader *r)
{
    static const char *const texts[] = {"0", "0.0", "1", "1.0"};
    for (int i = 0; i < 4; i++)
        if (strlen(texts[i]) == r->label_used && !memcmp(texts[i], r->label, r->label_used)) return i / 2;
    return -1;
}

static void *enlarged(void *old, size_t used, size_t room)
{
    void *larger = mr_alloc(room, 1);
    if (larger && used) memcpy(larger, old, used);
    if (larger) mr_free(old);
    return larger;
}

static int make_room(mr_pairs *p)
{
    if (p->count < p->room) return 0;
    if (p->room > INT32_MAX / 4) return MR_ENOMEM;
    uint32_t room = 2 * p->room + 64,
             *document = enlarged(p->document, p->count * 2 * sizeof *document, room * 2 * sizeof *document);
    if (document) p->document = document;
    uint32_t *length = enlarged(p->length, p->count * sizeof *length, room * sizeof *length);
    if (length) p->length = length;
    uint8_t *label = enlarged(p->label, p->count, room);
    if (label) p->label = label;
    if (!document || !length || !label) return MR_ENOMEM;
    p->room = room;
    return 0;
}

static int add_pair(reader *r, int label)
{
    mr_pairs *p = r->pairs;
    int status = make_room(p), added;
    for (int k = 0; !status && k < 2; k++)
        status =
            mr_byte_rows_add(r->documents, r->text[k], r->used[k], 0, &p->document[2 * p->count + (uint32_t)k], &added);
    if (status) return mr_no_memory(r->err, r->path);
    p->length[p->count] = r->used[0] > r->used[1] ? r->used[0] : r->used[1];
    p->label[p->count++] = (uint8_t)label;
    return 0;
}

static int end_line(reader *r)
{
    const unsigned long long line = r->line;
    /* a line break of two bytes, unless the text was cut before it */
    if (r->column == COLUMNS - 1 && r->used[1] && r->text[1][r->used[1] - 1] == '\r') r->used[1]--;
    if (r->column != COLUMNS - 1)
        return mr_fail(
            r->err, MR_EDATA,
            "%s, line %llu: has %d columns; there must be five, with tabs between them: label, id1, id2, text1, text2",
            r->path, line, r->column + 1);
    for (int k = 0; k < 2; k++)
        if (!r->used[k]) return mr_fail(r->err, MR_EDATA, "%s, line %llu: text%d is empty", r->path, line, k + 1);
    int label = label_of(r);
    if (label < 0)
        return mr_fail(r->err, MR_EDATA, "%s, line %llu: the label is \"%.*s\"; it must be 0 or 1", r->path, line,
                       (int)r->label_used, r->label);
    return add_pair(r, label);
}

static int take_piece(reader *r, const char *piece, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (piece[i] != '\n') {
            take_byte(r, piece[i]);
            continue;
        }
        int status = end_line(r);
        if (status) return status;
        start_line(r);
    }
    return 0;
}

static int read_file(reader *r, char *piece, mr_sha256 *sha)
{
    int fd, status;
    uint64_t size;
    status = mr_file_open(r->path, &fd, &size, r->err);
    start_line(r);
    for (uint64_t at = 0; !status && at < size;) {
        size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        status = mr_file_read_at(fd, r->path, at, piece, n, r->err);
        if (!status) mr_sha256_add(sha, piece, n);
        if (!status) status = take_piece(r, piece, n);
        at += n;
    }
    if (!status && r->started) status = end_line(r); /* the last line may lack its line break */
    mr_file_close(fd);
    return status;
}

int mr_aan_read(const char *path, uint32_t longest, mr_byte_rows *documents, mr_pairs *pairs, mr_sha256 *sha,
                mr_error *err)
{
    reader r = {.path = path, .err = err, .documents = documents, .pairs = pairs, .longest = longest};
    const uint32_t before = pairs->count;
    char *piece = mr_alloc(PIECE, 1);
    r.text[0] = mr_alloc(longest, 1);
    r.text[1] = mr_alloc(longest, 1);
    int status = piece && r.text[0] && r.text[1] ? read_file(&r, piece, sha) : mr_no_memory(err, path);
    if (!status && pairs->count == before) status = mr_fail(err, MR_EDATA, "%s: has no rows", path);
    mr_free(piece);
    mr_free(r.text[0]);
    mr_free(r.text[1]);
    return status;
}

void mr_pairs_free(mr_pairs *p)
{
    mr_free(p->document);
    mr_free(p->length);
    mr_free(p->label);
    memset(p, 0, sizeof *p);
}
