/* Messages between the devices of ranks: through the memory of the GPU or of the host, and, where possible, while the
 * device computes. */
#ifndef MR_MODEL_EXCHANGE_H
#define MR_MODEL_EXCHANGE_H

#include "comm/courier.h"
#include "ops/device.h"

typedef struct mr_channel {
    mr_comm *comm;
    mr_courier *courier; /* for engines that reach the device's memory without its stream; otherwise NULL */
    /* host memory for messages of a device whose memory the engine cannot reach */
    char *staging;
    size_t room;
    /* device memory for mr_channel_gather with an engine that reaches no other */
    char *landing;
    size_t landing_room;
} mr_channel;

/* courier: of the same ranks. It may be NULL, and is not used where the device needs staging or a stream. */
mr_channel mr_channel_over(mr_comm *comm, mr_courier *courier);
void mr_channel_free(mr_channel *channel, mr_dev *dev);

/* mr_comm.exchange for memory of the device. What the device was told before is done before, and the list must stay as
 * it is until mr_channel_wait. *number: for that. */
int mr_channel_post(mr_channel *channel, mr_dev *dev, const mr_message *list, int count, int64_t *number,
                    mr_error *err);
/* What the device is told from now on comes after this exchange. wrote, bytes: memory that its messages may have
 * changed; bytes 0: none that keeps its value for long. */
int mr_channel_wait(mr_channel *channel, mr_dev *dev, int64_t number, const void *wrote, size_t bytes, mr_error *err);

/* Every rank's `bytes` of host memory, in the order of ranks, to all of them. */
int mr_channel_gather(mr_channel *channel, mr_dev *dev, const void *mine, void *all, size_t bytes, mr_error *err);

#endif
