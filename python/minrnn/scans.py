"""The scan h[t] = a[t]·h[t−1] + b[t] and the cells of minGRU and minLSTM on arrays.

NumPy arrays stay where they are: the C kernels read and write their memory. Arrays of other libraries come through
DLPack; torch tensors keep their gradients (see minrnn.torch), and arrays on a GPU become tensors, because PyTorch has
the memory and the stream for them. float64 runs on the exact reference, slowly.
"""
import numpy as np

from . import _core
from .arrays import flag, in_place, refuse_mask, whole
from .contexts import context
from .errors import InvalidArgument

F32, BF16, F64 = 0, 1, 2
FORWARD, BACKWARD, STEP = 0, 1, 2
CANDIDATES = {"positive": 0, "linear": 1, "tanh": 2}
_HOST = (1, 3)  # DLPack's kinds of devices whose memory a CPU can read
_DTYPES = {np.dtype(np.float32): F32, np.dtype(np.float64): F64}


def _for_torch(x):
    """Whether x is a tensor of PyTorch, or of another library on a GPU."""
    if type(x) is np.ndarray:
        return False
    if type(x).__module__.partition(".")[0] == "torch":
        return True
    where = getattr(x, "__dlpack_device__", None)
    return where is not None and where()[0] not in _HOST


def _tensors(*arrays):
    """What came through _for_torch, and all beside it, as tensors of the same memory."""
    try:
        import torch
    except ImportError:
        raise InvalidArgument("an array on a GPU needs PyTorch, which is not installed (pip install torch)") from None
    return [torch.from_dlpack(x) if hasattr(x, "__dlpack__") and not isinstance(x, (np.ndarray, torch.Tensor)) else x
            for x in arrays]


def _array(x, name, dtype=None):
    """x as a contiguous float array: itself where it already is one."""
    if not isinstance(x, np.ndarray):
        try:
            x = np.from_dlpack(x) if hasattr(x, "__dlpack__") else np.asarray(x)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:  # such as a tensor that requires gradients
            raise InvalidArgument(f"{name}: {error}") from None
    wide = x.dtype.kind == "f" and x.dtype.itemsize > 4  # also of the other byte order
    wanted = dtype or np.dtype(np.float64 if wide else np.float32)
    if x.dtype is wanted and x.flags.c_contiguous and x.flags.aligned and type(x) is np.ndarray:
        return x
    refuse_mask(x, name)
    if x.dtype.kind not in "fiu":
        raise InvalidArgument(f"{name}: must be numbers, not {x.dtype}")
    return in_place(x, wanted)


def _check(x, name, shape):
    if x.shape != shape:
        raise InvalidArgument(f"{name}: has the shape {x.shape}, where {shape} is needed")
    return x


def _masks(reset, length, shape):
    if reset is not None:
        reset = _check(whole(reset, "reset", np.uint8), "reset", shape)
    if length is not None:
        length = _check(whole(length, "length"), "length", shape[:1])
        if ((length < 0) | (length > shape[1])).any():
            raise InvalidArgument(f"length: must be 0 to {shape[1]}")
    return reset, length


def _device(dtype):
    return context("ref") if dtype == F64 else context("cpu")


class _Scan:
    """The arguments of one scan, checked."""

    def __init__(self, a, b, h0, reset, length):
        self.b = b = _array(b, "b")
        self.a = _array(a, "a", b.dtype)
        if b.ndim not in (2, 3):
            raise InvalidArgument(f"b: has {b.ndim} dimensions; 2 (time, channels) or 3 (batch, time, channels) are "
                                  "needed")
        _check(self.a, "a", b.shape)
        self.batched = b.ndim == 3
        self.B, self.T, self.H = b.shape if self.batched else (1, *b.shape)
        self.dtype = _DTYPES[b.dtype]
        self.state = (self.B, self.H) if self.batched else (self.H,)
        self.h0 = None if h0 is None else _check(_array(h0, "h0", b.dtype), "h0", self.state)
        if not self.batched and (reset is not None or length is not None):
            reset = None if reset is None else whole(reset, "reset", np.uint8)[None]
        self.reset, self.length = _masks(reset, length, (self.B, self.T))

    def empty(self):
        return self.B * self.T * self.H == 0

    def forward(self, last):
        h = np.empty_like(self.b)
        if self.empty():
            if last is not None:
                last[...] = 0 if self.h0 is None else self.h0
            return h
        _core.raw_scan(_device(self.dtype), FORWARD, self.dtype, self.B, self.T, self.H, 0, self.a, self.b, self.h0,
                       self.reset, self.length, h, last, None, None, None, None, None, 0, 0)
        return h

    def backward(self, h, dh, dlast):
        da, db = np.empty_like(self.a), np.empty_like(self.b)
        dh0 = None if self.h0 is None else np.empty_like(self.h0)
        dh = _check(_array(dh, "dh", self.b.dtype), "dh", self.b.shape)
        if dlast is not None:
            dlast = _check(_array(dlast, "dlast", self.b.dtype), "dlast", self.state)
        if self.empty():
            if dh0 is not None:
                dh0[...] = 0 if dlast is None else dlast
            return da, db, dh0
        _core.raw_scan(_device(self.dtype), BACKWARD, self.dtype, self.B, self.T, self.H, 0, self.a, None, self.h0,
                       self.reset, self.length, h, None, dh, dlast, da, db, dh0, 0, 0)
        return da, db, dh0


