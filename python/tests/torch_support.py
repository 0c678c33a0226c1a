"""What the tests of minrnn.torch share: PyTorch, or a loud skip; and the cells as a plain loop over time."""
import os
import unittest

# compiled code is kept by an operator's name: another version of minrnn may have left something else under it
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
try:
    import torch
except ImportError as missing:
    raise unittest.SkipTest("PyTorch is not installed: minrnn.torch was not tested (pip install torch)") from missing


def version():
    """PyTorch's, as (2, 15)."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def candidate_of(v, candidate):
    if candidate == "linear":
        return v
    return torch.tanh(v) if candidate == "tanh" else torch.where(v >= 0, v + 0.5, torch.sigmoid(v))


def gates_of(pre, kind, candidate, normalize, signed):
    """a and b of h = a·h + b, from docs/format.md."""
    parts = pre.chunk(2 if kind == "mingru" else 3, -1)
    write, c = torch.sigmoid(parts[-2]), candidate_of(parts[-1], candidate)
    if signed:
        a = torch.clamp(1.2 * torch.tanh(parts[0]), -1, 1)
        if kind == "mingru":
            return a, (1 - a.abs()) * c
        return a, (1 - a.abs()) * write * c if normalize else write * c
    if kind == "mingru":
        return 1 - write, write * c
    keep = torch.sigmoid(parts[0])
    total = keep + write if normalize else 1
    return keep / total, write / total * c


def loop(x, weight, bias=None, h0=None, h_init=None, reset=None, length=None, *, kind="mingru", candidate="positive",
         normalize=True, signed=False):
    """The cell as its definition says, one token after another."""
    pre = torch.nn.functional.linear(x, weight, bias)
    a, b = gates_of(pre, kind, candidate, normalize, signed)
    start = torch.zeros_like(b[:, 0]) if h_init is None else candidate_of(h_init, candidate).expand_as(b[:, 0])
    h, out = start if h0 is None else h0, []
    for t in range(x.shape[1]):
        if reset is not None:
            h = torch.where(reset[:, t, None].bool(), start, h)
        new = a[:, t] * h + b[:, t]
        alive = True if length is None else (t < length)[:, None]
        h = new if length is None else torch.where(alive, new, h)
        out.append(new if length is None else torch.where(alive, new, torch.zeros_like(new)))
    return torch.stack(out, 1), h


def arguments(kind="mingru", B=3, T=7, D=4, H=5, dtype=torch.float64, grad=True, seed=1):
    """x, weight, bias, h0, h_init."""
    rng, gates = torch.Generator().manual_seed(seed), 2 if kind == "mingru" else 3
    made = [torch.randn(*shape, generator=rng, dtype=torch.float64).to(dtype)
            for shape in ((B, T, D), (gates * H, D), (gates * H,), (B, H), (H,))]
    return [x.requires_grad_(grad) for x in made]


def masks(B=3, T=7):
    """Resets half-way, and lengths: full, half, none."""
    reset = torch.zeros(B, T, dtype=torch.bool)
    reset[0, T // 2] = reset[1, min(1, T - 1)] = True
    return reset, torch.tensor([T, T // 2, 0])[:B]
