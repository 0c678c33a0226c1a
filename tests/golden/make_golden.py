#!/usr/bin/env python3
"""Writes the files of tests/test_golden.c: what PyTorch computes in float64, straight from the paper's equations.

    python3 tests/golden/make_golden.py

Needs PyTorch (1.13 made the committed files); running the tests does not. Nothing here is taken from the library: cells
are plain recurrences and the paper's log-space listing, models are torch.nn modules, gradients are autograd's. Inputs
and weights are rounded to float32 so that a float device starts from the same numbers.
"""
import json
import pathlib
import struct

import torch
import torch.nn.functional as F
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
torch.set_default_dtype(torch.float64)
torch.manual_seed(2024)


def save(name, tensors):
    """The safetensors container: header length, JSON header, data."""
    types = {torch.float64: "F64", torch.int32: "I32", torch.uint8: "U8"}
    header, blobs, at = {}, [], 0
    for key in sorted(tensors, key=lambda k: (-tensors[k].element_size(), k)):  # wide types first: all stay aligned
        value = tensors[key].detach().contiguous()
        blob = value.numpy().tobytes()
        header[key] = {"dtype": types[value.dtype], "shape": list(value.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (HERE / name).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def single(x):
    return x.float().double()


def randn(*shape, scale=1.0):
    return single(torch.randn(*shape) * scale)


# ---- cells


def g(x):
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


def log_g(x):
    return torch.where(x >= 0, (F.relu(x) + 0.5).log(), -F.softplus(-x))


CANDIDATES = {"positive": g, "linear": lambda x: x, "tanh": torch.tanh}


def signed_gates(kind, pre):
    a = torch.clamp(1.2 * torch.tanh(pre[0]), -1, 1)
    if kind == "mingru":
        return a, 1 - a.abs()
    i = torch.sigmoid(pre[1])
    return a, (1 - a.abs()) * i if kind == "minlstm_normalised" else i


def gates(kind, pre):
    """Coefficient and input gate, as the paper's vanilla listings write them."""
    if kind.endswith("_signed"):
        return signed_gates(kind.removesuffix("_signed"), pre)
    if kind == "mingru":
        z = torch.sigmoid(pre[0])
        return 1 - z, z
    f, i = torch.sigmoid(pre[0]), torch.sigmoid(pre[1])
    return (f / (f + i), i / (f + i)) if kind == "minlstm_normalised" else (f, i)


def log_gates(kind, pre):
    """The same in log-space, after the paper's listings."""
    if kind == "mingru":
        return -F.softplus(pre[0]), -F.softplus(-pre[0])
    if kind == "minlstm":
        return -F.softplus(-pre[0]), -F.softplus(-pre[1])
    diff = F.softplus(-pre[0]) - F.softplus(-pre[1])
    return -F.softplus(diff), -F.softplus(-diff)


def parallel_scan_log(log_coeffs, log_values):
    """The paper's listing."""
    a_star = F.pad(torch.cumsum(log_coeffs, dim=1), (0, 0, 1, 0))
    log_h0_plus_b_star = torch.logcumsumexp(log_values - a_star, dim=1)
    return torch.exp(a_star + log_h0_plus_b_star)[:, 1:]


def scan_sequential(kind, candidate, pre, start, given, reset):
    """h_t = a_t h_{t-1} + i_t c_t, token by token. `start` is what every new sequence begins with."""
    a, i = gates(kind, pre)
    c = CANDIDATES[candidate](pre[-1])
    h, out = given if given is not None else start, []
    for t in range(c.shape[1]):
        h = torch.where(reset[:, t, None], start, h)
        h = a[:, t] * h + i[:, t] * c[:, t]
        out.append(h)
    return torch.stack(out, dim=1)


def scan_log(kind, pre, start, given, reset):
    """The log-space listing on each piece between resets. A state of zero has no logarithm: it is left out."""
    log_a, log_i = log_gates(kind, pre)
    log_b = log_i + log_g(pre[-1])
    rows = []
    for b in range(reset.shape[0]):
        cuts = sorted({0, *torch.nonzero(reset[b]).flatten().tolist()}) + [reset.shape[1]]
        pieces = []
        for first, last in zip(cuts, cuts[1:]):
            h0 = given[b] if given is not None and first == 0 and not reset[b, 0] else start[b]
            la, lb = log_a[b:b + 1, first:last], log_b[b:b + 1, first:last]
            if bool((h0 > 0).all()):
                pieces.append(parallel_scan_log(la, torch.cat([h0.log().view(1, 1, -1), lb], dim=1)))
            else:
                a_star = torch.cumsum(la, dim=1)
                pieces.append(torch.exp(a_star + torch.logcumsumexp(lb - a_star, dim=1)))
        rows.append(torch.cat(pieces, dim=1))
    return torch.cat(rows, dim=0)


def run_cell(shared, kind, candidate, scan, begin, with_resets):
    B, T, _ = shared["x"].shape
    H = shared["h_init"].shape[0]
    count = 2 if kind.startswith("mingru") else 3
    x, W = shared["x"].clone().requires_grad_(), shared["W"][:count * H].clone().requires_grad_()
    bias, h_init = shared["b"][:count * H].clone().requires_grad_(), shared["h_init"].clone().requires_grad_()
    h_in = shared["h_in"].clone().requires_grad_()
    reset = shared["reset"].bool() if with_resets else torch.zeros(B, T, dtype=torch.bool)
    start = torch.zeros(B, H) if begin == "zero" else CANDIDATES[candidate](h_init).expand(B, H)
    given = h_in if begin == "given" else None
    pre = F.linear(x, W, bias).split(H, dim=-1)
    plain = scan_sequential(kind, candidate, pre, start, given, reset)
    h = plain
    if scan == "log":
        h = scan_log(kind, pre, start, given, reset)
        assert torch.allclose(h, plain, rtol=1e-12, atol=1e-13), (kind, begin)
    ((shared["dh"] * h).sum() + (shared["dh_out"] * h[:, -1]).sum()).backward()
    out = {"h": h, "dx": x.grad, "dW": W.grad, "db": bias.grad}
    if begin == "given":
        out["dh_in"] = h_in.grad
    if begin != "zero":
        out["dh_init"] = h_init.grad if h_init.grad is not None else torch.zeros(H)
    return out


def make_cells(file, kinds, forms, scale):
    """scale: of the biases; large enough that some signed gates are at their ends."""
    B, T, D, H = 2, 7, 3, 4
    reset = torch.zeros(B, T, dtype=torch.uint8)
    reset[0, 3] = reset[1, 0] = reset[1, 5] = reset[1, 6] = 1
    shared = {"x": randn(B, T, D), "W": randn(3 * H, D, scale=0.8), "b": randn(3 * H, scale=scale), "h_init": randn(H),
              "h_in": single(torch.rand(B, H) + 0.1), "dh": randn(B, T, H), "dh_out": randn(B, H), "reset": reset}
    tensors = dict(shared)
    for kind in kinds:
        for candidate, scan in forms:
            for begin, with_resets in (("zero", False), ("learned", True), ("given", True), ("given", False)):
                name = ".".join((kind, candidate, scan, begin, "resets" if with_resets else "whole"))
                for key, value in run_cell(shared, kind, candidate, scan, begin, with_resets).items():
                    tensors[f"{name}.{key}"] = value
    save(file, tensors)


# ---- models


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x / torch.sqrt(x.square().mean(dim=-1, keepdim=True) + 1e-6) * self.weight


class Mixer(nn.Module):
    def __init__(self, kind, candidate, dim, width):
        super().__init__()
        self.kind, self.candidate = kind, candidate
        self.names = ("linear_z", "linear_h") if kind == "mingru" else ("linear_f", "linear_i", "linear_h")
        for name in self.names:
            setattr(self, name, nn.Linear(dim, width))
        self.h0 = nn.Parameter(torch.randn(width))
        self.down = nn.Linear(width, dim)

    def forward(self, x):
        pre = [getattr(self, name)(x) for name in self.names]
        start = CANDIDATES[self.candidate](self.h0).expand(x.shape[0], -1)
        never = torch.zeros(x.shape[:2], dtype=torch.bool)
        return self.down(scan_sequential(self.kind, self.candidate, pre, start, None, never))


class Conv(nn.Conv1d):
    """Causal and depthwise; followed by a 1×1 when it is a branch of its own."""

    def __init__(self, dim, point):
        super().__init__(dim, dim, 4, groups=dim)
        self.point = nn.Linear(dim, dim) if point else None

    def forward(self, x):
        y = super().forward(F.pad(x.transpose(1, 2), (3, 0))).transpose(1, 2)
        return self.point(y) if self.point else y


class MLP(nn.Module):
    def __init__(self, dim, factor):
        super().__init__()
        self.up, self.down = nn.Linear(dim, factor * dim), nn.Linear(factor * dim, dim)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, kind, candidate, dim, width, residual_conv, norm):
        super().__init__()
        self.residual_conv = residual_conv
        self.norm1, self.norm2 = norm(dim), norm(dim)
        self.conv = Conv(dim, residual_conv)
        self.mixer = Mixer(kind, candidate, dim, width)
        self.mlp = MLP(dim, 2)

    def forward(self, x):
        if self.residual_conv:
            x = x + self.conv(x)
            x = x + self.mixer(self.norm1(x))
        else:
            x = x + self.mixer(self.conv(self.norm1(x)))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, kind, candidate, residual_conv, norm, vocab=7, dim=6, width=12, layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(kind, candidate, dim, width, residual_conv, norm) for _ in range(layers))
        self.norm = norm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_model(name, *args, mixer=None, tokens=9):
    model = Model(*args)
    for block in model.blocks:
        block.mixer = mixer() if mixer else block.mixer
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(single(p + 0.1 * torch.randn_like(p)))
    ids, target = torch.randint(0, 7, (2, tokens)), torch.randint(0, 7, (2, tokens))
    target[0, 4] = target[1, 0] = -1
    logits = model(ids)
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-1)
    loss.backward()
    tensors = {"ids": ids.int(), "target": target.int(), "logits": logits, "loss": loss.reshape(1)}
    for key, p in model.named_parameters():
        tensors["weight." + key], tensors["grad." + key] = p, p.grad
    save(name, tensors)


