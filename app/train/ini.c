/* INI text read by libinih, with checks for what it would misread. */
#include "train/ini.h"

#include "core/mem.h"

#include <stdio.h>
#include <string.h>

static int take_line(void *user, const char *section, const char *key, const char *value)
{
    mr_ini *all = user;
    if (strlen(key) >= sizeof all->list->key) {
        if (!all->wrong[0]) snprintf(all->wrong, sizeof all->wrong, "[%.40s] %.60s", section, key);
        return 1;
    }
    if (all->count == all->room) {
        int room = all->room ? 2 * all->room : 64;
        mr_ini_line *list = mr_alloc((size_t)room, sizeof *list);
        if (!list) return all->failed = 1, 0;
        if (all->count) memcpy(list, all->list, (size_t)all->count * sizeof *list);
        mr_free(all->list);
        all->list = list;
        all->room = room;
    }
    mr_ini_line *l = &all->list[all->count++];
    snprintf(l->section, sizeof l->section, "%s", section);
    snprintf(l->key, sizeof l->key, "%s", key);
    snprintf(l->value, sizeof l->value, "%s", value);
    return 1;
}

/* libinih cuts lines at INI_MAX_LINE and would read the rest as another line. */
static int check_lines(const char *name, const char *text, mr_error *err)
{
    int number = 1;
    for (const char *at = text; *at; number++) {
        size_t n = strcspn(at, "\n");
        if (n > INI_MAX_LINE - 2)
            return mr_fail(err, MR_EINVAL, "%s, line %d: longer than %d bytes; shorten it (a relative path, a link)",
                           name, number, INI_MAX_LINE - 2);
        at += n + (at[n] == '\n');
    }
    return 0;
}

/* The header's name if the line is one; its length, or -1. */
static long header_of(const char *line, size_t n, const char **name)
{
    size_t at = 0;
    while (at < n && (line[at] == ' ' || line[at] == '\t')) at++;
    if (at == n || line[at] != '[') return -1;
    const char *end = memchr(line + at, ']', n - at);
    *name = line + at + 1;
    return end ? end - *name : -1;
}

/* libinih reports only sections that have keys. */
static int take_headers(mr_ini *all, const char *name, const char *text, mr_error *err)
{
    int lines = 1;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    all->sections = mr_alloc((size_t)lines, sizeof *all->sections);
    if (!all->sections) return mr_no_memory(err, name);
    for (const char *at = text, *header; *at;) {
        const size_t n = strcspn(at, "\n");
        const long size = header_of(at, n, &header);
        if (size >= MR_INI_SECTION)
            return mr_fail(err, MR_EINVAL, "%s: [%.40s…]: the name of a section has at most %d bytes", name, header,
                           MR_INI_SECTION - 1);
        if (size >= 0) snprintf(all->sections[all->headers++], MR_INI_SECTION, "%.*s", (int)size, header);
        at += n + (at[n] == '\n');
    }
    return 0;
}

int mr_ini_came_before(const mr_ini *all, int line)
{
    const mr_ini_line *l = &all->list[line];
    return mr_ini_find(all, l->section, l->key) != l->value;
}

int mr_ini_twice(const mr_ini_line *l, const char *name, mr_error *err)
{
    return mr_fail(err, MR_EINVAL, "%s: [%s] %s is given twice", name, l->section, l->key);
}

int mr_ini_check_once(const mr_ini *all, const char *name, mr_error *err)
{
    for (int i = 0; i < all->count; i++)
        if (mr_ini_came_before(all, i)) return mr_ini_twice(&all->list[i], name, err);
    return 0;
}

int mr_ini_read(mr_ini *all, const char *name, const char *text, mr_error *err)
{
    memset(all, 0, sizeof *all);
    int status = check_lines(name, text, err);
    if (!status) status = take_headers(all, name, text, err);
    if (status) return status;
    int wrong = ini_parse_string(text, take_line, all);
    if (all->failed) return mr_no_memory(err, name);
    if (wrong) return mr_fail(err, MR_EINVAL, "%s, line %d: not `key = value`, `[section]` or a comment", name, wrong);
    if (all->wrong[0]) return mr_fail(err, MR_EINVAL, "%s: unknown key %.150s", name, all->wrong);
    return 0;
}

void mr_ini_free(mr_ini *all)
{
    mr_free(all->list);
    mr_free(all->sections);
    memset(all, 0, sizeof *all);
}

const char *mr_ini_find(const mr_ini *all, const char *section, const char *key)
{
    for (int i = 0; i < all->count; i++)
        if (!strcmp(all->list[i].section, section) && !strcmp(all->list[i].key, key)) return all->list[i].value;
    return NULL;
}

int mr_ini_is_name(const char *name)
{
    const size_t n = strlen(name);
    return n > 4 && !strcmp(name + n - 4, ".ini");
}
