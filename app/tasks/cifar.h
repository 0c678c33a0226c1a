/* CIFAR-10 in grey: from the six published files, or from the file that an earlier run left in the cache folder. */
#ifndef MR_APP_TASKS_CIFAR_H
#define MR_APP_TASKS_CIFAR_H

#include "core/sha256.h"
#include "core/status.h"

#include <stdint.h>

enum {
    MR_CIFAR_SIDE = 32,
    MR_CIFAR_PIXELS = MR_CIFAR_SIDE * MR_CIFAR_SIDE,
    /* bytes of a record: the label (0 … 9), then rows of grey from the top */
    MR_CIFAR_GRAY = 1 + MR_CIFAR_PIXELS,
    MR_CIFAR_OFFICIAL = 1 + 3 * MR_CIFAR_PIXELS, /* the label, then all of red, of green, of blue */
    MR_CIFAR_TRAIN = 50000,
    MR_CIFAR_TEST = 10000,
    MR_CIFAR_ALL = MR_CIFAR_TRAIN + MR_CIFAR_TEST
};

void mr_cifar_to_gray(const uint8_t official[MR_CIFAR_OFFICIAL], uint8_t gray[MR_CIFAR_GRAY]);

/* All records, the training pictures in their published order and then the test pictures; freed by mr_free. What is
 * read is checked by its SHA-256. */
int mr_cifar_load(uint8_t **gray, char sha256[MR_SHA256_TEXT], mr_error *err);

#endif
