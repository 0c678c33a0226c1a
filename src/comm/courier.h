/* A thread that carries out exchanges one after another, while another thread computes. */
#ifndef MR_COMM_COURIER_H
#define MR_COMM_COURIER_H

#include "comm/comm.h"

typedef struct mr_courier mr_courier;

/* NULL: no memory, or the thread could not be started. */
mr_courier *mr_courier_new(mr_comm *comm, const mr_allocator *allocator);
/* Waits for what was posted. NULL is fine. */
void mr_courier_free(mr_courier *courier);

/* Queues an exchange; the list must stay as it is until it is done. Returns its number, for mr_courier_wait. When the
 * queue is full, waits for room. */
int64_t mr_courier_post(mr_courier *courier, const mr_message *list, int count);
/* Waits until this exchange and all before it are done. After a failure every later exchange has failed, too. */
int mr_courier_wait(mr_courier *courier, int64_t number, mr_error *err);

#endif
