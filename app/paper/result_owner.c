/* Whose files are in a folder of results: pages and pictures that minrnn did not make are not overwritten. */
#include "paper/reproduce.h"

#include "core/file.h"
#include "core/mem.h"
#include "plot/chart.h"

#include <dirent.h>
#include <string.h>

#define LARGEST (64u << 20)

/* Is one of the texts in the file? What cannot be read is nobody's. */
static int has_text(const char *path, const char *text, const char *or_text)
{
    char *data = NULL;
    size_t size;
    if (mr_file_read(path, LARGEST, &data, &size, NULL)) return 0;
    const int found = strstr(data, text) || (or_text && strstr(data, or_text));
    mr_free(data);
    return found;
}

static int refuse(const char *path, mr_error *err)
{
    return mr_fail(err, MR_EDATA,
                   "%.600s: was not made by minrnn, and this experiment would overwrite it; give another --out, or "
                   "move the file",
                   path);
}

static int check_page(const char *dir, const char *name, int measured, mr_error *err)
{
    char file[128], picture[128];
    snprintf(file, sizeof file, "%s.md", name);
    snprintf(picture, sizeof picture, "](%s.svg)", name); /* older pages of measurements have no other mark */
    char *path = mr_path_join(dir, file);
    if (!path) return mr_no_memory(err, dir);
    const int own = !mr_path_exists(path) || has_text(path, MR_MADE_BY_REPRODUCE, measured ? picture : NULL);
    const int status = own ? 0 : refuse(path, err);
    mr_free(path);
    return status;
}

/* NAME.svg or NAME-ANYTHING.svg. */
static int is_picture(const char *file, const char *name)
{
    const size_t n = strlen(name), size = strlen(file);
    return size >= n + 4 && !strncmp(file, name, n) && (file[n] == '-' || size == n + 4) &&
           !strcmp(file + size - 4, ".svg");
}

static int check_pictures(const char *dir, const char *name, mr_error *err)
{
    int status = 0;
    DIR *folder = opendir(dir);
    if (!folder) return 0; /* none yet, or writing there will say why it cannot be used */
    for (struct dirent *entry; !status && (entry = readdir(folder));) {
        if (!is_picture(entry->d_name, name)) continue;
        char *path = mr_path_join(dir, entry->d_name);
        if (!path) status = mr_no_memory(err, dir);
        else if (!has_text(path, MR_CHART_MARK, MR_CHART_OLD_MARK)) status = refuse(path, err);
        mr_free(path);
    }
    closedir(folder);
    return status;
}

int mr_reproduce_check_files(const char *dir, const char *name, int measured, mr_error *err)
{
    const int status = check_page(dir, name, measured, err);
    return status ? status : check_pictures(dir, name, err);
}
