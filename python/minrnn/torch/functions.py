"""scan and cell on tensors: arguments checked, gradients, batching rules (torch.vmap), autocast.

Beneath a transform of torch.func a cell is a matrix product of PyTorch and the gates alone, because `saved` of several
samples cannot be told apart. Elsewhere one call does both.
"""
import torch
import torch.nn.functional as F

from ..scans import CANDIDATES
from . import checks, ops

KINDS = {"mingru": 0, "minlstm": 1}
_TWICE = "minrnn: the second derivative of a {} is not there; it needs one backward, without create_graph=True"
_OTHERS = (None,) * 6  # gradients of masks and options
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


@torch.compiler.assume_constant_result  # while torch.compile traces; PyTorch before 2.6 cannot trace the call itself
def _transformed():
    """Whether a transform of torch.func is at work."""
    return torch._C._are_functorch_transforms_active()


# ---- batching: samples become rows where they may, and are run one after another where each needs its own gradient

def _fold(x, dim, count):
    """Rows of all samples: [count, B, ...] as [count·B, ...]."""
    if x is None:
        return None
    x = x.unsqueeze(0).expand(count, *x.shape) if dim is None else x.movedim(dim, 0)
    return x.reshape(count * x.shape[1], *x.shape[2:])


def _fold_all(count, dims, args):
    return [_fold(x, dim, count) for x, dim in zip(args, dims)]


def _one_by_one(call, count, dims, args):
    samples = []
    for i in range(count):
        samples.append(call(*(x if dim is None else x.select(dim, i) for x, dim in zip(args, dims))))
    outputs = tuple(torch.stack(parts) for parts in zip(*samples))
    return outputs, (0,) * len(outputs)


def _no_samples(call, dims, args):
    """Outputs of torch.vmap over no samples: their shapes are those of one sample of zeros."""
    one = [x if dim is None else x.new_zeros([n for i, n in enumerate(x.shape) if i != dim])
           for x, dim in zip(args, dims)]
    outputs = tuple(x.new_empty((0, *x.shape)) for x in call(*one))
    return outputs, (0,) * len(outputs)


