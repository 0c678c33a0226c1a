/* Messages between devices: by the courier's thread, in the GPU's second stream, or through memory of the host. */
#include "model/exchange.h"

#include <string.h>

mr_channel mr_channel_over(mr_comm *comm, mr_courier *courier)
{
    return (mr_channel){.comm = comm, .courier = courier};
}

void mr_channel_free(mr_channel *c, mr_dev *dev)
{
    mr_free_with(dev->allocator, c->staging);
    if (c->landing) dev->release(dev, c->landing);
    *c = (mr_channel){0};
}

static int make_room(mr_channel *c, mr_dev *dev, size_t bytes)
{
    if (bytes <= c->room) return 0;
    mr_free_with(dev->allocator, c->staging);
    c->staging = mr_alloc_with(dev->allocator, bytes, 1);
    c->room = c->staging ? bytes : 0;
    return c->staging ? 0 : MR_ENOMEM;
}

static int with_copies(mr_channel *c, mr_dev *dev, const mr_message *list, int count, mr_message *host, mr_error *err)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        host[i] = list[i];
        host[i].at = c->staging + at;
        at += list[i].bytes;
        if (!list[i].receive) dev->download(dev, host[i].at, list[i].at, list[i].bytes);
    }
    int status = dev->sync(dev, err);
    if (!status) status = c->comm->exchange(c->comm, host, count, NULL, err);
    for (int i = 0; !status && i < count; i++)
        if (list[i].receive) dev->upload(dev, list[i].at, host[i].at, list[i].bytes);
    return status ? status : dev->sync(dev, err); /* the next call writes into the staging memory again */
}

static int through_host(mr_channel *c, mr_dev *dev, const mr_message *list, int count, mr_error *err)
{
    size_t bytes = 0;
    for (int i = 0; i < count; i++) bytes += list[i].bytes;
    if (!count) return 0;
    mr_message *host = mr_alloc_with(dev->allocator, (size_t)count, sizeof *host);
    int status = !host || make_room(c, dev, bytes) ? mr_no_memory(err, "messages between ranks")
                                                   : with_copies(c, dev, list, count, host, err);
    mr_free_with(dev->allocator, host);
    return status;
}

int mr_channel_post(mr_channel *c, mr_dev *dev, const mr_message *list, int count, int64_t *number, mr_error *err)
{
    *number = -1;
    if (c->comm->device_memory) return c->comm->exchange(c->comm, list, count, dev->fork(dev), err);
    if (!dev->host_floats) return through_host(c, dev, list, count, err);
    if (!c->courier) return c->comm->exchange(c->comm, list, count, NULL, err);
    *number = mr_courier_post(c->courier, list, count);
    return 0;
}

int mr_channel_wait(mr_channel *c, mr_dev *dev, int64_t number, const void *wrote, size_t bytes, mr_error *err)
{
    if (c->comm->device_memory) dev->join(dev, wrote, bytes);
    return number < 0 ? 0 : mr_courier_wait(c->courier, number, err);
}

/* ---- small things of the host ---- */

/* To every other rank, and from each. */
static void gather_list(const mr_comm *comm, mr_message *list, void *mine, char *all, size_t bytes)
{
    int count = 0;
    for (int peer = 0; peer < comm->size; peer++) {
        if (peer == comm->rank) continue;
        list[count++] = (mr_message){.peer = peer, .at = mine, .bytes = bytes};
        list[count++] = (mr_message){.peer = peer, .receive = 1, .at = all + (size_t)peer * bytes, .bytes = bytes};
    }
}

static int grow_landing(mr_channel *c, mr_dev *dev, size_t bytes)
{
    if (bytes <= c->landing_room) return 1;
    if (c->landing) dev->release(dev, c->landing);
    c->landing = dev->alloc(dev, bytes);
    c->landing_room = c->landing ? bytes : 0;
    return c->landing != NULL;
}

/* For an engine that reaches the GPU's memory only. */
static int gather_on_device(mr_channel *c, mr_dev *dev, mr_message *list, const void *mine, void *all, size_t bytes,
                            mr_error *err)
{
    const size_t total = bytes * (size_t)c->comm->size;
    if (!grow_landing(c, dev, total)) return mr_no_memory(err, "messages between ranks");
    char *memory = c->landing, *place = memory + (size_t)c->comm->rank * bytes;
    int64_t number;
    dev->upload(dev, place, mine, bytes);
    gather_list(c->comm, list, place, memory, bytes);
    int status = mr_channel_post(c, dev, list, 2 * (c->comm->size - 1), &number, err);
    if (!status) status = mr_channel_wait(c, dev, number, NULL, 0, err);
    if (!status) dev->download(dev, all, memory, total);
    return status ? status : dev->sync(dev, err);
}

int mr_channel_gather(mr_channel *c, mr_dev *dev, const void *mine, void *all, size_t bytes, mr_error *err)
{
    const size_t others = 2 * (size_t)(c->comm->size - 1);
    mr_message *list = mr_alloc_with(dev->allocator, others, sizeof *list);
    if (!list) return mr_no_memory(err, "messages between ranks");
    memcpy((char *)all + (size_t)c->comm->rank * bytes, mine, bytes);
    int status;
    if (c->comm->device_memory) status = gather_on_device(c, dev, list, mine, all, bytes, err);
    else {
        gather_list(c->comm, list, (char *)all + (size_t)c->comm->rank * bytes, all, bytes);
        status = c->comm->exchange(c->comm, list, (int)others, NULL, err);
    }
    mr_free_with(dev->allocator, list);
    return status;
}