class Mamba(nn.Module):
    """The S6 layer token by token, parameters as in Mamba's checkpoints; `down` is its output projection."""

    def __init__(self, dim, width, states):
        super().__init__()
        rank = -(-dim // 16)
        self.rank, self.states = rank, states
        self.in_proj = nn.Linear(dim, 2 * width, bias=False)
        self.conv1d = Conv(width, False)
        self.x_proj = nn.Linear(width, rank + 2 * states, bias=False)
        self.dt_proj = nn.Linear(rank, width)
        self.A_log = nn.Parameter(torch.log(torch.arange(1.0, states + 1)).repeat(width, 1))
        self.D = nn.Parameter(torch.ones(width))
        self.down = nn.Linear(width, dim)

    def forward(self, x):
        x, z = self.in_proj(x).chunk(2, dim=-1)
        u = F.silu(self.conv1d(x))
        dt, B, C = self.x_proj(u).split([self.rank, self.states, self.states], dim=-1)
        step, A = F.softplus(self.dt_proj(dt)), -torch.exp(self.A_log)
        h, out = torch.zeros(*u.shape[::2], self.states), []
        for t in range(u.shape[1]):
            h = torch.exp(step[:, t, :, None] * A) * h + step[:, t, :, None] * B[:, t, None, :] * u[:, t, :, None]
            out.append((h * C[:, t, None, :]).sum(dim=-1) + self.D * u[:, t])
        return self.down(torch.stack(out, dim=1) * F.silu(z))


# ---- optimisers


def make_adam():
    n, decayed, steps = 10, 6, 3
    start, grads = randn(n), randn(steps, n) * torch.tensor([[1.0], [0.05], [3.0]])  # clipped, not clipped, clipped
    grads = single(grads)
    tensors = {"start": start, "grads": grads}
    for name, kind in (("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)):
        p, q = nn.Parameter(start[:decayed].clone()), nn.Parameter(start[decayed:].clone())
        groups = [{"params": [p], "weight_decay": 0.2}, {"params": [q], "weight_decay": 0.0}]
        optimizer = kind(groups, lr=0.03, betas=(0.9, 0.99), eps=1e-6)
        history = []
        for grad in grads:
            p.grad, q.grad = grad[:decayed].clone(), grad[decayed:].clone()
            nn.utils.clip_grad_norm_([p, q], 1.0)
            optimizer.step()
            history.append(torch.cat([p, q]).detach().clone())
        tensors[name] = torch.stack(history)
    save("adam.safetensors", tensors)


# ---- attention


def turned(x):
    """Rotary positions as RoFormer has them: channels 2i and 2i+1 are a complex number, turned
    by t·10000^(−2i/size)."""
    T, size = x.shape[-2:]
    angle = torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(0, size, 2) / size)
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(z).flatten(-2)


def make_attention():
    """nn.MultiheadAttention, causal; and the same equations with rotary positions, a window of 4 and resets."""
    B, T, D, heads = 2, 9, 12, 3
    layer = nn.MultiheadAttention(D, heads, batch_first=True)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(single(p + 0.1 * torch.randn_like(p)))
    x, dy = randn(B, T, D).requires_grad_(), randn(B, T, D)
    reset = torch.zeros(B, T, dtype=torch.uint8)
    reset[0, 6] = reset[1, 0] = reset[1, 3] = reset[1, 4] = 1
    tensors = {"x": x, "dy": dy, "reset": reset}
    tensors.update({"weight." + key: p for key, p in layer.named_parameters()})

    def run(name, y):
        grads = torch.autograd.grad((y * dy).sum(), [x, *layer.parameters()])
        tensors[name + ".y"] = y
        for key, grad in zip(["x", *(key for key, _ in layer.named_parameters())], grads):
            tensors[f"{name}.d.{key}"] = grad

    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    run("none", layer(x, x, x, attn_mask=future, need_weights=False)[0])
    qkv = F.linear(x, layer.in_proj_weight, layer.in_proj_bias)
    q, k, v = qkv.view(B, T, 3, heads, D // heads).permute(2, 0, 3, 1, 4)
    sequence, t = reset.cumsum(1), torch.arange(T)
    hidden = future | (t[:, None] - t >= 4) | (sequence[:, :, None] != sequence[:, None, :])
    scores = turned(q) @ turned(k).transpose(-1, -2) / (D // heads) ** 0.5
    mixed = scores.masked_fill(hidden[:, None], -torch.inf).softmax(-1) @ v
    run("rotary", layer.out_proj(mixed.transpose(1, 2).flatten(2)))
    save("attention.safetensors", tensors)


if __name__ == "__main__":
    kinds, linear = ("mingru", "minlstm", "minlstm_normalised"), ("linear", "linear")
    forms = (("positive", "linear"), ("positive", "log"), linear, ("tanh", "linear"))
    make_cells("cells.safetensors", kinds, forms, 0.5)
    make_model("model_mingru_inside_rms.safetensors", "mingru", "positive", False, RMSNorm)
    make_model("model_mingru_residual_layer.safetensors", "mingru", "linear", True, nn.LayerNorm)
    make_model("model_minlstm_inside_layer.safetensors", "minlstm_normalised", "positive", False, nn.LayerNorm)
    make_model("model_minlstm_residual_rms.safetensors", "minlstm", "tanh", True, RMSNorm)
    make_adam()
    make_attention()
    torch.manual_seed(2025)  # of its own, so that what is above stays as it is
    make_model("model_mamba_inside_rms.safetensors", "mingru", "positive", False, RMSNorm,
               mixer=lambda: Mamba(6, 12, 5), tokens=35)
    torch.manual_seed(2026)
    make_cells("cells_signed.safetensors", [kind + "_signed" for kind in kinds],
               (("positive", "linear"), linear, ("tanh", "linear")), 1.0)