def scan(a, b, h0=None, *, reset=None, length=None, return_state=False):
    """h[t] = a[t]·h[t−1] + b[t] along the time axis of [batch, time, channels] or [time, channels].

    h0: the state before the first token ([batch, channels]); 0 without it. reset: 1 where a new sequence starts.
    length: tokens of each row, the rest is padding. return_state=True also gives the state after the last token. All
    arrays are taken in b's dtype.

    >>> import numpy as np
    >>> scan(np.full((4, 1), 0.5, np.float32), np.ones((4, 1), np.float32)).ravel().tolist()
    [1.0, 1.5, 1.75, 1.875]
    """
    if _for_torch(b) or _for_torch(a):
        tensors = _tensors(a, b, h0, reset, length)
        from . import torch as mt
        h, last = mt.scan(*tensors)
        return (h, last) if return_state else h
    s = _Scan(a, b, h0, reset, length)
    last = np.empty(s.state, s.b.dtype) if return_state else None
    h = s.forward(last)
    return (h, last) if return_state else h


def scan_vjp(a, b, h0=None, *, reset=None, length=None):
    """The scan with its gradient: h, last, backward; backward(dh, dlast=None) gives da, db, dh0. It reads the arguments
    and h again, so change none of them before.

    >>> import numpy as np
    >>> h, last, backward = scan_vjp(np.full((3, 1), 0.5, np.float32), np.ones((3, 1), np.float32))
    >>> da, db, dh0 = backward(np.ones((3, 1), np.float32))
    >>> db.ravel().tolist()
    [1.75, 1.5, 1.0]
    """
    s = _Scan(a, b, h0, reset, length)
    last = np.empty(s.state, s.b.dtype)
    h = s.forward(last)
    return h, last, lambda dh, dlast=None: s.backward(h, dh, dlast)


def _aligned(size):
    """Bytes that begin at a multiple of 64."""
    room = np.empty(size + 64, np.uint8)
    skip = -room.ctypes.data % 64
    return room[skip:skip + size]


def _start_from(h_init, candidate):
    """The state that h_init stands for, and its slope."""
    if candidate == "linear":
        return h_init, np.ones_like(h_init)
    if candidate == "tanh":
        start = np.tanh(h_init)
        return start, 1 - start * start
    s = 0.5 + 0.5 * np.tanh(0.5 * h_init)
    return np.where(h_init >= 0, h_init + 0.5, s), np.where(h_init >= 0, 1, s * (1 - s))


def _without_padding(x, length):
    """x with zeros as padding: 0 · NaN would spoil the gradient of the weights. Itself where it is so already."""
    padding = np.arange(x.shape[1]) >= length[:, None]
    if not x[padding].any():
        return x
    x = x.copy()
    x[padding] = 0
    return x


