/* A mixer: the layer of a block that carries information along time. Each mixer is one file, and one line in
 * mixers.def. */
#ifndef MR_MODEL_MIXER_H
#define MR_MODEL_MIXER_H

#include "model/layers.h"

/* State pointers may be NULL. state_in NULL: a sequence starts at token 0. state_out NULL: the state is not needed
 * afterwards. state_out may be state_in. */
typedef struct mr_mixer {
    const char *name;
    size_t layer_size; /* bytes of the mixer's own struct, which the functions get as `layer`, zeroed at first */
    int (*width)(const mr_config *config);          /* channels of its output */
    size_t (*state_reals)(const mr_config *config); /* state of one stream */
    void (*params)(void *layer, const mr_config *config, int block, const char *prefix, mr_params *params);
    void (*plan)(void *layer, const mr_config *config, mr_dev *dev, mr_arena *arena, int B, int T);
    void (*forward)(void *layer, const mr_pass *pass, const mr_act *x, mr_act *y, const mr_real *state_in,
                    mr_real *state_out);
    void (*backward)(void *layer, const mr_pass *pass, const mr_act *x, const mr_act *y, const mr_act *dy, mr_act *dx,
                     const mr_real *state_in, const mr_real *dstate_out, mr_real *dstate_in);
    /* How many of the state's reals are in a second array, [B, rest], which follows the first array of all B streams.
     * NULL: none. */
    size_t (*state_rest)(const mr_config *config);
    int cut; /* 1: its sequences can be cut between ranks (model/sequence.h) */
} mr_mixer;

extern const char *const mr_mixer_names[]; /* NULL-terminated, the choices of `mixer` */
const mr_mixer *mr_mixer_at(int index);

#endif
