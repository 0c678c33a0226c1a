/* D4RL's data sets: read with every number checked, cut into episodes, written again. */
#include "control/d4rl.h"

#include "control/hdf5_file.h"
#include "core/file.h"
#include "core/mem.h"

#include <math.h>

enum { MOST_COLUMNS = 1 << 16 };
enum { LONGEST_EPISODE = 1000 }; /* where a file does not say when an episode ended by the clock */

void mr_d4rl_free(mr_d4rl *set)
{
    mr_free(set->observations);
    mr_free(set->actions);
    mr_free(set->rewards);
    mr_free(set->terminals);
    mr_free(set->timeouts);
    mr_free(set->episodes);
    *set = (mr_d4rl){0};
}

int mr_d4rl_new(mr_d4rl *set, size_t steps, int observed, int acted, mr_error *err)
{
    *set = (mr_d4rl){.steps = steps, .observed = observed, .acted = acted};
    if (observed < 1 || acted < 1) return mr_fail(err, MR_EINVAL, "a step needs numbers that are seen and done");
    set->observations = mr_alloc(steps, (size_t)observed * sizeof(float));
    set->actions = mr_alloc(steps, (size_t)acted * sizeof(float));
    set->rewards = mr_alloc(steps, sizeof(float));
    set->terminals = mr_alloc(steps, 1);
    set->timeouts = mr_alloc(steps, 1);
    if (set->observations && set->actions && set->rewards && set->terminals && set->timeouts) return 0;
    mr_d4rl_free(set);
    return mr_fail(err, MR_ENOMEM, "out of memory for %zu steps", steps);
}

/* ---- episodes */

static int ends(const mr_d4rl *set, size_t step)
{
    return set->terminals[step] || set->timeouts[step] || step + 1 == set->steps;
}

int mr_d4rl_cut(mr_d4rl *set, mr_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < set->steps; i++) count += (size_t)ends(set, i);
    mr_episode *episodes = mr_alloc(count, sizeof *episodes);
    if (!episodes) return mr_fail(err, MR_ENOMEM, "out of memory for %zu episodes", count);
    mr_episode *now = episodes;
    for (size_t i = 0; i < set->steps; i++) {
        if (!now->length) now->first = i;
        now->length++;
        now->reward += (double)set->rewards[i];
        if (ends(set, i)) now++;
    }
    mr_free(set->episodes);
    set->episodes = episodes;
    set->episode_count = count;
    return 0;
}

/* What the clock of D4RL's environments would have said. */
static void set_timeouts(mr_d4rl *set)
{
    int length = 0;
    for (size_t i = 0; i < set->steps; i++) {
        length++;
        if (!set->terminals[i] && length < LONGEST_EPISODE) continue;
        set->timeouts[i] = !set->terminals[i];
        length = 0;
    }
}

/* ---- reading */

static int check_steps(const char *path, const char *name, size_t rows, const mr_d4rl *set, mr_error *err)
{
    if (rows == set->steps) return 0;
    return mr_fail(err, MR_EFORMAT, "%s: array %s has %zu steps, but observations has %zu", path, name, rows,
                   set->steps);
}

/* Reads [steps, columns]. *columns is what it must have, or 0, and then becomes what it has. */
static int read_numbers(mr_hdf5 *h, const char *path, const char *name, mr_d4rl *set, int *columns, float **out,
                        mr_error *err)
{
    size_t rows, across;
    int rc = mr_hdf5_read_floats(h, name, out, &rows, &across, err);
    if (rc) return rc;
    if (!rows || !across) return mr_fail(err, MR_EFORMAT, "%s: array %s is empty", path, name);
    if (!set->steps) set->steps = rows; /* the first one */
    if (across > MOST_COLUMNS || (*columns && across != (size_t)*columns))
        return mr_fail(err, MR_EFORMAT, "%s: array %s has %zu columns; it must have %s%d", path, name, across,
                       *columns ? "" : "at most ", *columns ? *columns : MOST_COLUMNS);
    *columns = (int)across;
    return check_steps(path, name, rows, set, err);
}

