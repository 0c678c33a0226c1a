/* Contexts: they read the options, open and lend devices, and write the log. */
#include "api/api.h"

#include "core/pool.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int mr_sized_copy(void *to, size_t known, const void *from, const char *type, mr_error *err)
{
    size_t size = 0;
    if (from) memcpy(&size, from, sizeof size);
    if (size < sizeof size) return mr_fail(err, MR_EINVAL, "%s: its size is not set; start from its initialiser", type);
    for (size_t i = known; i < size; i++)
        if (((const char *)from)[i])
            return mr_fail(err, MR_EINVAL, "%s: has a field that this library (%s) does not know", type, MR_VERSION);
    memset(to, 0, known);
    memcpy(to, from, size < known ? size : known);
    return 0;
}

int mr_check_capacity(const void *to, size_t capacity, size_t needed, const char *what, mr_error *err)
{
    if (to && capacity >= needed) return 0;
    return mr_fail(err, MR_EINVAL, "%s: room for %zu where %zu are needed", what, to ? capacity : 0, needed);
}

void mr_context_log(mr_context *ctx, const char *format, ...)
{
    char line[512];
    va_list args;
    if (!ctx->log) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    ctx->log(ctx->log_user, line);
}

/* ---- lending devices ---- */

/* Opens one more device and makes room for it in the list. Called with the lock held. */
static mr_dev *make_device(mr_context *ctx, mr_error *err)
{
    mr_dev *dev;
    if (ctx->devices == ctx->room) {
        const int room = 2 * ctx->room + 4;
        mr_dev **idle = mr_alloc_with(&ctx->allocator, (size_t)room, sizeof *idle);
        if (!idle) return mr_no_memory(err, "a device"), NULL;
        if (ctx->idle_count) memcpy(idle, ctx->idle, (size_t)ctx->idle_count * sizeof *idle);
        mr_free_with(&ctx->allocator, ctx->idle);
        ctx->idle = idle;
        ctx->room = room;
    }
    if (mr_dev_open(ctx->spec, &ctx->options, &dev, err)) return NULL;
    ctx->devices++;
    return dev;
}

mr_dev *mr_context_borrow(mr_context *ctx)
{
    mr_dev *dev = NULL;
    pthread_mutex_lock(&ctx->lock);
    if (!ctx->idle_count && ctx->devices < ctx->max_devices) dev = make_device(ctx, NULL);
    while (!dev && !ctx->idle_count) pthread_cond_wait(&ctx->returned, &ctx->lock);
    if (!dev) dev = ctx->idle[--ctx->idle_count];
    pthread_mutex_unlock(&ctx->lock);
    if (dev->enter) dev->enter(dev);
    return dev;
}

void mr_context_return(mr_context *ctx, mr_dev *dev)
{
    pthread_mutex_lock(&ctx->lock);
    ctx->idle[ctx->idle_count++] = dev;
    pthread_cond_signal(&ctx->returned);
    pthread_mutex_unlock(&ctx->lock);
}

/* ---- making and freeing ---- */

static int take_allocator(mr_allocator *to, const mr_allocator *from, mr_error *err)
{
    *to = (mr_allocator){0};
    if (!from) return 0;
    int status = mr_sized_copy(to, sizeof *to, from, "mr_allocator", err);
    if (!status && !to->alloc != !to->release)
        status = mr_fail(err, MR_EINVAL, "allocator: has alloc or release, but not both");
    return status;
}

/* Opens the first device. A GPU is a single queue, so its device is lent to one call at a time. */
static int open_first(mr_context *ctx, const char *spec, mr_error *err)
{
    ctx->spec = spec;
    mr_dev *dev = make_device(ctx, err);
    if (!dev) return err->status;
    ctx->spec = dev->kind;
    ctx->index = dev->index;
    ctx->stream = dev->stream;
    ctx->max_devices = dev->queue ? 1 : 1 << 20;
    ctx->idle[ctx->idle_count++] = dev;
    snprintf(ctx->chip, sizeof ctx->chip, "%s", dev->name ? dev->name : "");
    ctx->threads = dev->threads;
    snprintf(ctx->description, sizeof ctx->description, "%s%s%s", dev->kind, *dev->isa ? " " : "", dev->isa);
    mr_context_log(ctx, "minrnn " MR_VERSION ": %s, %d thread%s per call", ctx->description, dev->threads,
                   dev->threads > 1 ? "s" : "");
    return 0;
}

int mr_context_new(const mr_context_options *options, mr_context **out, mr_error *err)
{
    static const mr_context_options plain = MR_CONTEXT_OPTIONS;
    mr_context_options o;
    mr_allocator allocator;
    mr_error ignored;
    *out = NULL;
    if (!err) err = &ignored;
    int status = mr_sized_copy(&o, sizeof o, options ? options : &plain, "mr_context_options", err);
    if (!status) status = take_allocator(&allocator, o.allocator, err);
    if (status) return status;
    mr_context *ctx = mr_alloc_with(&allocator, 1, sizeof *ctx);
    if (!ctx) return mr_no_memory(err, "a context");
    *ctx = (mr_context){.allocator = allocator, .cut = 1, .log = o.log, .warn = o.warn, .log_user = o.log_user};
    ctx->options = (mr_dev_options){.threads = o.threads,
                                    .bf16 = o.bf16,
                                    .exact = o.exact,
                                    .allocator = &ctx->allocator,
                                    .stream = o.cuda_stream,
                                    .tell = o.warn,
                                    .tell_user = o.log_user};
    pthread_mutex_init(&ctx->lock, NULL);
    pthread_mutex_init(&ctx->raw_lock, NULL);
    pthread_cond_init(&ctx->returned, NULL);
    status = open_first(ctx, o.device ? o.device : "auto", err);
    if (status) mr_context_free(ctx);
    else *out = ctx;
    return status;
}

void mr_context_free(mr_context *ctx)
{
    if (!ctx) return;
    const mr_allocator allocator = ctx->allocator;
    for (int i = 0; i <= MR_F64; i++) {
        if (ctx->raw[i] && ctx->raw[i]->enter) ctx->raw[i]->enter(ctx->raw[i]);
        mr_dev_close(ctx->raw[i]);
    }
    mr_context_leave(ctx);
    for (int i = 0; i < ctx->idle_count; i++) {
        if (ctx->idle[i]->enter) ctx->idle[i]->enter(ctx->idle[i]);
        mr_dev_close(ctx->idle[i]);
    }
    mr_free_with(&allocator, ctx->idle);
    pthread_cond_destroy(&ctx->returned);
    pthread_mutex_destroy(&ctx->raw_lock);
    pthread_mutex_destroy(&ctx->lock);
    mr_free_with(&allocator, ctx);
}

const char *mr_context_device(const mr_context *ctx) { return ctx->description; }
const char *mr_context_chip(const mr_context *ctx) { return ctx->chip; }

int mr_cuda_count(void)
{
    mr_card card = {0};
    mr_cuda_look(0, &card);
    return card.count;
}

int mr_processors_allowed(void) { return mr_processors(); }

int mr_uses_cblas(void)
{
#ifdef MINRNN_WITH_CBLAS
    return 1;
#else
    return 0;
#endif
}

int mr_context_threads(const mr_context *ctx) { return ctx->threads; }

int mr_context_wait(mr_context *ctx, mr_error *err)
{
    mr_dev *dev = mr_context_borrow(ctx);
    int status = dev->sync(dev, err);
    mr_context_return(ctx, dev);
    return status;
}
