/* Whether a GPU can be used, decided by what a look at it found; apart from the look, so that it can be tried
 * without one. */
#ifndef MR_OPS_CARD_H
#define MR_OPS_CARD_H

#include "core/status.h"

/* Of the code that this build has for the card. */
typedef enum mr_card_code {
    MR_CODE_FITS,
    MR_CODE_MISSING,   /* none: neither the card's own nor PTX that could be compiled for it */
    MR_CODE_UNREADABLE /* PTX alone, and the driver does not compile it */
} mr_card_code;

typedef struct mr_card {
    int index; /* the one that is meant, from 0 */
    int count; /* those that there are; 0: see trouble */
    /* what the driver says when it cannot be asked, or NULL: it can, or there is none and no card */
    const char *trouble;
    char name[256];
    int major, minor; /* compute capability */
    mr_card_code code;
} mr_card;

/* 0 when it can be used, for bf16 too where that is wanted; otherwise MR_EDEVICE with the reason. */
int mr_card_check(const mr_card *card, int bf16, mr_error *err);

/* Whether somebody who asked for no device in particular is to be told why the GPU is not used: not where there is
 * none. */
static inline int mr_card_is_there(const mr_card *card) { return card->count > card->index || card->trouble; }

#endif
