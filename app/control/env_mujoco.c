/* Gymnasium's v4 Hopper, HalfCheetah and Walker2d on MuJoCo's C library: resets, rewards, and when they fall. */
#include "control/env.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/rng.h"
#include "core/strbuf.h"

#include <glob.h>
#include <math.h>
#include <mujoco/mujoco.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

/* How an environment uses its model; rows in the order of mr_env_types. */
typedef struct rules {
    int skip;              /* MuJoCo's steps in one step of the environment */
    double alive, cost;    /* reward of a step, and the price of its squared actions */
    double spread;         /* of the first state … */
    int normal_velocities; /* … whose velocities are normal, not uniform */
    double most_velocity;  /* that is observed */
    /* healthy while low < z < high, |angle| < lean, and all other numbers of the state are within ±wild */
    double low, high, lean, wild;
} rules;

static const rules all_rules[] = {{4, 1, 1e-3, 5e-3, 0, 10, .7, INFINITY, .2, 100},
                                  {5, 0, .1, .1, 1, INFINITY, -INFINITY, INFINITY, INFINITY, INFINITY},
                                  {4, 1, 1e-3, 5e-3, 0, 10, .8, 2, 1, INFINITY}};

struct mr_env_model {
    const mr_env_type *type;
    const rules *rules;
    mjModel *m;
    char identity[17];
};

struct mr_env {
    const mr_env_model *model;
    mjData *d;
    int broken; /* MuJoCo gave up in this episode */
};

const char *mr_mujoco_version(void) { return mj_versionString(); }

/* ---- MuJoCo's errors: by default it prints and exits. Its handler must not return, so it jumps out of the call. */

static _Thread_local jmp_buf *way_out;

static void leave(const char *text)
{
    (void)text;
    if (way_out) longjmp(*way_out, 1);
}

static void ignore(const char *text) { (void)text; } /* by default, a file MUJOCO_LOG.TXT is written */

/* Calls work(arg); 0 when MuJoCo gave up in it. */
static int guarded(void (*work)(void *arg), void *arg)
{
    jmp_buf here;
    if (setjmp(here)) {
        way_out = NULL;
        return 0;
    }
    way_out = &here;
    work(arg);
    way_out = NULL;
    return 1;
}

/* ---- the model */

static char *if_there(char *path)
{
    if (path && mr_path_exists(path)) return path;
    mr_free(path);
    return NULL;
}

/* The file in an installed gymnasium below `root`, of the newest Python there. */
static char *of_gymnasium(const char *root, const char *file)
{
    static const char *const packages[] = {"site-packages", "dist-packages"};
    char *found = NULL;
    for (size_t i = 0; !found && root && *root && i < 2; i++) {
        glob_t list = {0};
        mr_strbuf pattern = {0};
        mr_strbuf_format(&pattern, "%s/lib/python3*/%s/gymnasium/envs/mujoco/assets/%s", root, packages[i], file);
        if (!pattern.failed && !glob(pattern.data, 0, NULL, &list) && list.gl_pathc)
            found = mr_strdup(list.gl_pathv[list.gl_pathc - 1]);
        globfree(&list);
        mr_strbuf_free(&pattern);
    }
    return found;
}

static char *in_home(const char *file)
{
    const char *home = getenv("HOME");
    char *local = home && *home ? mr_path_join(home, ".local") : NULL;
    char *path = of_gymnasium(local, file);
    mr_free(local);
    return path;
}

static char *in_data(const char *file)
{
    const char *data = getenv("MINRNN_DATA");
    char *folder = data && *data ? mr_path_join(data, "rl") : NULL;
    char *path = folder ? if_there(mr_path_join(folder, file)) : NULL;
    mr_free(folder);
    return path;
}

static int find_file(const mr_env_type *type, const char *assets, char **path, mr_error *err)
{
    if (assets) {
        *path = if_there(mr_path_join(assets, type->file));
        return *path ? 0 : mr_fail(err, MR_ENODATA, "%s: no file %s there", assets, type->file);
    }
    *path = in_data(type->file);
    if (!*path) *path = of_gymnasium(getenv("VIRTUAL_ENV"), type->file);
    if (!*path) *path = of_gymnasium(getenv("CONDA_PREFIX"), type->file);
    if (!*path) *path = in_home(type->file);
    if (!*path) *path = of_gymnasium("/usr/local", type->file);
    if (!*path) *path = of_gymnasium("/usr", type->file);
    if (*path) return 0;
    return mr_fail(err, MR_ENODATA,
                   "%s, the model of %s, is not on this machine: run `pip install gymnasium`, or name the folder that "
                   "has it with --assets",
                   type->file, type->title);
}

