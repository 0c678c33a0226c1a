/* A layer of another program by itself, as a whole model: its input is the model's, its output too, exactly.
 *
 * The channels of the residual stream are shared out: first the inputs, then for each layer as many as it has outputs.
 * embed copies the inputs into theirs; a layer reads the channels before its own, and mixer.down writes into its own
 * only; the head copies the last layer's. Without norm (its weights are 1), conv and MLP nothing else happens. */
#ifndef MR_APP_WEIGHTS_BARE_H
#define MR_APP_WEIGHTS_BARE_H

#include "weights/transfer.h"

typedef struct mr_bare {
    int64_t inputs, outputs, width; /* outputs of each layer; width: its state */
    int layers;
} mr_bare;

/* Importing: the settings of such a model, but for its mixer. */
void mr_bare_set(mr_transfer *t, const mr_bare *bare);
/* Exporting: is the net one? Fills *bare. */
int mr_is_bare(mr_transfer *t, mr_bare *bare);
/* Both ways: everything but the mixers' tensors. */
void mr_bare_fixed(mr_transfer *t, const mr_bare *bare);
/* The part of a matrix that reads a layer's inputs, and of one that writes its outputs. */
mr_part mr_bare_reads(const mr_bare *bare, int layer, const char *ours);
mr_part mr_bare_writes(const mr_bare *bare, int layer, const char *ours);
/* Both ways: a layer without a projection of its state. mixer.down copies it. */
void mr_bare_copies(mr_transfer *t, const mr_bare *bare, int layer);
int mr_is_copied(mr_transfer *t, const mr_bare *bare, int layer); /* exporting */

#endif
