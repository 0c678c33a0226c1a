/* Keys that identify a model's repeated work, so that a device can replay a recording of it. Addresses in keys are only
 * compared. */
#include "model/network.h"

static unsigned flag(int is, unsigned bit) { return is ? bit : 0; }

mr_replay_key mr_step_key(const void *model, const void *state, const mr_batch *batch, int draw)
{
    return (mr_replay_key){.work = MR_REPLAY_STEP,
                           .model = model,
                           .state = state,
                           .B = batch->B,
                           .T = batch->T,
                           .flags = flag(batch->reset != NULL, MR_REPLAY_RESET) |
                                    flag(batch->length != NULL, MR_REPLAY_LENGTH) | flag(draw, MR_REPLAY_DRAW)};
}

/* A recording holds no messages. */
void mr_run_replayed(mr_model *m, const mr_replay_key *key, void (*work)(void *), void *arg)
{
    if (m->sequence || m->sending) work(arg);
    else m->dev->replay(m->dev, key, work, arg);
}

mr_replay_key mr_learn_key(const void *model, const mr_batch *batch, const mr_state *state, int first, int last)
{
    return (mr_replay_key){.work = MR_REPLAY_LEARN,
                           .model = model,
                           .state = state ? state->reals : NULL,
                           .B = batch->B,
                           .T = batch->T,
                           .flags = flag(batch->reset != NULL, MR_REPLAY_RESET) |
                                    flag(batch->length != NULL, MR_REPLAY_LENGTH) | flag(first, MR_REPLAY_FIRST) |
                                    flag(last, MR_REPLAY_LAST) | flag(state && state->under_way, MR_REPLAY_CARRIED)};
}

mr_replay_key mr_chunk_key(const void *model, mr_replay_work work, const mr_batch *chunk, int carried)
{
    return (mr_replay_key){.work = work,
                           .model = model,
                           .B = chunk->B,
                           .T = chunk->T,
                           .flags = flag(chunk->reset != NULL, MR_REPLAY_RESET) |
                                    flag(chunk->length != NULL, MR_REPLAY_LENGTH) | flag(carried, MR_REPLAY_CARRIED)};
}
