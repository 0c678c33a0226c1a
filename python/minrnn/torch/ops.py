"""The operators minrnn::cell and minrnn::scan and their backwards, for CPU, CUDA and tracing.

They are plain: gradients and batching rules are in functions.py, results are contiguous, inputs never changed. Only
cell_backward_ consumes `saved`, which spares a copy; functions.py says when that is right. Gradients of arguments that
are absent, and that of an x which needs none, come back with no elements.
"""
import torch
from torch.utils._python_dispatch import _disable_current_modes

from .. import _core
from ..contexts import context
from ..scans import BACKWARD, BF16, CANDIDATES, F32, F64, FORWARD
from . import cuda

DTYPES = {torch.float32: F32, torch.bfloat16: BF16, torch.float64: F64}

_library = torch.library.Library("minrnn", "DEF")
_SHARED = "Tensor x, Tensor? weight, Tensor? bias, Tensor? h0, Tensor? h_init, Tensor? reset, Tensor? length, "
_KIND = "int kind, int candidate, bool normalize, bool signed"
_GRADIENTS = "(Tensor dx, Tensor dweight, Tensor dbias, Tensor dh0, Tensor dh_init)"


def wide(dtype):
    """The dtype of states and weights beside activations of a dtype."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _at(x):
    return None if x is None else x.data_ptr()


def _plain(x):
    return x if x is None or x.is_contiguous() else x.contiguous()


def _place(x, recomputed=False):
    """Context and stream for the arguments beside x."""
    if x.is_cuda:
        return cuda.place(x.device, recomputed)
    return context("ref" if x.dtype == torch.float64 else "cpu"), 0


def _cell_shape(x, weight, kind):
    """B, T, D, H, where x is the input, or without weight the pre-activations."""
    B, T, D = x.shape
    return B, T, D, (D if weight is None else weight.shape[0]) // (3 if kind else 2)


def _saved_bytes(x, weight, kind, signed, shape):
    """Bytes that a backward will need, and with them the padding at the end."""
    B, T, D, H = shape
    if weight is None or (x.is_cuda and cuda.recomputes(x, kind, signed, D, H)):
        return 0, 0
    on_cpu = not x.is_cuda
    item = 8 if x.dtype == torch.float64 else 2 if x.dtype == torch.bfloat16 and not on_cpu else 4
    unit, numbers = 64 if on_cpu else 256, B * T * H * (3 if kind else 2) * item
    return numbers, (numbers + unit - 1) // unit * unit


_SMALL = 1 << 14  # bytes that are zeroed faster than their end is found


def _new_saved(x, weight, kind, signed, shape):
    numbers, size = _saved_bytes(x, weight, kind, signed, shape)
    if numbers == size:
        return x.new_empty(size, dtype=torch.uint8)
    if size <= _SMALL:
        return x.new_zeros(size, dtype=torch.uint8)
    saved = x.new_empty(size, dtype=torch.uint8)
    saved[numbers:].zero_()  # the same bytes each time
    return saved


# ---- PyTorch's dispatcher, which costs as much as a small call, and where it can be left out

_no_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
may_be_direct = hasattr(torch._C.DispatchKeySet, "raw_repr")  # older versions: asking takes as long as dispatching
_is_plain = {}  # by dispatch keys: whether a tensor has nothing special to it, is no subclass, no view that negates, …


def _keys(x):
    keys = torch._C._dispatch_keys(x)
    return keys.raw_repr() if may_be_direct else str(keys)


def _plain_keys(device):
    """The keys of plain tensors, also while a mode is active that would make others of them."""
    made = []
    with _disable_current_modes():
        for inference in (False, True):
            with torch.inference_mode(inference):
                made.append(_keys(torch.empty(0, device=device)))
    return made


def plain(*tensors):
    """Whether all are plain tensors, or None."""
    for x in tensors:
        if x is not None:
            keys = _keys(x)
            if keys not in _is_plain:
                _is_plain[keys] = keys in _plain_keys(x.device)
            if not _is_plain[keys]:
                return False
    return True


def direct(*tensors):
    """Whether a kernel may be called without the dispatcher: eager code on plain tensors that nobody watches."""
    if not may_be_direct or _no_modes() or torch._C._get_tracing_state() or torch.autograd._profiler_enabled():
        return False
    return plain(*tensors)


# ---- checks: who calls an operator itself, or changes saved tensors by hooks, must not make a kernel read past an end

def _check(*wanted):
    for name, x, shape, dtype in wanted:
        if x is not None and (x.dtype != dtype or x.shape != shape):
            raise ValueError(f"{name}: is {x.dtype} of the shape {tuple(x.shape)}, where {dtype} of {tuple(shape)} is "
                             "needed")


def _check_cell(x, weight, bias, h0, h_init, reset, length, kind):
    B, T, D, H = _cell_shape(x, weight, kind)
    rows, states = H * (3 if kind else 2), wide(x.dtype)
    _check(("x", x, (B, T, rows if weight is None else D), x.dtype), ("weight", weight, (rows, D), states),
           ("bias", bias, (rows,), states), ("h0", h0, (B, H), states), ("h_init", h_init, (H,), states),
           ("reset", reset, (B, T), torch.uint8), ("length", length, (B,), torch.int32))


def _check_results(h, last, x, shape):
    """Results of a forward, or their gradients."""
    _check(("h", h, shape, x.dtype), ("last", last, (shape[0], shape[2]), wide(x.dtype)))


def _check_scan(a, h0, reset, length):
    B, T, H = a.shape
    _check(("h0", h0, (B, H), wide(a.dtype)), ("reset", reset, (B, T), torch.uint8),
           ("length", length, (B,), torch.int32))


# ---- the cell

def _start(h_init, candidate):
    """The state that sequences start from, and its slope."""
    if candidate == CANDIDATES["linear"]:
        return h_init, torch.ones_like(h_init)
    if candidate == CANDIDATES["tanh"]:
        start = h_init.tanh()
        return start, 1 - start * start
    low = h_init.sigmoid()
    return torch.where(h_init >= 0, h_init + 0.5, low), torch.where(h_init >= 0, 1, low * (1 - low))


def _empty_gradients(inputs, h0, h_init, dlast, candidate):
    """Gradients where there are no tokens: the result depends on the first states alone."""
    gradients = [None if like is None else torch.zeros_like(like) for like in inputs]
    if dlast is not None and h0 is not None:
        gradients[3].copy_(dlast)
    elif dlast is not None and h_init is not None:
        gradients[4].copy_(_start(h_init, candidate)[1] * dlast.sum(0))
    return gradients


def run_cell(x, weight, bias, h0, h_init, reset, length, kind, candidate, normalize, signed, keep):
    """h, last and saved; saved is None unless it is to be kept."""
    shape = B, T, D, H = _cell_shape(x, weight, kind)
    h, last = x.new_empty((B, T, H)), x.new_empty((B, H), dtype=wide(x.dtype))
    # the kernels need it also where nobody will ask for a backward; on a CPU the extension has room of its own
    saved = _new_saved(x, weight, kind, signed, shape) if keep or x.is_cuda else None
    if h.numel() == 0:
        if h0 is not None:
            last.copy_(h0)
        elif h_init is not None:
            last.copy_(_start(h_init, candidate)[0])
        else:
            last.zero_()
    else:
        x, weight, bias, h0, h_init, reset, length = map(_plain, (x, weight, bias, h0, h_init, reset, length))
        where, stream = _place(x)
        ints = (DTYPES[x.dtype], kind, candidate, 0, normalize, signed, B, T, D, H)
        room, has = None, weight is not None
        if x.is_cuda:
            x, room = cuda.aligned(x), cuda.cell_room(where, FORWARD, ints, has, False, x.device)
        size = 0 if saved is None else saved.numel()
        _core.raw_cell(where, FORWARD, *ints, stream, x.data_ptr() if has else None, _at(weight), _at(bias),
                       None if has else x.data_ptr(), _at(h0), _at(h_init), _at(reset), _at(length), h.data_ptr(),
                       last.data_ptr(), saved.data_ptr() if size else None, None, None, None, None, None, None, None,
                       size, *_room(room))
    return h, last, saved if keep else None


def _cell(x, *rest):
    _check_cell(x, *rest[:7])
    h, last, saved = run_cell(x, *rest)
    return h, last, x.new_empty(0, dtype=torch.uint8) if saved is None else saved


def _room(room):
    return (0, 0) if room is None else (room.data_ptr(), room.numel())


def _cell_fake(x, weight, bias, h0, h_init, reset, length, kind, candidate, normalize, signed, keep):
    shape = B, T, _, H = _cell_shape(x, weight, kind)
    size = _saved_bytes(x, weight, kind, signed, shape)[1] if keep else 0
    return x.new_empty((B, T, H)), x.new_empty((B, H), dtype=wide(x.dtype)), x.new_empty(size, dtype=torch.uint8)


def _gradients(x, others, make):
    """Room for the gradients of others, which are contiguous; nothing where one is absent."""
    return [make(like) if like is not None else x.new_empty(0, dtype=wide(x.dtype)) for like in others]


def _room_like(x):
    """A contiguous tensor of x's shape and dtype, whatever x's strides are."""
    return x.new_empty(x.shape)


def without_padding(x, length):
    """x with zeros where there are no tokens: their gradient is 0, but 0·NaN would spoil that of the weights."""
    padding = torch.arange(x.shape[1], device=x.device) >= length[:, None]
    return x.masked_fill(padding[:, :, None], 0)


def cell_gradients(x, weight, bias, h0, h_init, reset, length, h, saved, dh, dlast, kind, candidate, normalize, signed,
                   needs_dx, consume):
    """The gradients of x, weight, bias, h0 and h_init, each a new tensor or None."""
    B, T, D, H = _cell_shape(x, weight, kind)
    _check_cell(x, weight, bias, h0, h_init, reset, length, kind)
    _check_results(h, None, x, (B, T, H)), _check_results(dh, dlast, x, (B, T, H))
    _check(("saved", saved, saved.shape, torch.uint8))
    x, weight, bias, h0, h_init, reset, length, h, dh, dlast = [
        _plain(t) for t in (x, weight, bias, h0, h_init, reset, length, h, dh, dlast)]
    inputs = (x if needs_dx or weight is None else None, weight, bias, h0, h_init)
    if B * T * H == 0:
        return _empty_gradients(inputs, h0, h_init, dlast, candidate)
    if length is not None and weight is not None:
        x = without_padding(x, length)
    dx, dweight, dbias, dh0, dh_init = gradients = [None if like is None else torch.empty_like(like)
                                                    for like in inputs]
    if not consume or saved.data_ptr() % 64:
        saved = saved.clone()
    where, stream = _place(x, weight is not None and saved.numel() == 0)
    ints = (DTYPES[x.dtype], kind, candidate, 0, normalize, signed, B, T, D, H)
    room, has = None, weight is not None
    if x.is_cuda:
        x, h, dh = cuda.aligned(x), cuda.aligned(h), cuda.aligned(dh)
        room = cuda.cell_room(where, BACKWARD, ints, has, dx is not None, x.device)
    _core.raw_cell(where, BACKWARD, *ints, stream, x.data_ptr() if has else None, _at(weight), _at(bias),
                   None if has else x.data_ptr(), _at(h0), _at(h_init), _at(reset), _at(length), h.data_ptr(), None,
                   saved.data_ptr() or None, dh.data_ptr(), _at(dlast), _at(dx), _at(dweight), _at(dbias), _at(dh0),
                   _at(dh_init), saved.numel(), *_room(room))
    return gradients


def _all_there(x, gradients):
    """Operators return tensors: one without elements stands for None."""
    return tuple(x.new_empty(0, dtype=wide(x.dtype)) if g is None else g for g in gradients)


def _cell_backward_keeping(*args):
    return _all_there(args[0], cell_gradients(*args, consume=False))


def _cell_backward_consuming(*args):
    return _all_there(args[0], cell_gradients(*args, consume=True))


def _cell_backward_fake(x, weight, bias, h0, h_init, *rest):
    return _gradients(x, (x if rest[-1] or weight is None else None, weight, bias, h0, h_init), _room_like)


# ---- the scan

def _scan(a, b, h0, reset, length):
    B, T, H = b.shape
    _check_scan(b, h0, reset, length), _check(("a", a, b.shape, b.dtype))
    h, last = b.new_empty(b.shape), b.new_empty((B, H), dtype=wide(b.dtype))
    if B * T * H == 0:
        last.zero_() if h0 is None else last.copy_(h0)
        return h, last
    a, b, h0, reset, length = map(_plain, (a, b, h0, reset, length))
    where, stream = _place(b)
    ints = (DTYPES[b.dtype], B, T, H)
    room = cuda.scan_room(where, ints, b.device) if b.is_cuda else None
    _core.raw_scan(where, FORWARD, *ints, stream, a.data_ptr(), b.data_ptr(), _at(h0), _at(reset), _at(length),
                   h.data_ptr(), last.data_ptr(), None, None, None, None, None, *_room(room))
    return h, last


def _scan_fake(a, b, h0, reset, length):
    B, _, H = b.shape
    return b.new_empty(b.shape), b.new_empty((B, H), dtype=wide(b.dtype))


def _scan_backward(a, h0, reset, length, h, dh, dlast):
    B, T, H = a.shape
    _check_scan(a, h0, reset, length)
    _check_results(h, None, a, a.shape), _check_results(dh, dlast, a, a.shape)
    a, h0, reset, length, h, dh, dlast = [_plain(t) for t in (a, h0, reset, length, h, dh, dlast)]
    da, db = torch.empty_like(a), torch.empty_like(a)
    dh0, = _gradients(a, (h0,), torch.empty_like if B * T * H else torch.zeros_like)
    if B * T * H == 0:
        if h0 is not None and dlast is not None:
            dh0.copy_(dlast)
        return da, db, dh0
    where, stream = _place(a)
    ints = (DTYPES[a.dtype], B, T, H)
    room = cuda.scan_room(where, ints, a.device) if a.is_cuda else None
    _core.raw_scan(where, BACKWARD, *ints, stream, a.data_ptr(), None, _at(h0), _at(reset), _at(length), h.data_ptr(),
                   None, dh.data_ptr(), _at(dlast), da.data_ptr(), db.data_ptr(),
                   None if h0 is None else dh0.data_ptr(), *_room(room))
    return da, db, dh0


def _scan_backward_fake(a, h0, *_):
    return (_room_like(a), _room_like(a), *_gradients(a, (h0,), _room_like))


# ---- registration

def _register(name, schema, kernel, fake):
    _library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _library.impl(name, kernel, key)
    torch.library.register_fake(f"minrnn::{name}", fake, lib=_library)


def differentiate(name, set_up, backward):
    """Gives an operator its gradient."""
    torch.library.register_autograd(f"minrnn::{name}", backward, setup_context=set_up, lib=_library)


_BACK = f"({_SHARED}Tensor h, Tensor%s saved, Tensor dh, Tensor? dlast, {_KIND}, bool needs_dx) -> {_GRADIENTS}"
_register("cell", f"({_SHARED}{_KIND}, bool keep) -> (Tensor h, Tensor last, Tensor saved)", _cell, _cell_fake)
_register("cell_backward", _BACK % "", _cell_backward_keeping, _cell_backward_fake)
_register("cell_backward_", _BACK % "(a!)", _cell_backward_consuming, _cell_backward_fake)
_register("scan", "(Tensor a, Tensor b, Tensor? h0, Tensor? reset, Tensor? length) -> (Tensor h, Tensor last)", _scan,
          _scan_fake)
_register("scan_backward", "(Tensor a, Tensor? h0, Tensor? reset, Tensor? length, Tensor h, Tensor dh, Tensor? dlast) "
          "-> (Tensor da, Tensor db, Tensor dh0)", _scan_backward, _scan_backward_fake)

cell = torch.ops.minrnn.cell.default
cell_backward = torch.ops.minrnn.cell_backward.default
cell_backward_ = torch.ops.minrnn.cell_backward_.default
scan = torch.ops.minrnn.scan.default
scan_backward = torch.ops.minrnn.scan_backward.default