typedef struct loading {
    const char *path;
    mjModel *m;
    char text[256];
} loading;

static void load_xml(void *arg)
{
    loading *l = arg;
    l->m = mj_loadXML(l->path, NULL, l->text, sizeof l->text);
}

/* MuJoCo's text without the line breaks. */
static const char *one_line(char *text)
{
    for (char *c = text; *c; c++)
        if (*c == '\n') *c = ' ';
    return *text ? text : "MuJoCo cannot read it";
}

static int load_model(mr_env_model *model, const char *path, mr_error *err)
{
    const mr_env_type *type = model->type;
    const int joints = (type->observed + 1) / 2;
    loading l = {.path = path};
    if (!guarded(load_xml, &l) || !l.m) return mr_fail(err, MR_EFORMAT, "%s: %s", path, one_line(l.text));
    model->m = l.m;
    if (l.m->nq != joints || l.m->nv != joints || l.m->nu != type->acted || l.m->na)
        return mr_fail(err, MR_EDATA,
                       "%s is not the model of %s: it has %d positions, %d velocities and %d motors instead of %d, %d "
                       "and %d",
                       path, type->title, (int)l.m->nq, (int)l.m->nv, (int)l.m->nu, joints, joints, type->acted);
    return 0;
}

/* The first 16 digits of the SHA-256 of the file and MuJoCo's version. */
static int identify(mr_env_model *model, const char *path, mr_error *err)
{
    enum { LARGEST = 1 << 20 };
    mr_sha256 sha;
    char *text, digits[MR_SHA256_TEXT];
    size_t size;
    int status = mr_file_read(path, LARGEST, &text, &size, err);
    if (status) return status;
    mr_sha256_begin(&sha);
    mr_sha256_add(&sha, text, size);
    mr_sha256_add(&sha, mj_versionString(), strlen(mj_versionString()));
    mr_sha256_end(&sha, digits);
    memcpy(model->identity, digits, sizeof model->identity - 1);
    mr_free(text);
    return 0;
}

int mr_env_model_load(const mr_env_type *type, const char *assets, mr_env_model **out, mr_error *err)
{
    char *path;
    *out = NULL;
    if (mj_version() != mjVERSION_HEADER)
        return mr_fail(err, MR_ECONFIG,
                       "this minrnn was built for another MuJoCo than the %s that is installed; build "
                       "it again",
                       mj_versionString());
    mju_user_error = leave;
    mju_user_warning = ignore;
    int status = find_file(type, assets, &path, err);
    if (status) return status;
    mr_env_model *model = mr_alloc(1, sizeof *model);
    if (model) {
        *model = (mr_env_model){.type = type, .rules = &all_rules[type - mr_env_types]};
        status = identify(model, path, err);
        if (!status) status = load_model(model, path, err);
    } else status = mr_no_memory(err, "a model of MuJoCo");
    mr_free(path);
    if (status) mr_env_model_free(model);
    else *out = model;
    return status;
}

void mr_env_model_free(mr_env_model *model)
{
    if (model && model->m) mj_deleteModel(model->m);
    mr_free(model);
}

const mr_env_type *mr_env_model_type(const mr_env_model *model) { return model->type; }
const char *mr_env_model_identity(const mr_env_model *model) { return model->identity; }

/* ---- the simulation */

static void make_data(void *arg)
{
    mr_env *env = arg;
    env->d = mj_makeData(env->model->m);
}

int mr_env_new(const mr_env_model *model, mr_env **out, mr_error *err)
{
    mr_env *env = mr_alloc(1, sizeof *env);
    *out = NULL;
    if (env) env->model = model;
    if (!env || !guarded(make_data, env) || !env->d) {
        mr_env_free(env);
        return mr_no_memory(err, "a simulation");
    }
    *out = env;
    return 0;
}

void mr_env_free(mr_env *env)
{
    if (env && env->d) mj_deleteData(env->d);
    mr_free(env);
}

static void observe(const mr_env *env, double *observation)
{
    const int positions = (int)env->model->m->nq - 1, velocities = (int)env->model->m->nv;
    const double most = env->model->rules->most_velocity;
    memcpy(observation, env->d->qpos + 1, (size_t)positions * sizeof *observation);
    for (int i = 0; i < velocities; i++) observation[positions + i] = fmin(fmax(env->d->qvel[i], -most), most);
}

