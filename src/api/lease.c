/* Leases: many calls may run a net's weights at once, each with its own device and runner; a call that changes the
 * weights has the net to itself. */
#include "api/api.h"

/* A thread that keeps a forward would wait for itself for ever. Called with the lock held. */
static int check_holder(const mr_net *net, mr_error *err)
{
    if (!net->kept.holding || !pthread_equal(net->kept.holder, pthread_self())) return 0;
    return mr_fail(err, MR_EINVAL,
                   "this thread keeps a forward of this net: call mr_net_backward or mr_net_drop first");
}

/* Waits for the net. Calls that wait to train go before later readers, so readers cannot starve them. */
static int enter(mr_net *net, int exclusive, mr_error *err)
{
    pthread_mutex_lock(&net->lock);
    int status = check_holder(net, err);
    if (!status && exclusive) {
        net->waiting_to_train++;
        while (net->running || net->training) pthread_cond_wait(&net->lease_ended, &net->lock);
        net->waiting_to_train--;
        net->training = 1;
    } else if (!status) {
        while (net->training || net->waiting_to_train) pthread_cond_wait(&net->lease_ended, &net->lock);
        net->running++;
    }
    pthread_mutex_unlock(&net->lock);
    return status;
}

static void leave(mr_net *net, int exclusive)
{
    pthread_mutex_lock(&net->lock);
    if (exclusive) net->training = 0;
    else net->running--;
    pthread_cond_broadcast(&net->lease_ended);
    pthread_mutex_unlock(&net->lock);
}

/* Takes an idle runner: one that is planned for this shape, else any; NULL: none is idle. */
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
    mr_runner *runner = mr_alloc_with(dev->allocator, 1, sizeof *runner);
    *out = NULL;
    if (!runner) return mr_no_memory(err, "a runner");
    int status = mr_model_share(net->owner, dev, &runner->model, err);
    if (status) mr_free_with(dev->allocator, runner);
    else *out = runner;
    return status;
}

static int take_runner(mr_lease *lease, int B, int T, mr_error *err)
{
    mr_runner *runner = take_idle(lease->net, B, T);
    int status = runner ? 0 : new_runner(lease->net, lease->dev, &runner, err);
    if (status) return status;
    lease->runner = runner;
    mr_model_use(runner->model, lease->dev);
    if (mr_model_fits(runner->model, B, T, 0)) return 0;
    status = mr_model_plan_more(runner->model, B, T, err);
    if (!status)
        mr_context_log(lease->net->ctx, "memory for %d × %d tokens: %zu bytes", B, T,
                       mr_model_planned_bytes(runner->model));
    return status;
}

int mr_lease_begin(mr_lease *lease, mr_net *net, int B, int T, mr_error *err)
{
    *lease = (mr_lease){.net = net};
    int status = enter(net, 0, err);
    if (status) return status;
    lease->dev = mr_context_borrow(net->ctx);
    status = take_runner(lease, B, T, err);
    return status ? mr_lease_end(lease, status, err) : 0;
}

int mr_lease_begin_exclusive(mr_lease *lease, mr_net *net, mr_error *err)
{
    *lease = (mr_lease){.net = net, .exclusive = 1};
    int status = enter(net, 1, err);
    if (status) return status;
    lease->dev = mr_context_borrow(net->ctx);
    mr_model_use(net->owner, lease->dev);
    return 0;
}

int mr_lease_end(mr_lease *lease, int status, mr_error *err)
{
    int report = lease->dev->sync(lease->dev, status ? NULL : err);
    if (lease->runner) put_idle(lease->net, lease->runner);
    mr_context_return(lease->net->ctx, lease->dev);
    leave(lease->net, lease->exclusive);
    return status ? status : report;
}

int mr_lease_hold(mr_lease *lease, int status, mr_error *err)
{
    if (!status) status = lease->dev->sync(lease->dev, err);
    if (status) return mr_lease_end(lease, status, err);
    pthread_mutex_lock(&lease->net->lock);
    lease->net->kept.holding = 1;
    lease->net->kept.holder = pthread_self();
    pthread_mutex_unlock(&lease->net->lock);
    mr_context_return(lease->net->ctx, lease->dev);
    return 0;
}

int mr_lease_resume(mr_lease *lease, mr_net *net)
{
    *lease = (mr_lease){.net = net, .exclusive = 1};
    pthread_mutex_lock(&net->lock);
    const int kept = net->kept.holding;
    net->kept.holding = 0;
    pthread_mutex_unlock(&net->lock);
    if (!kept) return 0;
    lease->dev = mr_context_borrow(net->ctx);
    mr_model_use(net->owner, lease->dev);
    return 1;
}
