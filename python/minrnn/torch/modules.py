"""MinGRU and MinLSTM: modules in place of nn.GRU and nn.LSTM."""
import math
import numbers
import warnings

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from ..scans import CANDIDATES
from . import checks, ops
from .functions import KINDS, run_layer


def _flip(x, length):
    """x [batch, time, ...] backward in time; with length (0 … time), each row's own tokens alone."""
    if length is None:
        return x.flip(1)
    T = x.shape[1]
    at = torch.arange(T, device=x.device)
    at = torch.where(at < length[:, None], length[:, None] - 1 - at, at)
    return x.gather(1, at.view(*at.shape, *(1,) * (x.dim() - 2)).expand_as(x))


def _reset_backward(reset, length):
    """Where sequences start when time runs backward: at the tokens before a reset, but for the last of a row."""
    T = reset.shape[1]
    at, last = torch.arange(T, device=reset.device), T - 1 if length is None else length[:, None] - 1
    return _flip(reset.bool().roll(-1, 1) & (at < last), length)


def _packed_sizes(packed):
    """The data of a PackedSequence and its batch sizes, which PyTorch does not check."""
    data, sizes = packed.data, packed.batch_sizes
    if data.dim() != 2:
        raise ValueError(f"input: the data of a PackedSequence must have 2 dimensions, not {data.dim()}")
    whole = sizes.dim() == 1 and sizes.dtype == torch.int64 and sizes.device.type == "cpu" and sizes.numel()
    rows = sizes.tolist() if whole else []  # Python compares so few numbers faster than PyTorch
    if not whole or rows[-1] < 1 or sum(rows) != data.shape[0] or any(a < b for a, b in zip(rows, rows[1:])):
        raise ValueError(f"input: the batch_sizes of a PackedSequence must fall from its rows to 1 or more, and sum up "
                         f"to its {data.shape[0]} tokens")
    return data, sizes


