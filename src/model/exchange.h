/* Messages between the devices of ranks. */
#ifndef MR_MODEL_EXCHANGE_H
#define MR_MODEL_EXCHANGE_H

#include "comm/comm.h"
#include "ops/device.h"

/* Host memory for messages of a device whose memory the engine cannot reach. All zero at first. */
typedef struct mr_staging {
    char *bytes;
    size_t room;
} mr_staging;

void mr_staging_free(mr_staging *staging, mr_dev *dev);

/* mr_comm.exchange for memory of the device: directly where the engine can reach it, otherwise through the host. Work
 * that the device does later comes after it. */
int mr_exchange(mr_comm *comm, mr_dev *dev, mr_staging *staging, const mr_message *list, int count, mr_error *err);

#endif