static int read_ends(mr_hdf5 *h, const char *path, const char *name, const mr_d4rl *set, uint8_t **out, mr_error *err)
{
    size_t rows;
    int rc = mr_hdf5_read_flags(h, name, out, &rows, err);
    return rc ? rc : check_steps(path, name, rows, set, err);
}

static int read_arrays(mr_hdf5 *h, const char *path, mr_d4rl *set, mr_error *err)
{
    int one = 1;
    int rc = read_numbers(h, path, "observations", set, &set->observed, &set->observations, err);
    if (!rc) rc = read_numbers(h, path, "actions", set, &set->acted, &set->actions, err);
    if (!rc) rc = read_numbers(h, path, "rewards", set, &one, &set->rewards, err);
    if (!rc) rc = read_ends(h, path, "terminals", set, &set->terminals, err);
    if (rc) return rc;
    if (mr_hdf5_has(h, "timeouts")) return read_ends(h, path, "timeouts", set, &set->timeouts, err);
    set->timeouts = mr_alloc(set->steps, 1);
    if (!set->timeouts) return mr_no_memory(err, path);
    set_timeouts(set);
    return 0;
}

static int read_made_by(mr_hdf5 *h, mr_d4rl *set, mr_error *err)
{
    if (!mr_hdf5_has_attribute(h, "/", "made_by")) return 0;
    int rc = mr_hdf5_attribute_text(h, "/", "made_by", set->made_by, sizeof set->made_by, err);
    for (char *c = set->made_by; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?'; /* it is printed */
    return rc;
}

static int check_numbers(const char *path, const char *name, const float *numbers, size_t rows, int columns,
                         mr_error *err)
{
    const size_t count = rows * (size_t)columns;
    for (size_t i = 0; i < count; i++) {
        if (isfinite(numbers[i])) continue;
        return mr_fail(err, MR_EDATA, "%s: %s[%zu, %zu] is %g; it must be finite", path, name, i / (size_t)columns,
                       i % (size_t)columns, (double)numbers[i]);
    }
    return 0;
}

int mr_d4rl_load(const char *path, mr_d4rl *out, mr_error *err)
{
    mr_hdf5 *h;
    *out = (mr_d4rl){0};
    int rc = mr_hdf5_open(path, &h, err);
    if (rc) return rc;
    rc = read_arrays(h, path, out, err);
    if (!rc) rc = read_made_by(h, out, err);
    mr_hdf5_close(h);
    if (!rc) rc = check_numbers(path, "observations", out->observations, out->steps, out->observed, err);
    if (!rc) rc = check_numbers(path, "actions", out->actions, out->steps, out->acted, err);
    if (!rc) rc = check_numbers(path, "rewards", out->rewards, out->steps, 1, err);
    if (!rc) rc = mr_file_sha256(path, out->sha256, err);
    if (!rc) rc = mr_d4rl_cut(out, err);
    if (rc) mr_d4rl_free(out);
    return rc;
}

/* ---- writing */

int mr_d4rl_write(const mr_d4rl *set, const char *path, mr_error *err)
{
    mr_hdf5 *h;
    int rc = mr_hdf5_create(path, &h, err);
    if (rc) return rc;
    rc = mr_hdf5_write_floats(h, "observations", set->observations, set->steps, (size_t)set->observed, err);
    if (!rc) rc = mr_hdf5_write_floats(h, "actions", set->actions, set->steps, (size_t)set->acted, err);
    if (!rc) rc = mr_hdf5_write_floats(h, "rewards", set->rewards, set->steps, 0, err);
    if (!rc) rc = mr_hdf5_write_flags(h, "terminals", set->terminals, set->steps, err);
    if (!rc) rc = mr_hdf5_write_flags(h, "timeouts", set->timeouts, set->steps, err);
    if (!rc && set->made_by[0]) rc = mr_hdf5_write_text(h, "made_by", set->made_by, err);
    if (!rc) return mr_hdf5_finish(h, err);
    mr_hdf5_close(h);
    return rc;
}
