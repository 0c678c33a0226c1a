/* The settings of a model under PyTorch's names: metadata `model.KEY` in the file, or config.json with the same keys
 * beside it. What neither has follows from the tensors' shapes where it can. */
#ifndef MR_APP_WEIGHTS_TORCH_KEYS_H
#define MR_APP_WEIGHTS_TORCH_KEYS_H

#include "weights/transfer.h"

/* gru or lstm, by the rows of weight_hh. */
void mr_torch_mixer(mr_transfer *t, const char *weight_hh);
/* All settings; the kind of scaler is given back and not set. */
void mr_torch_set_keys(mr_transfer *t, char *scaler, size_t room);
/* Exporting: the metadata. */
void mr_torch_write_keys(mr_transfer *t);

#endif