static void forward(void *arg)
{
    mr_env *env = arg;
    mj_forward(env->model->m, env->d);
}

static void begin(mr_env *env, double *observation)
{
    env->broken = !guarded(forward, env);
    observe(env, observation);
}

void mr_env_reset(mr_env *env, uint64_t seed, uint64_t episode, double *observation)
{
    const mjModel *m = env->model->m;
    const rules *r = env->model->rules;
    mr_rng rng = mr_rng_at(seed, MR_STREAM_ENV, (uint32_t)episode, (uint32_t)(episode >> 32));
    mj_resetData(m, env->d);
    for (int i = 0; i < m->nq; i++) env->d->qpos[i] += r->spread * (2 * mr_rng_uniform(&rng) - 1);
    for (int i = 0; i < m->nv; i++)
        env->d->qvel[i] += r->spread * (r->normal_velocities ? mr_rng_normal(&rng) : 2 * mr_rng_uniform(&rng) - 1);
    begin(env, observation);
}

void mr_env_set_state(mr_env *env, const double *positions, const double *velocities, double *observation)
{
    const mjModel *m = env->model->m;
    mj_resetData(m, env->d);
    memcpy(env->d->qpos, positions, (size_t)m->nq * sizeof *positions);
    memcpy(env->d->qvel, velocities, (size_t)m->nv * sizeof *velocities);
    begin(env, observation);
}

static void simulate(void *arg)
{
    mr_env *env = arg;
    for (int i = 0; i < env->model->rules->skip; i++) mj_step(env->model->m, env->d);
}

/* MuJoCo counts numbers that are no longer sane, and resets the simulation by itself. */
static int diverged(const mjData *d)
{
    return d->warning[mjWARN_BADQPOS].number || d->warning[mjWARN_BADQVEL].number ||
           d->warning[mjWARN_BADQACC].number || d->warning[mjWARN_BADCTRL].number;
}

static int within(const double *numbers, int count, double most)
{
    for (int i = 0; i < count; i++)
        if (!(fabs(numbers[i]) < most)) return 0;
    return 1;
}

static int healthy(const mr_env *env)
{
    const rules *r = env->model->rules;
    const mjModel *m = env->model->m;
    const double z = env->d->qpos[1], angle = env->d->qpos[2];
    return r->low < z && z < r->high && fabs(angle) < r->lean && within(env->d->qpos + 2, (int)m->nq - 2, r->wild) &&
           within(env->d->qvel, (int)m->nv, r->wild);
}

mr_env_result mr_env_step(mr_env *env, const float *action, double *observation)
{
    const rules *r = env->model->rules;
    const mjModel *m = env->model->m;
    const double before = env->d->qpos[0], seconds = m->opt.timestep * r->skip;
    double squares = 0;
    for (int i = 0; i < m->nu; i++) {
        env->d->ctrl[i] = action[i];
        squares += (double)action[i] * action[i];
    }
    if (!env->broken) env->broken = !guarded(simulate, env) || diverged(env->d);
    observe(env, observation);
    const double reward = (env->d->qpos[0] - before) / seconds + r->alive - r->cost * squares;
    if (env->broken || !isfinite(reward)) return (mr_env_result){.reward = 0, .terminal = 1};
    return (mr_env_result){.reward = reward, .terminal = !healthy(env)};
}

/* ---- for drawing */

static void place_parts(void *arg)
{
    mr_env *env = arg;
    mj_kinematics(env->model->m, env->d); /* MuJoCo's step leaves them where they were before it */
}

int mr_env_parts(const mr_env *env, double (*parts)[4], int room)
{
    const mjModel *m = env->model->m;
    int count = 0;
    mr_env writable = *env;
    if (!guarded(place_parts, &writable)) return 0;
    for (int i = 0; i < m->ngeom && count < room; i++) {
        const double *at = env->d->geom_xpos + 3 * i, *turned = env->d->geom_xmat + 9 * i;
        const double half = m->geom_size[3 * i + 1], x = half * turned[2], z = half * turned[8];
        if (m->geom_type[i] != mjGEOM_CAPSULE) continue;
        parts[count][0] = at[0] - x, parts[count][1] = at[2] - z;
        parts[count][2] = at[0] + x, parts[count][3] = at[2] + z;
        count++;
    }
    return count;
}
