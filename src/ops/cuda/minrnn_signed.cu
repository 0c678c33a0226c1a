/* Gates and recurrence with transition = signed. */
#include "ops/cuda/scan_launch.cuh"

template <class ACT> static void by_kind(mr_cuda *c, const mr_cell *cell, const scan_args &g, scan_way way)
{
    if (cell->kind == MR_MINGRU) by_candidate<ACT, SIGNED_GRU>(c, cell, g, way);
    else if (cell->normalize) by_candidate<ACT, SIGNED_LSTM_NORM>(c, cell, g, way);
    else by_candidate<ACT, SIGNED_LSTM>(c, cell, g, way);
}

void mr_cuda_scan_signed(mr_cuda *c, const mr_cell *cell, const scan_args &g, scan_way way)
{
    BY_ACT(c, by_kind, c, cell, g, way);
}
