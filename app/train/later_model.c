/* Is the model of a run later than its state? */
#include "train/later_model.h"

#include "core/file.h"
#include "core/mem.h"
#include "core/safetensors.h"
#include "minrnn.h"

#include <stdlib.h>
#include <string.h>

/* A model has nothing in its metadata that the state of its run lacks, but for its step. */
static int is_same_run(const mr_st *model, const mr_st *state)
{
    for (int i = 0; i < mr_st_meta_count(model); i++) {
        const char *key, *value;
        mr_st_meta_at(model, i, &key, &value);
        const char *other = mr_st_meta(state, key);
        if (strcmp(key, "step") && (!other || strcmp(other, value))) return 0;
    }
    return mr_st_meta_count(model) > 0;
}

/* By its metadata alone. */
static int64_t later_step(const char *path, const char *state_path, int64_t step, int *status)
{
    mr_st *model = NULL, *state = NULL;
    *status = mr_st_open(path, &model, NULL);
    if (!*status) *status = mr_st_open(state_path, &state, NULL);
    const char *text = *status || !is_same_run(model, state) ? NULL : mr_st_meta(model, "step");
    const int64_t found = text ? strtoll(text, NULL, 10) : 0;
    mr_st_close(model);
    mr_st_close(state);
    return found > step ? found : 0;
}

/* Is everything in the file as it should be? On the CPU, whatever the run uses. */
static int open_model(const char *path)
{
    mr_context_options options = MR_CONTEXT_OPTIONS;
    mr_context *ctx = NULL;
    mr_net *net = NULL;
    options.device = "cpu";
    options.threads = 1;
    int status = mr_context_new(&options, &ctx, NULL);
    if (!status) status = mr_net_open(ctx, path, &net, NULL);
    mr_net_free(net);
    mr_context_free(ctx);
    return status;
}

int mr_later_model(const char *dir, const char *state, int64_t step, int64_t *later, mr_error *err)
{
    int status = 0;
    char *path = mr_path_join(dir, "model.safetensors");
    *later = 0;
    if (!path) return mr_no_memory(err, dir);
    if (mr_path_exists(path)) *later = later_step(path, state, step, &status);
    if (*later) status = open_model(path);
    if (status) *later = 0;
    mr_free(path);
    return status == MR_ENOMEM ? mr_no_memory(err, "model.safetensors") : 0;
}