class _Recurrent(nn.Module):
    """What both modules share. The state is [layers·directions, batch, hidden]."""

    _kind, _gates, _forget = "", 0, (0, 1.0)  # rows of the gate that forgets, and the sign of its bias

    def __init__(self, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, proj_size=0, device=None, dtype=None, *, candidate="positive", signed=False,
                 forget_bias=None, **unknown):
        super().__init__()
        self._refuse(unknown, proj_size, dropout, forget_bias, dtype)
        checks.choice(candidate, "candidate", CANDIDATES)
        for name, value in (("bias", bias), ("batch_first", batch_first), ("bidirectional", bidirectional),
                            ("signed", signed)):
            checks.flag(value, name)
        input_size, hidden_size, num_layers = (
            checks.size(value, name) for name, value in (("input_size", input_size), ("hidden_size", hidden_size),
                                                         ("num_layers", num_layers)))
        if dropout and num_layers == 1:
            frames = 2 if type(self).__init__ is _Recurrent.__init__ else 3  # up to the caller of the class
            warnings.warn("dropout: is applied between layers, and there is one layer alone", stacklevel=frames)
        if forget_bias is not None and not bias:
            raise ValueError("forget_bias: needs bias=True")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.candidate, self.signed, self.forget_bias, self.normalize = candidate, signed, forget_bias, True
        for layer in range(num_layers):
            features = input_size if layer == 0 else hidden_size * self._directions
            for suffix in self._suffixes:
                rows = self._gates * hidden_size
                weight = torch.empty(rows, features, device=device, dtype=dtype)
                self.register_parameter(f"weight_l{layer}{suffix}", nn.Parameter(weight))
                if bias:
                    room = torch.empty(rows, device=device, dtype=dtype)
                    self.register_parameter(f"bias_l{layer}{suffix}", nn.Parameter(room))
        self.reset_parameters()

    def _refuse(self, unknown, proj_size, dropout, forget_bias, dtype):
        if isinstance(proj_size, bool) or proj_size != 0:
            raise ValueError(f"proj_size: {type(self).__name__} projects no state; put an nn.Linear after it")
        if unknown:
            raise TypeError(f"{', '.join(sorted(unknown))}: {type(self).__name__} has no such argument")
        if isinstance(dropout, bool) or not isinstance(dropout, numbers.Real) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout: is {dropout!r}; a number from 0 to 1 is needed")
        number = isinstance(forget_bias, numbers.Real) and not isinstance(forget_bias, bool)
        if forget_bias is not None and not (number and math.isfinite(forget_bias)):
            raise ValueError(f"forget_bias: is {forget_bias!r}; a finite number is needed")
        if dtype not in (None, torch.float16, *ops.DTYPES):
            raise TypeError(f"dtype: is {dtype}; float32, bfloat16, float16 or float64 is needed")

    @property
    def _suffixes(self):
        return ("", "_reverse") if self.bidirectional else ("",)

    @property
    def _directions(self):
        return 2 if self.bidirectional else 1

    def reset_parameters(self):
        """Uniform within ±1/√hidden_size, as nn.GRU; then the bias of the gate that forgets, if asked for."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        if self.forget_bias is None:
            return
        first, sign = self._forget
        for place in self._places:
            name = f"bias{place}"
            with torch.no_grad():
                bias = getattr(self, name)
                bias[first * self.hidden_size:(first + 1) * self.hidden_size] = sign * self.forget_bias
                if name not in self._parameters:  # it is computed from another parameter (torch.nn.utils.parametrize)
                    setattr(self, name, bias)

    def flatten_parameters(self):
        """There is nothing to flatten; it is here because nn.GRU has it."""

    @property
    def all_weights(self):
        """The parameters of each layer and direction, as nn.GRU lists them."""
        names = ("weight", "bias") if self.bias else ("weight",)
        return [[getattr(self, name + place) for name in names] for place in self._places]

    @property
    def _places(self):
        return [f"_l{layer}{suffix}" for layer in range(self.num_layers) for suffix in self._suffixes]

    def extra_repr(self):
        shown = [f"{self.input_size}, {self.hidden_size}"]
        for name, usual in (("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0.0),
                            ("bidirectional", False), ("candidate", "positive"), ("normalize", True), ("signed", False),
                            ("forget_bias", None)):
            if getattr(self, name) != usual:
                shown.append(f"{name}={getattr(self, name)!r}")
        return ", ".join(shown)

    # ---- running

    def _one(self, x, at, suffix, h0, reset, length):
        """One layer in one direction: its output and its last state."""
        weight, bias = getattr(self, f"weight_l{at}{suffix}"), getattr(self, f"bias_l{at}{suffix}", None)
        if suffix:
            x, reset = _flip(x, length), None if reset is None else _reset_backward(reset, length)
        how = KINDS[self._kind], CANDIDATES[self.candidate], self.normalize, self.signed
        h, last = run_layer(x, weight, bias, h0, None, reset, length, how)
        return _flip(h, length) if suffix else h, last

    def _layers(self, x, h0, reset, length):
        """All layers over [batch, time, features]: the output and the last states."""
        if self.bidirectional and length is not None:
            length = length.clamp(0, x.shape[1])  # the kernels do so themselves, _flip does not
        lasts, place = [], 0
        for at in range(self.num_layers):
            if at and self.dropout:
                x = nn.functional.dropout(x, self.dropout, self.training)
            outputs = []
            for suffix in self._suffixes:
                h, last = self._one(x, at, suffix, None if h0 is None else h0[place], reset, length)
                outputs.append(h)
                lasts.append(last)
                place += 1
            x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2)
        return x, torch.stack(lasts).to(x.dtype if h0 is None else h0.dtype)

    def _check_input(self, x):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"input: must be a tensor or a PackedSequence, not {type(x).__name__}")
        checks.is_tensor(x, "input")
        if x.dim() not in (2, 3):
            raise ValueError(f"input: has {x.dim()} dimensions; 3 are needed, or 2 without a batch")
        if x.shape[-1] != self.input_size:
            raise ValueError(f"input: has {x.shape[-1]} features, and input_size is {self.input_size}")
        weight = self.weight_l0
        if x.device != weight.device:
            raise ValueError(f"input: is on {x.device}, and the weights on {weight.device}; all must be on one device")
        if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
            raise TypeError(f"input: is {x.dtype}, and the weights {weight.dtype}; both must be the same")

    def _check_state(self, h0, batch, like):
        if h0 is None:
            return None
        checks.has_shape(h0, "h_0", (self.num_layers * self._directions, batch, self.hidden_size), like)
        wanted = ops.wide(like.dtype)
        if h0.dtype != wanted and (h0.dtype not in checks.HALF or wanted == torch.float64):
            raise TypeError(f"h_0: is {h0.dtype}, where {wanted} is needed beside {like.dtype}")
        return h0

    @torch.compiler.disable  # PyTorch cannot trace padding and packing, not even for nn.GRU
    def _run_packed(self, packed, h0, reset):
        if reset is not None:
            raise ValueError("reset: a PackedSequence has none; pad it, and pass the mask with a tensor")
        (data, sizes), order, back = _packed_sizes(packed), packed.sorted_indices, packed.unsorted_indices
        self._check_input(data)
        h0 = self._check_state(h0, int(sizes[0]), data)
        if h0 is not None and order is not None:
            h0 = h0.index_select(1, order)
        padded, lengths = torch._VF._pad_packed_sequence(data, sizes, True, 0.0, len(sizes))
        x, last = self._layers(padded, h0, None, lengths.to(data.device))
        out, sizes = torch._VF._pack_padded_sequence(x, lengths, True)
        if back is not None:
            last = last.index_select(1, back)
        return PackedSequence(out, sizes, order, back), last

    def _run(self, x, h0, reset, length):
        if isinstance(x, PackedSequence):
            if length is not None:
                raise ValueError("length: a PackedSequence has its own")
            return self._run_packed(x, h0, reset)
        self._check_input(x)
        checks.is_reset(reset, x.shape[:-1], x)
        if x.dim() == 2:
            return self._run_unbatched(x, h0, reset, length)
        turn = not self.batch_first
        if turn:
            x, reset = x.transpose(0, 1), None if reset is None else reset.transpose(0, 1)
        h0, length = self._check_state(h0, x.shape[0], x), checks.lengths(length, x.shape[0], x.shape[1], x)
        y, last = self._layers(x, h0, reset, length)
        return y.transpose(0, 1) if turn else y, last

    def _run_unbatched(self, x, h0, reset, length):
        if isinstance(h0, torch.Tensor) and h0.dim() != 2:
            raise ValueError(f"h_0: has {h0.dim()} dimensions; 2 are needed beside an input without a batch")
        h0 = self._check_state(h0.unsqueeze(1) if isinstance(h0, torch.Tensor) else h0, 1, x)
        length = checks.lengths(checks.one_length(length), 1, x.shape[0], x)
        y, last = self._layers(x.unsqueeze(0), h0, None if reset is None else reset.unsqueeze(0), length)
        return y.squeeze(0), last.squeeze(1)

    def _step(self, x, h0):
        if self.bidirectional:
            raise ValueError("step: a bidirectional module needs the whole sequence")
        if not isinstance(x, torch.Tensor) or x.dim() not in (1, 2):
            raise ValueError("input: a step takes one token of each row, [batch, features] or [features]")
        self._check_input(x.reshape(-1, x.shape[-1]))
        one = x.dim() == 1
        if isinstance(h0, torch.Tensor) and h0.dim() != x.dim() + 1:
            raise ValueError(f"h_0: has {h0.dim()} dimensions; {x.dim() + 1} are needed beside such an input")
        rows = x.unsqueeze(0) if one else x
        h0 = self._check_state(h0.unsqueeze(1) if one and isinstance(h0, torch.Tensor) else h0, rows.shape[0], x)
        y, last = self._layers(rows.unsqueeze(1), h0, None, None)
        y = y.squeeze(1)
        return (y.squeeze(0), last.squeeze(1)) if one else (y, last)


class MinGRU(_Recurrent):
    """minGRU in place of nn.GRU: output, h_n = MinGRU(input_size, hidden_size)(input, h_0).

    The arguments are nn.GRU's. candidate: positive, linear or tanh; signed: states that can count modulo two;
    forget_bias: the first bias of the gate, so that states last longer the larger it is. Parameters: weight_l0
    [2·hidden, input], rows of the gate z and then of the candidate, bias_l0, and so on for layers and `_reverse`.
    """

    _kind, _gates, _forget = "mingru", 2, (0, -1.0)

    def forward(self, input, hx=None, *, reset=None, length=None):
        """output and h_n, in nn.GRU's layout; hx: h_0. reset: true where a new sequence starts, [time, batch], or
        [batch, time] with batch_first. length: [batch], tokens of each row. h_n has h_0's dtype, or else that of the
        output."""
        return self._run(input, hx, reset, length)

    def step(self, input, hx=None):
        """One token: output [batch, hidden] and the states for the next, from input [batch, features]."""
        return self._step(input, hx)


class MinLSTM(_Recurrent):
    """minLSTM in place of nn.LSTM: output, (h_n, c_n) = MinLSTM(input_size, hidden_size)(input, (h_0, c_0)).

    minLSTM has one state, and its output is that state. So h_n and c_n are the same tensor; of (h_0, c_0) it continues
    from h_0, and c_0 is not read (its shape is checked). h_0 alone is accepted, too. The other arguments are those of
    MinGRU; normalize=False leaves the two gates as they are. Rows of weight_l0: forget gate, input gate, candidate.
    """

    _kind, _gates, _forget = "minlstm", 3, (0, 1.0)

    def __init__(self, *args, normalize=True, **kwargs):
        super().__init__(*args, **kwargs)
        self.normalize = checks.flag(normalize, "normalize")

    def _one_state(self, hx):
        if not isinstance(hx, (tuple, list)):
            return hx
        if len(hx) != 2:
            raise ValueError(f"hx: has {len(hx)} tensors, where (h_0, c_0) are needed")
        h, c = hx
        if h is None and c is not None:
            raise ValueError("h_0: is None beside a c_0, which is not read; the first state is h_0")
        if isinstance(h, torch.Tensor) and getattr(c, "shape", None) != h.shape:
            raise ValueError(f"c_0: has the shape {tuple(getattr(c, 'shape', ()))}, and h_0 {tuple(h.shape)}")
        return h

    def forward(self, input, hx=None, *, reset=None, length=None):
        """output and (h_n, c_n), in nn.LSTM's layout; reset and length as in MinGRU."""
        y, last = self._run(input, self._one_state(hx), reset, length)
        return y, (last, last)

    def step(self, input, hx=None):
        """One token, as in MinGRU: output and (h, c)."""
        y, last = self._step(input, self._one_state(hx))
        return y, (last, last)
