/* Weights of another program: one safetensors file, or the shards that an index names, with the config.json beside
 * them. Everything is checked before a tensor is handed out; metadata is for whoever asks for it. */
#ifndef MR_APP_WEIGHTS_FOREIGN_H
#define MR_APP_WEIGHTS_FOREIGN_H

#include "core/safetensors.h"
#include "core/status.h"
#include "weights/sidecar.h"

typedef struct mr_shard {
    char *path;
    mr_st *st;
} mr_shard;

typedef struct mr_foreign_tensor {
    const mr_st_tensor *at; /* its name, dtype and shape */
    int shard;
} mr_foreign_tensor;

typedef struct mr_foreign {
    char *path;    /* the file, or the index */
    int is_folder; /* a folder was given */
    mr_shard *shards;
    int shard_count;
    mr_foreign_tensor *tensors; /* by name */
    int count;
    mr_sidecar config; /* of config.json; empty where there is none */
} mr_foreign;

/* Opens a file, an index (NAME.json), or a folder with one of them. Of a folder it takes model.safetensors, else
 * model.safetensors.index.json, else the only *.safetensors there is. */
int mr_foreign_open(const char *path, mr_foreign **out, mr_error *err);
/* The same from memory, which must outlive the handle: one file and its config.json, or NULL. */
int mr_foreign_open_memory(const void *data, size_t size, const char *config, size_t config_size, mr_foreign **out,
                           mr_error *err);
void mr_foreign_close(mr_foreign *foreign);

/* Does a file begin as torch.save writes it: as a zip archive or a pickle? Such a file is not read. */
int mr_is_torch_save(const char *path);

const mr_foreign_tensor *mr_foreign_find(const mr_foreign *foreign, const char *name); /* or NULL */
/* The same for a name with a number, "layers.%d.weight". */
const mr_foreign_tensor *mr_foreign_find_at(const mr_foreign *foreign, const char *format, int number);
int mr_foreign_has(const mr_foreign *foreign, const char *name);
/* How many blocks there are: the tensors that `format` names for 0, 1, 2, …, without a gap. */
int mr_foreign_blocks(const mr_foreign *foreign, const char *format);
const char *mr_foreign_meta(const mr_foreign *foreign, const char *key); /* of the first shard that has it, or NULL */
/* The file that has the tensor, for messages. */
const char *mr_foreign_file(const mr_foreign *foreign, const mr_foreign_tensor *tensor);
/* Its numbers as floats; MR_EFORMAT where one is not finite. */
int mr_foreign_read(const mr_foreign *foreign, const mr_foreign_tensor *tensor, float *to, mr_error *err);

#endif
