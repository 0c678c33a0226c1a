/* Tasks: the list of all, and the life of one. */
#include "tasks/task.h"

#include "core/mem.h"

#include <string.h>

#define TASK(type) extern const mr_task_type type;
#include "tasks/tasks.def"
#undef TASK

static const mr_task_type *const types[] = {
#define TASK(type) &type,
#include "tasks/tasks.def"
#undef TASK
    NULL};

const mr_task_type *const *mr_task_types(void) { return types; }

const mr_task_type *mr_task_type_find(const char *name)
{
    for (const mr_task_type *const *type = types; *type; type++)
        if (strcmp((*type)->name, name) == 0) return *type;
    return NULL;
}

const char *mr_task_scored(const mr_task *task)
{
    const mr_option *split = mr_option_find(task->type->options, "split");
    if (!split || split->type != MR_OPT_CHOICE) return task->type->scored ? task->type->scored : "test";
    return split->choices[*(const int *)(const void *)((const char *)task->settings + split->offset)];
}

int mr_task_new(const mr_task_type *type, mr_task **out, mr_error *err)
{
    mr_task *task = mr_alloc(1, sizeof *task);
    void *settings = mr_alloc(1, type->settings_size);
    *out = NULL;
    if (!task || !settings) {
        mr_free(task);
        mr_free(settings);
        return mr_no_memory(err, "the task");
    }
    task->type = type;
    task->settings = settings;
    mr_options_default(type->options, settings);
    *out = task;
    return 0;
}

static void close_task(mr_task *task)
{
    if (task->type->close) task->type->close(task);
    task->data = NULL;
    task->vocab = NULL;
}

int64_t mr_task_stage(uint32_t step, int stages, int64_t grow_steps)
{
    const int64_t before = step ? (int64_t)step - 1 : 0, stage = stages * before / grow_steps;
    return stage < stages ? stage : stages;
}

void mr_task_shapes(const mr_task *task, mr_shape shapes[2])
{
    shapes[0] = (mr_shape){task->batch, task->train_T ? task->train_T : task->max_T};
    shapes[1] = (mr_shape){task->eval_rows ? task->eval_rows : task->batch, task->max_T};
}

int mr_task_open(mr_task *task, mr_error *err)
{
    if (task->batch < 1)
        return mr_fail(err, MR_ECONFIG, "batch = %d: a batch has at least one row; raise --batch", task->batch);
    int status = task->type->open(task, err);
    if (status) close_task(task);
    return status;
}

void mr_task_free(mr_task *task)
{
    if (!task) return;
    close_task(task);
    mr_free(task->settings);
    mr_free(task);
}
