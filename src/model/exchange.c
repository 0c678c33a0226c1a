/* Messages between devices: directly, or through memory of the host. */
#include "model/exchange.h"

void mr_staging_free(mr_staging *s, mr_dev *dev)
{
    mr_free_with(dev->allocator, s->bytes);
    *s = (mr_staging){0};
}

static int make_room(mr_staging *s, mr_dev *dev, size_t bytes)
{
    if (bytes <= s->room) return 0;
    mr_staging_free(s, dev);
    s->bytes = mr_alloc_with(dev->allocator, bytes, 1);
    s->room = s->bytes ? bytes : 0;
    return s->bytes ? 0 : MR_ENOMEM;
}

static int through_host(mr_comm *comm, mr_dev *dev, mr_staging *s, const mr_message *list, int count, mr_message *host,
                        mr_error *err)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        host[i] = list[i];
        host[i].at = s->bytes + at;
        at += list[i].bytes;
        if (!list[i].receive) dev->download(dev, host[i].at, list[i].at, list[i].bytes);
    }
    int status = dev->sync(dev, err);
    if (!status) status = comm->exchange(comm, host, count, NULL, err);
    for (int i = 0; !status && i < count; i++)
        if (list[i].receive) dev->upload(dev, list[i].at, host[i].at, list[i].bytes);
    return status ? status : dev->sync(dev, err); /* the next call writes into the staging memory again */
}

int mr_exchange(mr_comm *comm, mr_dev *dev, mr_staging *s, const mr_message *list, int count, mr_error *err)
{
    size_t bytes = 0;
    if (!count) return 0;
    if (comm->device_memory || dev->host_floats) return comm->exchange(comm, list, count, dev->stream, err);
    for (int i = 0; i < count; i++) bytes += list[i].bytes;
    mr_message *host = mr_alloc_with(dev->allocator, (size_t)count, sizeof *host);
    int status = !host || make_room(s, dev, bytes) ? mr_no_memory(err, "messages between ranks")
                                                   : through_host(comm, dev, s, list, count, host, err);
    mr_free_with(dev->allocator, host);
    return status;
}
