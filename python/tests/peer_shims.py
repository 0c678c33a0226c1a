"""The interfaces of other minGRU packages over minrnn.torch, so that their own tests can be run against it.

    python peer_shims.py lucidrains TESTS…      pytest on their files, with their package replaced
    python peer_shims.py cheind tests/test_mingru.py tests/test_bidirectional.py … -k "not script and not conv"

lucidrains: minGRU-pytorch. cheind: github.com/cheind/mingru, of which TorchScript and convolutions are not here.
"""
import importlib
import sys
import types

from torch_support import torch  # or a skip
from torch import nn

from minrnn.torch import cell, scan


# ---- lucidrains: output, and the state as a sequence of one token

class _Lucidrains(nn.Module):
    kind, gates, name = "", 0, ""

    def __init__(self, dim, expansion_factor=1., proj_out=None):
        super().__init__()
        inner = int(dim * expansion_factor)
        setattr(self, self.name, nn.Linear(dim, inner * self.gates, bias=False))
        project = expansion_factor != 1. if proj_out is None else proj_out
        self.to_out = nn.Linear(inner, dim, bias=False) if project else nn.Identity()

    def forward(self, x, prev_hidden=None, return_next_prev_hidden=False):
        hidden, *gates = getattr(self, self.name).weight.chunk(self.gates)  # theirs has the candidate first
        h, last = cell(x, torch.cat([*gates, hidden]), None, None if prev_hidden is None else prev_hidden.squeeze(1),
                       kind=self.kind)
        out = self.to_out(h)
        return (out, last.unsqueeze(1)) if return_next_prev_hidden else out


class LucidrainsMinGRU(_Lucidrains):
    kind, gates, name = "mingru", 2, "to_hidden_and_gate"


class LucidrainsMinLSTM(_Lucidrains):
    kind, gates, name = "minlstm", 3, "to_hidden_and_f_i_gate"


# ---- cheind: lists of states, one for each layer, [batch, 1, hidden]

class CheindCell(nn.Module):
    def __init__(self, input_size, hidden_size, bias=True):
        super().__init__()
        self.layer_sizes = (input_size, hidden_size)
        self.to_gate_hidden = nn.Linear(input_size, 2 * hidden_size, bias=bias)

    def init_hidden_state(self, x):
        return [x.new_full((x.shape[0], 1, self.layer_sizes[1]), 0.5)]  # g(0)

    def forward(self, x, h=None):
        h = self.init_hidden_state(x) if h is None else h
        out, last = cell(x, self.to_gate_hidden.weight, self.to_gate_hidden.bias, h[0].squeeze(1))
        return out, [last.unsqueeze(1)]


class CheindStack(nn.Module):
    def __init__(self, input_size, hidden_sizes, *, bias=True, dropout=0.0, residual=False, **_):
        super().__init__()
        sizes = [input_size, *hidden_sizes]
        self.layer_sizes, self.num_layers, self.residual = tuple(sizes), len(hidden_sizes), residual
        self.cells = nn.ModuleList(CheindCell(a, b, bias) for a, b in zip(sizes, sizes[1:]))
        self.align = nn.ModuleList(nn.Linear(a, b, bias=False) if residual and a != b else nn.Identity()
                                   for a, b in zip(sizes, sizes[1:]))
        self.dropout = nn.Dropout(dropout)

    def init_hidden_state(self, x):
        return [layer.init_hidden_state(x)[0] for layer in self.cells]

    def forward(self, x, h=None):
        h, lasts = self.init_hidden_state(x) if h is None else h, []
        for i, (layer, align) in enumerate(zip(self.cells, self.align)):
            out, last = layer(self.dropout(x) if i else x, [h[i]])
            x = out + align(x) if self.residual else out
            lasts += last
        return x, lasts


class CheindBidirectional(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        import copy
        self.layer_sizes, self.there, self.back = rnn.layer_sizes, rnn, copy.deepcopy(rnn)
        for module in self.back.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()

    def init_hidden_state(self, x):
        return self.there.init_hidden_state(x) + self.back.init_hidden_state(x)

    def forward(self, x, h=None):
        h = self.init_hidden_state(x) if h is None else h
        half = len(h) // 2
        there, first = self.there(x, h[:half])
        back, second = self.back(x.flip(1), h[half:])
        return torch.cat([there, back.flip(1)], 2), first + second


def parallel_scan_log(log_a, log_b):
    """x₀, x₁, … from log a₁, … and log x₀, log b₁, …"""
    b = log_b.exp()
    return torch.cat([b[:, :1], scan(log_a.exp(), b[:, 1:], b[:, 0])[0]], 1)


SHIMS = {
    "lucidrains": {"minGRU_pytorch": {"minGRU": LucidrainsMinGRU, "minLSTM": LucidrainsMinLSTM},
                   "mingru": {"minGRU": LucidrainsMinGRU}, "minlstm": {"minLSTM": LucidrainsMinLSTM}},
    "cheind": {"mingru": {"MinGRUCell": CheindCell, "MinGRU": CheindStack, "Bidirectional": CheindBidirectional},
               "mingru.scan": {"parallel_scan_log": parallel_scan_log}},
}


def install(peer):
    """Puts shims in the places of a peer's modules."""
    for name, members in SHIMS[peer].items():
        module = types.ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, module)


if __name__ == "__main__":
    install(sys.argv[1])
    sys.exit(importlib.import_module("pytest").main([*sys.argv[2:], "-p", "no:cacheprovider"]))