class _Cell:
    """The arguments of one cell, checked."""

    def __init__(self, kind, x, weight, bias, h0, h_init, reset, length, candidate, normalize, signed):
        self.x = x = _array(x, "x")
        self.weight = weight = _array(weight, "weight", x.dtype)
        gates = 3 if kind else 2
        if x.ndim != 3 or weight.ndim != 2 or weight.shape[0] % gates or weight.shape[1] != x.shape[2]:
            raise InvalidArgument(f"x: has the shape {x.shape} and weight {weight.shape}; [batch, time, D] and "
                                  f"[{gates}·H, D] are needed")
        if not x.shape[2]:
            raise InvalidArgument(f"x: has the shape {x.shape}; [batch, time, D] with one feature or more is needed")
        if not isinstance(candidate, str) or candidate not in CANDIDATES:
            raise InvalidArgument(f"candidate: is {candidate!r}; it must be one of {', '.join(CANDIDATES)}")
        normalize, signed = flag(normalize, "normalize"), flag(signed, "signed")
        B, T, D = x.shape
        H = weight.shape[0] // gates
        self.bias = None if bias is None else _check(_array(bias, "bias", x.dtype), "bias", (gates * H,))
        self.h0 = None if h0 is None else _check(_array(h0, "h0", x.dtype), "h0", (B, H))
        self.h_init = None if h_init is None else _check(_array(h_init, "h_init", x.dtype), "h_init", (H,))
        self.reset, self.length = _masks(reset, length, (B, T))
        dtype = _DTYPES[x.dtype]
        self.context = _device(dtype)
        self.ints = (dtype, kind, CANDIDATES[candidate], 0, int(normalize), int(signed), B, T, D, H)
        self.shape, self.state, self.candidate = (B, T, H), (B, H), candidate

    def empty(self):
        return 0 in self.shape

    def _shared(self):
        return (self.x, self.weight, self.bias, None, self.h0, self.h_init, self.reset, self.length)

    def start(self):
        """The state of rows without tokens."""
        if self.h0 is not None or self.h_init is None:
            return 0 if self.h0 is None else self.h0
        return _start_from(self.h_init, self.candidate)[0]

    def start_gradients(self, dlast, dh0, dh_init):
        """Writes the gradients of start()."""
        if dh0 is not None:
            dh0[...] = dlast
        elif dh_init is not None:
            dh_init[...] = dlast.sum(0) * _start_from(self.h_init, self.candidate)[1]

    def forward(self, last, saved=None):
        h = np.empty(self.shape, self.x.dtype)
        if self.empty():
            last[...] = self.start()
            return h
        _core.raw_cell(self.context, FORWARD, *self.ints, 0, *self._shared(), h, last, saved, None, None, None, None,
                       None, None, None, 0 if saved is None else saved.size, 0, 0)
        return h

    def saved(self):
        return _aligned(0 if self.empty() else _core.raw_cell_sizes(self.context, FORWARD, *self.ints, 1)[0])

    def backward(self, h, saved, dh, dlast):
        dtype = self.x.dtype
        dx, dweight = np.zeros_like(self.x), np.zeros_like(self.weight)
        dbias, dh0, dh_init = (None if like is None else np.zeros_like(like)
                               for like in (self.bias, self.h0, self.h_init))
        dh = _check(_array(dh, "dh", dtype), "dh", self.shape)
        if dlast is not None:
            dlast = _check(_array(dlast, "dlast", dtype), "dlast", self.state)
        if not self.empty():
            own = _aligned(saved.size)  # the call destroys it
            own[...] = saved
            _core.raw_cell(self.context, BACKWARD, *self.ints, 0, *self._shared(), h, None, own, dh, dlast,
                           dx, dweight, dbias, dh0, dh_init, saved.size, 0, 0)
        elif dlast is not None:
            self.start_gradients(dlast, dh0, dh_init)
        return {"x": dx, "weight": dweight, "bias": dbias, "h0": dh0, "h_init": dh_init}


def _run(kind, name, x, weight, bias, h0, h_init, reset, length, candidate, normalize, signed):
    if _for_torch(x):
        tensors = _tensors(x, weight, bias, h0, h_init, reset, length)
        from . import torch as mt
        return mt.cell(*tensors, kind=name, candidate=candidate, normalize=normalize, signed=signed)
    c = _Cell(kind, x, weight, bias, h0, h_init, reset, length, candidate, normalize, signed)
    last = np.empty(c.state, c.x.dtype)
    return c.forward(last), last


def _vjp(*arguments):
    c = _Cell(*arguments)
    if c.length is not None:
        c.x = _without_padding(c.x, c.length)
    last, saved = np.empty(c.state, c.x.dtype), c.saved()
    h = c.forward(last, saved)
    return h, last, lambda dh, dlast=None: c.backward(h, saved, dh, dlast)


def mingru(x, weight, bias=None, h0=None, *, h_init=None, reset=None, length=None, candidate="positive",
           signed=False):
    """A minGRU layer: h, last = mingru(x, weight, bias). x: [batch, time, D]; weight: [2·H, D], the gate's rows and
    then the candidate's; bias: [2·H]. h: [batch, time, H]; last: the state after the last token. h0: the first
    state, [batch, H]; without it sequences start from candidate(h_init), or from 0. All arrays are taken in x's dtype.

    h = (1 − z)·h + z·c with z = σ(gate), c = candidate(v): positive (v + 0.5 for v ≥ 0, else σ(v)), linear or tanh.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> h, last = mingru(rng.standard_normal((2, 5, 3)), rng.standard_normal((8, 3)))
    >>> h.shape, np.array_equal(h[:, -1], last)
    ((2, 5, 4), True)
    """
    return _run(0, "mingru", x, weight, bias, h0, h_init, reset, length, candidate, False, signed)


def minlstm(x, weight, bias=None, h0=None, *, h_init=None, reset=None, length=None, candidate="positive",
            normalize=True, signed=False):
    """A minLSTM layer, as mingru: weight is [3·H, D], the rows of forget gate, input gate and candidate. normalize
    divides both gates by their sum."""
    return _run(1, "minlstm", x, weight, bias, h0, h_init, reset, length, candidate, normalize, signed)


def mingru_vjp(x, weight, bias=None, h0=None, *, h_init=None, reset=None, length=None, candidate="positive",
               signed=False):
    """mingru with its gradient: h, last, backward; backward(dh, dlast=None) gives a dict of gradients by argument.
    It reads the arguments and h again, so change none of them before."""
    return _vjp(0, x, weight, bias, h0, h_init, reset, length, candidate, False, signed)


def minlstm_vjp(x, weight, bias=None, h0=None, *, h_init=None, reset=None, length=None, candidate="positive",
                normalize=True, signed=False):
    """minlstm with its gradient, as mingru_vjp."""
    return _vjp(1, x, weight, bias, h0, h_init, reset, length, candidate, normalize, signed)
