"""Models of other programs, small and with weights that are far from where they began: what `minrnn import` is tested
with. make_peers.py writes some of them to files, slow_import.py compares many.

Models of minGRU-pytorch and transformers are made by these packages. The authors' code is no package, so class
Authors is a module of our own with its names, shapes and order of rows. class Ours is minrnn's own stack in PyTorch.
"""
import dataclasses
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # transformers looks for faster kernels otherwise

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclasses.dataclass
class Case:
    """One model. `settings` holds what its weights do not say."""
    name: str
    family: str
    make: object  # () -> nn.Module
    inputs: int
    reals: bool = False
    layer: bool = False  # nothing around it
    train: int = 0  # steps of Adam; 0: only shaken
    exports: bool = True  # what is imported can be exported as what it was
    settings: dict = dataclasses.field(default_factory=dict)
    config: object = None  # of transformers

    def build(self, seed=1):
        torch.manual_seed(seed)
        model = self.make()
        shake(model)
        for step in range(self.train):
            learn(model, self, step)
        return model.eval()

    def example(self, length, seed=2):
        torch.manual_seed(seed)
        return torch.randn(1, length, self.inputs) if self.reals else torch.randint(0, self.inputs, (1, length))


def shake(model, size=0.2):
    """Moves all vectors: a bias or a norm that is left where it starts (0 or 1) hides a mistake."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(size * torch.randn_like(weight))


def learn(model, case, step, optimizers={}):
    if step == 0:
        optimizers["adam"] = torch.optim.Adam(model.parameters(), lr=0.02)
    x = case.example(12, 100 + step)
    y = output(model, x)
    loss = F.mse_loss(y, x[..., :1].expand_as(y)) if case.reals else \
        F.cross_entropy(y[0, :-1], x[0, 1:] % y.shape[-1])
    optimizers["adam"].zero_grad()
    loss.backward()
    optimizers["adam"].step()


def output(model, x):
    """The outputs of a model or a layer, whatever it wraps them in."""
    y = model(x)
    return getattr(y, "logits", y[0] if isinstance(y, tuple) else y)


def exact_output(model, x):
    """The same, computed in fp64 with the epsilon that fp32 has; None where the model insists on fp32."""
    if type(model).__module__.startswith("transformers"):
        return None
    for part in model.modules():
        if isinstance(part, nn.RMSNorm) and part.eps is None:
            part.eps = torch.finfo(torch.float32).eps
    y = output(model.double(), x.double() if x.is_floating_point() else x)
    model.float()
    return y


# ---- the authors' code

def g(x):
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


def scan(a, b, h):
    out = []
    for now, add in zip(a.unbind(1), b.unbind(1)):
        h = now * h + add
        out.append(h)
    return torch.stack(out, 1)


class AuthorsLayer(nn.Module):
    """Rows of to_hidden_and_gate: candidate, gate; or candidate, forget gate, input gate."""

    def __init__(self, dim, width, lstm, normalize, h0):
        super().__init__()
        self.to_hidden_and_gate = nn.Linear(dim, width * (3 if lstm else 2))
        self.to_out = nn.Linear(width, dim)
        self.lstm, self.normalize, self.width = lstm, normalize, width
        if h0:
            self.init_hidden_state = nn.Parameter(torch.randn(width))

    def forward(self, x):
        parts = self.to_hidden_and_gate(x).chunk(3 if self.lstm else 2, -1)
        gates = [torch.sigmoid(part) for part in parts[1:]]
        keep, add = gates if self.lstm else (1 - gates[0], gates[0])
        if self.lstm and self.normalize:
            keep, add = keep / (keep + add), add / (keep + add)
        start = g(self.init_hidden_state) if hasattr(self, "init_hidden_state") else x.new_zeros(self.width)
        return self.to_out(scan(keep, add * g(parts[0]), start))


class GammaNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(dim))

    def forward(self, x):
        return F.normalize(x, dim=-1) * x.shape[-1] ** 0.5 * (self.gamma + 1)


class PointConv(nn.Module):
    def __init__(self, dim, taps):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(dim, dim, taps, groups=dim), nn.Conv1d(dim, dim, 1))

    def forward(self, x):
        return self.net(F.pad(x.transpose(1, 2), (self.net[0].kernel_size[0] - 1, 0))).transpose(1, 2)


class GatedGelu(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mult_bias = nn.Parameter(torch.ones(width))

    def forward(self, x):
        value, gate = x.chunk(2, -1)
        return F.gelu(gate) * value * self.mult_bias


def gated_mlp(dim, width):
    return nn.Sequential(nn.Linear(dim, 2 * width), GatedGelu(width), nn.Linear(width, dim))


class Authors(nn.Module):
    """layers.i is a list: conv or nothing, norm, layer, norm (also without an MLP), MLP or nothing."""

    def __init__(self, inputs, outputs, dim, depth, reals=False, taps=0, mlp=0, lstm=False, expansion=1,
                 normalize=False, h0=True):
        super().__init__()
        if reals:
            self.layer_in = nn.Linear(inputs, dim)
        else:
            self.token_emb = nn.Embedding(inputs, dim)
        self.layers = nn.ModuleList(nn.ModuleList([
            PointConv(dim, taps) if taps else None, GammaNorm(dim),
            AuthorsLayer(dim, int(dim * expansion), lstm, normalize, h0), GammaNorm(dim),
            gated_mlp(dim, int(dim * mlp)) if mlp else None]) for _ in range(depth))
        self.norm, self.to_out = GammaNorm(dim), nn.Linear(dim, outputs, bias=False)

    def forward(self, x):
        x = self.layer_in(x) if hasattr(self, "layer_in") else self.token_emb(x)
        for conv, norm, layer, mlp_norm, mlp in self.layers:
            x = x if conv is None else x + conv(x)
            x = x + layer(norm(x))
            x = x if mlp is None else x + mlp(mlp_norm(x))
        return self.to_out(self.norm(x))


# ---- minrnn's stack, the tensors named as in docs/format.md where PyTorch's modules do not name them themselves

class Mixer(nn.Module):
    """mingru and minlstm."""

    def __init__(self, kind, dim, width):
        super().__init__()
        self.names = ["linear_z"] if kind == "mingru" else ["linear_f", "linear_i"]
        for name in [*self.names, "linear_h"]:
            setattr(self, name, nn.Linear(dim, width))
        self.down = nn.Linear(width, dim)

    def forward(self, u):
        gates = [torch.sigmoid(getattr(self, name)(u)) for name in self.names]
        keep, add = gates if len(gates) == 2 else (1 - gates[0], gates[0])
        b = add * g(self.linear_h(u))
        return self.down(scan(keep, b, torch.zeros_like(b[:, 0])))


def with_down(kind, dim, width):
    """nn.GRU or nn.LSTM and the projection back, both named mixer.…"""
    module = kind(dim, width, batch_first=True)
    module.down = nn.Linear(width, dim)
    return module


class Block(nn.Module):
    def __init__(self, mixer, dim, width, mlp, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim) if mlp else None
        if mixer == "attention":
            self.mixer = nn.MultiheadAttention(dim, heads, batch_first=True)
        elif mixer in ("gru", "lstm"):
            self.mixer = with_down(nn.GRU if mixer == "gru" else nn.LSTM, dim, width)
        else:
            self.mixer = Mixer(mixer, dim, width)
        if mlp:
            self.mlp = nn.ModuleDict({"up": nn.Linear(dim, mlp), "down": nn.Linear(mlp, dim)})

    def mix(self, u):
        if isinstance(self.mixer, nn.MultiheadAttention):
            future = torch.ones(u.shape[1], u.shape[1], dtype=torch.bool).triu(1)
            return self.mixer(u, u, u, attn_mask=future, need_weights=False)[0]
        if isinstance(self.mixer, nn.RNNBase):
            return self.mixer.down(self.mixer(u)[0])
        return self.mixer(u)

    def forward(self, x):
        x = x + self.mix(self.norm1(x))
        if self.norm2 is not None:
            x = x + self.mlp["down"](F.gelu(self.mlp["up"](self.norm2(x)), approximate="tanh"))
        return x


class Ours(nn.Module):
    def __init__(self, mixer, inputs, dim, depth, width=0, mlp=0, heads=1, reals=False, outputs=0):
        super().__init__()
        self.embed = nn.Linear(inputs, dim) if reals else nn.Embedding(inputs, dim)
        self.blocks = nn.ModuleList(Block(mixer, dim, width or dim, mlp, heads) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, outputs or inputs, bias=False)

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
