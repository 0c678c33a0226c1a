"""What the ops need on a GPU: the context of its device, PyTorch's current stream, and memory from PyTorch's allocator.

A call only launches into the current stream, and its memory belongs to that stream, so CUDA graphs can capture it.
"""
import functools

import torch

from .. import _core
from ..contexts import context

_LEGACY = 1  # cudaStreamLegacy: the default stream, whose handle is 0, where 0 would mean the context's own stream
_ROW = 16    # alignment in bytes that matrix products in bf16 need


# a tenth of what the public properties cost, which a call on few numbers feels
_precision = getattr(torch._C, "_get_fp32_precision_getter", None)  # since PyTorch 2.9
_handle = getattr(torch._C, "_cuda_getCurrentRawStream", None)      # where PyTorch is built for CUDA


def _tf32():
    """Whether PyTorch may round float32 products to TF32; then minrnn may, too."""
    return _precision("cuda", "matmul") == "tf32" if _precision else torch.backends.cuda.matmul.allow_tf32


def current_stream(index):
    """The handle of PyTorch's current stream."""
    return _handle(index) if _handle else torch.cuda.current_stream(index).cuda_stream


def _context(index, tf32):
    return context(f"cuda:{index}", exact=not tf32)


def place(device, recomputed=False):
    """The context and the stream of a device. recomputed: a backward for which nothing was kept. The kernels that do so
    round to TF32, so the forward did, even if PyTorch was told otherwise since."""
    return _context(device.index, recomputed or _tf32()), current_stream(device.index) or _LEGACY


@functools.lru_cache(4096)
def _cell_workspace(where, call, ints, flags):
    return _core.raw_cell_sizes(where, call, *ints, flags)[1]


@functools.lru_cache(4096)
def _scan_workspace(where, ints):
    return _core.raw_scan_workspace(where, *ints)


@functools.lru_cache(4096)
def _recomputes(index, tf32, bf16, kind, signed, D, H):
    if not torch.cuda.is_available():
        return False  # traced where there is no GPU: some memory too much
    return _core.raw_cell_sizes(_context(index, tf32), 0, int(bf16), kind, 0, 0, 1, int(signed), 1, 1, D, H, 1)[0] == 0


def recomputes(x, kind, signed, D, H):
    """Whether the kernels for these sizes keep nothing for the backward."""
    return _recomputes(x.device.index or 0, _tf32(), x.dtype == torch.bfloat16, kind, signed, int(D), int(H))


def cell_room(where, call, ints, weights, dx, device):
    """Workspace of a call of a cell with aligned arrays, as a tensor that lives until the launch is queued. weights and
    dx: whether they are there."""
    return torch.empty(_cell_workspace(where, call, ints, weights + 2 * dx), dtype=torch.uint8, device=device)


def scan_room(where, ints, device):
    """Workspace of a scan."""
    return torch.empty(_scan_workspace(where, ints), dtype=torch.uint8, device=device)


def aligned(x):
    """x, or a copy of it where it begins in the middle of a row of 16 bytes."""
    return x if x.data_ptr() % _ROW == 0 else x.clone()
