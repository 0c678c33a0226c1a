/* Rows from elsewhere are added to a folder of results. */
#include "paper/result_folder.h"

#include "core/file.h"
#include "core/mem.h"
#include "paper/result_review.h"

#include <string.h>

/* Out of memory leaves `failed` set, and mr_rows_put refuses the row. */
static void copy_row(mr_row *to, const mr_row *from)
{
    *to = *from;
    to->curve = from->points ? mr_alloc(from->points, sizeof *to->curve) : NULL;
    if (from->points && to->curve) memcpy(to->curve, from->curve, from->points * sizeof *to->curve);
    if (from->points && !to->curve) to->points = 0, to->failed = 1;
    for (int i = 0; i < from->count; i++) {
        to->fields[i].text = from->fields[i].text ? mr_strdup(from->fields[i].text) : NULL;
        if (from->fields[i].text && !to->fields[i].text) to->failed = 1;
    }
}

static int add_rows(const char *dir, const char *name, const mr_rows *from, const mr_experiment *e, size_t *added,
                    mr_error *err)
{
    mr_rows rows;
    char *path = mr_result_path(dir, name);
    int status = path ? mr_reproduce_rows(dir, name, &rows, err) : mr_no_memory(err, "the results");
    if (status) {
        mr_free(path);
        return status;
    }
    /* first, so that rows which do not hold any more make room; and again for those that were added */
    if (e) status = mr_rows_review(e, &rows, err);
    for (size_t i = 0; !status && i < from->count; i++) {
        mr_row copy;
        const mr_row *old = mr_rows_find(&rows, &from->list[i]);
        const int renewed = old && mr_row_outdated(old) && !mr_row_outdated(&from->list[i]);
        if (strcmp(mr_row_text(&from->list[i], "experiment"), name) || (old && !renewed)) continue;
        copy_row(&copy, &from->list[i]);
        status = mr_rows_put(&rows, &copy, err);
        if (!status) ++*added;
    }
    if (!status && e) status = mr_rows_review(e, &rows, err);
    if (!status && (*added || e)) status = mr_rows_write(&rows, path, name, err);
    mr_rows_free(&rows);
    mr_free(path);
    return status;
}

int mr_reproduce_merge(const char *dir, const char *name, const mr_rows *from, const mr_experiment *e, size_t *added,
                       mr_error *err)
{
    char *runs = NULL;
    int lock = -1;
    *added = 0;
    int status = mr_result_folder_lock(dir, name, &runs, &lock, err); /* or a run would overwrite these rows */
    if (!status) status = add_rows(dir, name, from, e, added, err);
    mr_unlock_and_tidy(runs, lock);
    mr_free(runs);
    return status;
}
