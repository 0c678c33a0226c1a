"""Weights from and to other forms: lucidrains' minGRU and minLSTM, and the tensors of minrnn's models."""
import torch
from torch import nn

from .modules import MinGRU, MinLSTM, _Recurrent

_PARTS = {"mingru": ("linear_z", "linear_h"), "minlstm": ("linear_f", "linear_i", "linear_h")}


def _tensors(source):
    found = source.state_dict() if hasattr(source, "state_dict") else source
    return {name: torch.as_tensor(value).detach().clone() for name, value in found.items()}


class _Projected(nn.Module):
    """A layer and the projection after it, as lucidrains' modules have them with an expansion factor."""

    def __init__(self, layer, weight):
        super().__init__()
        self.layer = layer
        self.out = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device=weight.device, dtype=weight.dtype)
        self.out.weight = nn.Parameter(weight)

    def forward(self, input, hx=None, **kwargs):
        y, last = self.layer(input, hx, **kwargs)
        return self.out(y), last


def _filled(kind, weight, bias):
    rows, features = weight.shape
    module = MinGRU if kind == "mingru" else MinLSTM
    layer = module(features, rows // (2 if kind == "mingru" else 3), bias=bias is not None, batch_first=True,
                   device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        layer.weight_l0.copy_(weight)
        if bias is not None:
            layer.bias_l0.copy_(bias)
    return layer


def from_lucidrains(source):
    """MinGRU or MinLSTM (batch_first, no bias) from lucidrains' minGRU or minLSTM, or its state dict. With an expansion
    factor there is a projection after the layer: then the result has `layer` and `out`, and is called the same way."""
    tensors = _tensors(source)
    out = tensors.pop("to_out.weight", None)
    if tensors.keys() == {"to_hidden_and_gate.weight"}:
        hidden, gate = tensors["to_hidden_and_gate.weight"].chunk(2)
        layer = _filled("mingru", torch.cat([gate, hidden]), None)
    elif tensors.keys() == {"to_hidden_and_f_i_gate.weight"}:
        hidden, forget, write = tensors["to_hidden_and_f_i_gate.weight"].chunk(3)
        layer = _filled("minlstm", torch.cat([forget, write, hidden]), None)
    else:
        raise ValueError(f"source: has the tensors {', '.join(sorted(tensors)) or 'none'}; to_hidden_and_gate.weight "
                         "of minGRU or to_hidden_and_f_i_gate.weight of minLSTM is needed")
    return layer if out is None else _Projected(layer, out)


def from_model(model, block=0):
    """The mixer of a block of a minrnn.Model (or of its state_dict) as MinGRU or MinLSTM."""
    tensors = model if isinstance(model, dict) else model.state_dict()
    config = {} if isinstance(model, dict) else model.config
    place = f"blocks.{block}.mixer."
    for kind, parts in _PARTS.items():
        if all(f"{place}{part}.weight" in tensors for part in parts):
            break
    else:
        raise ValueError(f"model: {place}linear_… is not there: block {block} is no minGRU or minLSTM")
    if f"{place}h0" in tensors:
        raise ValueError(f"model: {place}h0, a learned first state, has no place in a module; use cell with h_init")
    weight = torch.cat([torch.as_tensor(tensors[f"{place}{part}.weight"]) for part in parts])
    biases = [tensors.get(f"{place}{part}.bias") for part in parts]
    bias = None if biases[0] is None else torch.cat([torch.as_tensor(b) for b in biases])
    layer = _filled(kind, weight, bias)
    layer.candidate = config.get("candidate", "positive")
    layer.signed = config.get("transition") == "signed"
    layer.normalize = config.get("normalize-gates", "yes") == "yes"
    return layer


def to_model(layer, block=0):
    """The tensors of a module of one layer by the names that a block of a minrnn.Model gives them, as NumPy arrays.
    For model.load_state_dict({**model.state_dict(), **to_model(layer)})."""
    if not isinstance(layer, _Recurrent):
        raise TypeError(f"layer: must be a MinGRU or a MinLSTM, not {type(layer).__name__}")
    if layer.num_layers != 1 or layer.bidirectional:
        raise ValueError("layer: a block holds one layer in one direction")
    parts, found = _PARTS[layer._kind], {}
    for name, value in layer.named_parameters():
        for part, rows in zip(parts, value.detach().cpu().float().chunk(len(parts))):
            found[f"blocks.{block}.mixer.{part}.{name.partition('_')[0]}"] = rows.numpy().copy()
    return found
