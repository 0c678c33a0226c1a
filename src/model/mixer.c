/* The list of mixers, made from mixers.def. */
#include "model/mixer.h"

#define MIXER(name) extern const mr_mixer mr_mixer_##name;
#include "model/mixers.def"
#undef MIXER

const char *const mr_mixer_names[] = {
#define MIXER(name) #name,
#include "model/mixers.def"
#undef MIXER
    NULL};

const mr_mixer *mr_mixer_at(int index)
{
    static const mr_mixer *const list[] = {
#define MIXER(name) &mr_mixer_##name,
#include "model/mixers.def"
#undef MIXER
    };
    return list[index];
}
