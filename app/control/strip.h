/* A film strip: the body of an episode at equal intervals, as an SVG picture. */
#ifndef MR_APP_CONTROL_STRIP_H
#define MR_APP_CONTROL_STRIP_H

#include "control/env.h"

enum { MR_STRIP_FRAMES = 12, MR_STRIP_PARTS = 16 };

/* Frames `every` steps apart, from the first step to the last: whenever there would be too many, every second one is
 * dropped. Begins with every = 1. */
typedef struct mr_strip {
    double parts[MR_STRIP_FRAMES][MR_STRIP_PARTS][4]; /* x0, z0, x1, z1, in metres */
    int count[MR_STRIP_FRAMES], frames, every;
} mr_strip;

/* mr_rollout_options.film with a strip as its user. */
void mr_strip_film(void *strip, const mr_env *env, int step);
/* Refuses a path where there is anything but such a picture. */
int mr_strip_check(const char *path, mr_error *err);
/* Writes the picture, replaced atomically. */
int mr_strip_write(const mr_strip *strip, const mr_env_type *type, const char *path, mr_error *err);

#endif
