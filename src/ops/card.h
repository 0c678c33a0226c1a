/* Whether a GPU can be used, decided from a description of it (mr_cuda_look fills one), so that it can be tested
 * without a GPU. */
#ifndef MR_OPS_CARD_H
#define MR_OPS_CARD_H

#include "core/status.h"

/* Whether this build has code for the card. */
typedef enum mr_card_code {
    MR_CODE_FITS,
    MR_CODE_MISSING,   /* none: neither machine code nor PTX that the driver could compile */
    MR_CODE_UNREADABLE /* only PTX, and the driver cannot compile it */
} mr_card_code;

typedef struct mr_card {
    int index; /* the card asked for, from 0 */
    int count; /* cards in this machine; 0: see trouble */
    /* the driver's error when it cannot be queried; NULL: it can, or there is no driver */
    const char *trouble;
    char name[256];
    int major, minor; /* compute capability */
    mr_card_code code;
} mr_card;

/* 0 when the card can be used (also for bf16, when bf16 is 1); otherwise MR_EDEVICE with the reason. */
int mr_card_check(const mr_card *card, int bf16, mr_error *err);

/* Whether `--device auto` should report why it does not use the GPU: not where there is none. */
static inline int mr_card_is_there(const mr_card *card) { return card->count > card->index || card->trouble; }

#endif
