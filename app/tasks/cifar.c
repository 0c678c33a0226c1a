/* CIFAR-10 in grey: converted from the published files, kept in the cache folder. */
#include "tasks/cifar.h"

#include "core/file.h"
#include "core/mem.h"
#include "tasks/data.h"

#include <string.h>

enum { PER_FILE = 10000 };

/* Of the 60,000 records in grey. */
static const char gray_sha256[] = "37325b7fdd418415342d45805fc7d52b3530ee224607d04029bc37a7b74e6f63";

void mr_cifar_to_gray(const uint8_t official[MR_CIFAR_OFFICIAL], uint8_t gray[MR_CIFAR_GRAY])
{
    const uint8_t *red = official + 1, *green = red + MR_CIFAR_PIXELS, *blue = green + MR_CIFAR_PIXELS;
    gray[0] = official[0];
    for (int i = 0; i < MR_CIFAR_PIXELS; i++) {
        /* In float, in this order and with every product rounded on its own (one per statement, so that no compiler
         * fuses them): the published grey values were made that way, and a few pixels are within a rounding error of a
         * whole number. */
        const float r = 0.2989f * red[i], g = 0.5870f * green[i], b = 0.1140f * blue[i];
        const float light = (r + g + b) / 255;
        gray[1 + i] = (uint8_t)(light * 255.5f);
    }
}

/* A file of exactly `size` bytes with this SHA-256. */
static int read_checked(const char *path, size_t size, const char *sha256, char **bytes, mr_error *err)
{
    char text[MR_SHA256_TEXT];
    size_t got;
    int status = mr_file_read(path, size, bytes, &got, err);
    if (status) return status;
    mr_sha256_of(*bytes, got, text);
    if (got == size && !strcmp(text, sha256)) return 0;
    mr_free(*bytes);
    *bytes = NULL;
    return mr_fail(
        err, MR_EDATA,
        "%s is not what was published: its SHA-256 is %s, not %s; remove it and run `minrnn data get cifar10`", path,
        text, sha256);
}

static int read_official(const mr_data_member *member, uint8_t *gray, mr_error *err)
{
    char *path, *bytes = NULL;
    int status = mr_data_find_member("cifar10", member->file, &path, err);
    if (!status) status = read_checked(path, (size_t)PER_FILE * MR_CIFAR_OFFICIAL, member->sha256, &bytes, err);
    for (size_t i = 0; !status && i < PER_FILE; i++)
        mr_cifar_to_gray((const uint8_t *)bytes + i * MR_CIFAR_OFFICIAL, gray + i * MR_CIFAR_GRAY);
    mr_free(bytes);
    mr_free(path);
    return status;
}

static int convert(const mr_data_set *set, uint8_t **gray, char sha256[MR_SHA256_TEXT], mr_error *err)
{
    const size_t size = (size_t)MR_CIFAR_ALL * MR_CIFAR_GRAY;
    int status = 0;
    *gray = mr_alloc(size, 1);
    if (!*gray) return mr_no_memory(err, "the pictures");
    for (size_t i = 0; !status && set->members[i].file; i++)
        status = read_official(&set->members[i], *gray + i * PER_FILE * MR_CIFAR_GRAY, err);
    if (!status) mr_sha256_of(*gray, size, sha256);
    if (!status) { /* makes the next reading faster; it does not matter if it cannot be kept */
        char *path = strcmp(sha256, gray_sha256) ? NULL : mr_data_cache(set->instead);
        if (path) mr_file_replace(path, *gray, size, NULL);
        mr_free(path);
        return 0;
    }
    mr_free(*gray);
    *gray = NULL;
    return status;
}

int mr_cifar_load(uint8_t **gray, char sha256[MR_SHA256_TEXT], mr_error *err)
{
    const mr_data_set *set = mr_data_set_find("cifar10");
    char *path, *bytes = NULL;
    *gray = NULL;
    memcpy(sha256, gray_sha256, MR_SHA256_TEXT);
    if (mr_data_find_member("cifar10", set->instead, &path, NULL)) return convert(set, gray, sha256, err);
    int status = read_checked(path, (size_t)MR_CIFAR_ALL * MR_CIFAR_GRAY, gray_sha256, &bytes, err);
    *gray = (uint8_t *)bytes;
    mr_free(path);
    return status;
}
