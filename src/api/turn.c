/* Turns: many calls run a net's weights at once, one at a time changes them; each has a device and a runner of its
 * own. */
#include "api/api.h"

/* A thread that keeps a forward would wait for itself. Called with the lock held. */
static int check_holder(const mr_net *net, mr_error *err)
{
    if (!net->kept.holding || !pthread_equal(net->kept.holder, pthread_self())) return 0;
    return mr_fail(err, MR_EINVAL,
                   "this thread keeps a forward of this net: call mr_net_backward or mr_net_drop first");
}

/* Those who want to train go before those who come later: steady traffic cannot keep them out. */
static int enter(mr_net *net, int alone, mr_error *err)
{
    pthread_mutex_lock(&net->lock);
    int status = check_holder(net, err);
    if (!status && alone) {
        net->wanting_to_train++;
        while (net->running || net->training) pthread_cond_wait(&net->turn, &net->lock);
        net->wanting_to_train--;
        net->training = 1;
    } else if (!status) {
        while (net->training || net->wanting_to_train) pthread_cond_wait(&net->turn, &net->lock);
        net->running++;
    }
    pthread_mutex_unlock(&net->lock);
    return status;
}

static void leave(mr_net *net, int alone)
{
    pthread_mutex_lock(&net->lock);
    if (alone) net->training = 0;
    else net->running--;
    pthread_cond_broadcast(&net->turn);
    pthread_mutex_unlock(&net->lock);
}

/* One that is planned for this shape, else any. */
static mr_runner *take_idle(mr_net *net, int B, int T)
{
    mr_runner **at, *taken;
    pthread_mutex_lock(&net->lock);
    for (at = &net->idle; *at && !mr_model_fits((*at)->model, B, T, 0);) at = &(*at)->next;
    if (!*at) at = &net->idle;
    taken = *at;
    if (taken) *at = taken->next;
    pthread_mutex_unlock(&net->lock);
    return taken;
}

static void put_idle(mr_net *net, mr_runner *runner)
{
    pthread_mutex_lock(&net->lock);
    runner->next = net->idle;
    net->idle = runner;
    pthread_mutex_unlock(&net->lock);
}

static int new_runner(mr_net *net, mr_dev *dev, mr_runner **out, mr_error *err)
{
    mr_runner *runner = mr_alloc_by(dev->by, 1, sizeof *runner);
    *out = NULL;
    if (!runner) return mr_no_memory(err, "a runner");
    int status = mr_model_share(net->owner, dev, &runner->model, err);
    if (status) mr_free_by(dev->by, runner);
    else *out = runner;
    return status;
}

static int take_runner(mr_turn *t, int B, int T, mr_error *err)
{
    mr_runner *runner = take_idle(t->net, B, T);
    int status = runner ? 0 : new_runner(t->net, t->dev, &runner, err);
    if (status) return status;
    t->runner = runner;
    mr_model_use(runner->model, t->dev);
    if (mr_model_fits(runner->model, B, T, 0)) return 0;
    status = mr_model_plan_more(runner->model, B, T, err);
    if (!status)
        mr_context_log(t->net->ctx, "memory for %d × %d tokens: %zu bytes", B, T,
                       mr_model_planned_bytes(runner->model));
    return status;
}

int mr_turn_begin(mr_turn *t, mr_net *net, int B, int T, mr_error *err)
{
    *t = (mr_turn){.net = net};
    int status = enter(net, 0, err);
    if (status) return status;
    t->dev = mr_context_borrow(net->ctx);
    status = take_runner(t, B, T, err);
    return status ? mr_turn_end(t, status, err) : 0;
}

int mr_turn_begin_alone(mr_turn *t, mr_net *net, mr_error *err)
{
    *t = (mr_turn){.net = net, .alone = 1};
    int status = enter(net, 1, err);
    if (status) return status;
    t->dev = mr_context_borrow(net->ctx);
    mr_model_use(net->owner, t->dev);
    return 0;
}

int mr_turn_end(mr_turn *t, int status, mr_error *err)
{
    int report = t->dev->sync(t->dev, status ? NULL : err);
    if (t->runner) put_idle(t->net, t->runner);
    mr_context_return(t->net->ctx, t->dev);
    leave(t->net, t->alone);
    return status ? status : report;
}

int mr_turn_pause(mr_turn *t, int status, mr_error *err)
{
    if (!status) status = t->dev->sync(t->dev, err);
    if (status) return mr_turn_end(t, status, err);
    pthread_mutex_lock(&t->net->lock);
    t->net->kept.holding = 1;
    t->net->kept.holder = pthread_self();
    pthread_mutex_unlock(&t->net->lock);
    mr_context_return(t->net->ctx, t->dev);
    return 0;
}

int mr_turn_resume(mr_turn *t, mr_net *net)
{
    *t = (mr_turn){.net = net, .alone = 1};
    pthread_mutex_lock(&net->lock);
    const int kept = net->kept.holding;
    net->kept.holding = 0;
    pthread_mutex_unlock(&net->lock);
    if (!kept) return 0;
    t->dev = mr_context_borrow(net->ctx);
    mr_model_use(net->owner, t->dev);
    return 1;
}