def _unfold(count, outputs):
    """The outputs as samples; one without elements belongs to an absent argument."""
    outputs = tuple(x.reshape(count, x.shape[0] // count, *x.shape[1:]) if x.dim() > 1 else x for x in outputs)
    return outputs, tuple(0 if x.dim() > 1 else None for x in outputs)


# ---- gradients

class _CellBackward(torch.autograd.Function):
    """The backward as a function of its own: for torch.vmap, and so that a second derivative is refused by name."""

    @staticmethod
    def forward(*args):
        return ops.cell_backward(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError(_TWICE.format("cell"))

    @staticmethod
    def vmap(info, dims, *args):
        weight, h_init = args[1], args[4]
        if not info.batch_size:
            return _no_samples(_CellBackward.apply, dims, args)
        if weight is not None or h_init is not None:
            return _one_by_one(_CellBackward.apply, info.batch_size, dims, args)
        x, _, _, h0, _, reset, length, h, _, dh, dlast = args[:11]
        picked = [0, 3, 5, 6, 7, 9, 10]
        x, h0, reset, length, h, dh, dlast = _fold_all(info.batch_size, [dims[i] for i in picked],
                                                       [args[i] for i in picked])
        saved = x.new_empty(0, dtype=torch.uint8)
        return _unfold(info.batch_size, _CellBackward.apply(x, None, None, h0, None, reset, length, h, saved, dh, dlast,
                                                            *args[11:]))


class _Cell(torch.autograd.Function):
    @staticmethod
    def forward(*args):
        return ops.cell(*args, True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        h, _, saved = output
        ctx.mark_non_differentiable(saved)
        ctx.save_for_backward(*inputs[:7], h, saved)
        ctx.set_materialize_grads(False)
        ctx.options = inputs[7:]
        ctx.shown = False

    @staticmethod
    def backward(ctx, dh, dlast, _):
        saved = ctx.saved_tensors
        if dh is None:
            dh = torch.zeros_like(saved[7])
        needs_dx = ctx.needs_input_grad[0]
        args = (*saved, dh, dlast, *ctx.options, needs_dx)
        if torch.compiler.is_compiling():
            gradients = ops.cell_backward(*args)
        elif torch.is_grad_enabled() or _transformed():
            gradients = _CellBackward.apply(*args)
        else:
            # batched gradients ask for more than one backward
            keep = _keeps_graph() or ctx.shown or not ops.plain(dh, dlast)
            gradients = (ops.cell_backward if keep else ops.cell_backward_)(*args)
        present = [None if x is None else g for g, x in zip(gradients, saved[:5])]
        return (*(present if needs_dx else [None, *present[1:]]), *_OTHERS)

    @staticmethod
    def vmap(info, dims, *args):
        if not info.batch_size:
            return _no_samples(_Cell.apply, dims, args)
        x, weight, bias, h0, h_init, reset, length = args[:7]
        if weight is not None or dims[4] is not None:
            return _one_by_one(_Cell.apply, info.batch_size, dims, args)
        x, h0, reset, length = _fold_all(info.batch_size, [dims[i] for i in (0, 3, 5, 6)], (x, h0, reset, length))
        return _unfold(info.batch_size, _Cell.apply(x, None, None, h0, h_init, reset, length, *args[7:]))


class _EagerCell(torch.autograd.Function):
    """_Cell for eager code without transforms: a forward that sets up ctx itself costs PyTorch half the time."""

    @staticmethod
    def forward(ctx, *args):
        ctx.direct = ops.direct(*args[:7])
        output = (ops.run_cell if ctx.direct else ops.cell)(*args, True)
        _Cell.setup_context(ctx, args, output)
        return output

    @staticmethod
    def backward(ctx, dh, dlast, _):
        if dh is None or not ctx.direct or torch.is_grad_enabled() or not ops.direct(dh, dlast) or _transformed():
            return _Cell.backward(ctx, dh, dlast, None)
        # nobody needs `saved` again unless the graph is kept
        return (*ops.cell_gradients(*ctx.saved_tensors, dh, dlast, *ctx.options, ctx.needs_input_grad[0],
                                    not _keeps_graph()), *_OTHERS)


class _ScanBackward(torch.autograd.Function):
    @staticmethod
    def forward(*args):
        return ops.scan_backward(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError(_TWICE.format("scan"))

    @staticmethod
    def vmap(info, dims, *args):
        if not info.batch_size:
            return _no_samples(_ScanBackward.apply, dims, args)
        return _unfold(info.batch_size, _ScanBackward.apply(*_fold_all(info.batch_size, dims, args)))


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(*args):
        return ops.scan(*args)

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, _, *rest = inputs
        ctx.save_for_backward(a, *rest, output[0])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, dh, dlast):
        saved = ctx.saved_tensors
        args = (*saved, torch.zeros_like(saved[4]) if dh is None else dh, dlast)
        plain = torch.compiler.is_compiling() or not (torch.is_grad_enabled() or _transformed())
        da, db, dh0 = (ops.scan_backward if plain else _ScanBackward.apply)(*args)
        return da, db, None if saved[1] is None else dh0, None, None

    @staticmethod
    def vmap(info, dims, *args):
        if not info.batch_size:
            return _no_samples(_Scan.apply, dims, args)
        return _unfold(info.batch_size, _Scan.apply(*_fold_all(info.batch_size, dims, args)))


class _EagerScan(torch.autograd.Function):
    """_Scan, as _EagerCell is _Cell."""

    @staticmethod
    def forward(ctx, *args):
        output = ops.scan(*args)
        _Scan.setup_context(ctx, args, output)
        return output

    backward = staticmethod(_Scan.backward)


# ---- gradients of the operators themselves, which is all that an exported program has

def _set_up_cell(ctx, inputs, output):
    _Cell.setup_context(ctx, inputs[:-1], output)
    ctx.kept, ctx.shown = inputs[-1], True  # the caller has `saved`, too


def _cell_operator_backward(ctx, *gradients):
    if not ctx.kept:
        raise RuntimeError("minrnn::cell: kept nothing for a backward; export with gradients enabled (keep=True)")
    return *_Cell.backward(ctx, *gradients), None


ops.differentiate("cell", _set_up_cell, _cell_operator_backward)
ops.differentiate("scan", _Scan.setup_context, _Scan.backward)


def _needs(*tensors):
    """Whether a backward may come."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


_exporting = getattr(torch.compiler, "is_exporting", lambda: False)  # since PyTorch 2.6


def _run_for_gradients(traced, eager, operator):
    """What to call where a backward may come. Beneath torch.export the operator itself: an autograd.Function would
    leave its forward alone in the program, without gradients."""
    if not torch.compiler.is_compiling():
        return eager.apply
    return operator if _exporting() else traced.apply


def _keeping_cell(*args):
    return ops.cell(*args, True)


# ---- the functions

def scan(a, b, h0=None, reset=None, length=None):
    """h[t] = a[t]·h[t−1] + b[t] along time: h, last = scan(a, b). a and b: [batch, time, channels] or [time, channels].

    h0: the state before the first token, [batch, channels]. reset: [batch, time], true where a new sequence starts.
    length: [batch], tokens of each row; the rest is padding. last: the state after the last token, in float32 where a
    and b are bfloat16. Differentiable in a, b and h0, once.

    >>> import torch
    >>> scan(torch.full((1, 4, 1), 0.5), torch.ones(1, 4, 1))[0].flatten().tolist()
    [1.0, 1.5, 1.75, 1.875]
    """
    if not isinstance(b, torch.Tensor) or b.dim() != 2:
        return _scan_rows(a, b, h0, reset, length)
    for name, x, dim in ("a", a, 2), ("h0", h0, 1), ("reset", reset, 1):
        if x is not None and checks.is_tensor(x, name).dim() != dim:
            raise ValueError(f"{name}: has {x.dim()} dimensions; {dim} are needed beside a b without a batch")
    row = [None if x is None else x.unsqueeze(0) for x in (a, b, h0, reset)]
    h, last = _scan_rows(*row, checks.one_length(length))
    return h.squeeze(0), last.squeeze(0)


def _scan_rows(a, b, h0, reset, length):
    (b, dtype), (a, a_dtype) = checks.main(b, "b"), checks.main(a, "a")
    if b.dim() != 3:
        raise ValueError(f"b: has {b.dim()} dimensions; 2 (time, channels) or 3 (batch, time, channels) are needed")
    checks.has_shape(a, "a", b.shape, b)
    if a_dtype != dtype:
        raise TypeError(f"a: is {a_dtype}, and b {dtype}; both must be the same")
    B, T, H = b.shape
    h0 = checks.wide(h0, "h0", (B, H), b, b.dtype)
    args = (a, b, h0, *checks.masks(reset, length, b, B, T))
    if _transformed():
        run = _Scan.apply
    elif _needs(a, b, h0):
        run = _run_for_gradients(_Scan, _EagerScan, ops.scan)
    else:
        checks.no_tangents("scan", a, b, h0)
        run = ops.scan
    h, last = run(*args)
    return h if h.dtype == dtype else h.to(dtype), last


def cell(x, weight, bias=None, h0=None, h_init=None, reset=None, length=None, *, kind="mingru", candidate="positive",
         normalize=True, signed=False):
    """A layer of minGRU or minLSTM: h, last = cell(x, weight, bias). x: [batch, time, D]; weight: [G·H, D], with the
    rows gate, candidate of minGRU or forget gate, input gate, candidate of minLSTM; bias: [G·H].

    h0: [batch, H], the first state; h_init: [H], what sequences start from (see docs/format.md); reset and length as in
    scan. last: the state after the last token, in float32 where x is bfloat16. Differentiable in all that are numbers.
    """
    checks.flag(normalize, "normalize"), checks.flag(signed, "signed")
    how = (KINDS[checks.choice(kind, "kind", KINDS)], CANDIDATES[checks.choice(candidate, "candidate", CANDIDATES)],
           normalize, signed)
    return run_layer(x, weight, bias, h0, h_init, reset, length, how)


def run_layer(x, weight, bias, h0, h_init, reset, length, how):
    """cell, with its four options as numbers."""
    x, dtype = checks.main(x, "x")
    gates = 3 if how[0] else 2
    if x.dim() != 3:
        raise ValueError(f"x: has {x.dim()} dimensions; 3 (batch, time, features) are needed")
    B, T, D = x.shape
    shape = checks.is_tensor(weight, "weight").shape
    if len(shape) != 2 or shape[0] % gates or shape[1] != D or not D:
        raise ValueError(f"weight: has the shape {tuple(shape)}, where [{gates}·H, {D}] is needed, with one feature or "
                         "more")
    rows, H = shape[0], shape[0] // gates
    weight = checks.wide(weight, "weight", (rows, D), x, x.dtype)
    bias, h0 = checks.wide(bias, "bias", (rows,), x, x.dtype), checks.wide(h0, "h0", (B, H), x, x.dtype)
    h_init = checks.wide(h_init, "h_init", (H,), x, x.dtype)
    reset, length = checks.masks(reset, length, x, B, T)
    args = (h0, h_init, reset, length, *how)
    if _transformed():
        x = x if length is None else ops.without_padding(x, length)
        pre = F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
        h, last, _ = _Cell.apply(pre, None, None, *args)
    elif _needs(x, weight, bias, h0, h_init):
        h, last, _ = _run_for_gradients(_Cell, _EagerCell, _keeping_cell)(x, weight, bias, *args)
    else:
        checks.no_tangents("cell", x, weight, bias, h0, h_init)
        watched = torch.compiler.is_compiling() or not ops.direct(x, weight, bias, *args[:4])
        h, last, _ = (ops.cell if watched else ops.run_cell)(x, weight, bias, *args, False)
    return h if h.dtype == dtype else h.to(dtype), last
