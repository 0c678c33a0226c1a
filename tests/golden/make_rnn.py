#!/usr/bin/env python3
"""Writes rnn.safetensors of tests/test_rnn.c: GRU and LSTM in float64.

    python3 tests/golden/make_rnn.py

`gru_after` and `lstm` are torch.nn.GRU and torch.nn.LSTM themselves; `gru_before` is the paper's equations token by
token. Needs PyTorch; running the tests does not.
"""
import json
import pathlib
import struct

import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
torch.set_default_dtype(torch.float64)
torch.manual_seed(2025)
B, T, D, H = 3, 11, 5, 6


def save(name, tensors):
    header, blobs, at = {}, [], 0
    for key in sorted(tensors):
        value = tensors[key].detach().contiguous()
        blob = value.numpy().tobytes()
        header[key] = {"dtype": "F64", "shape": list(value.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    (HERE / name).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def randn(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).float().double()


class Before(nn.Module):
    """r applies before the product with the state. z keeps the state, as in PyTorch (the paper's
    z is 1 minus this one)."""

    def __init__(self):
        super().__init__()
        other = nn.GRU(D, H)
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
            setattr(self, name, nn.Parameter(getattr(other, name).detach().clone()))

    def forward(self, x, h):
        h, out = h[0], []
        weights, biases = self.weight_hh_l0.split(H), self.bias_hh_l0.split(H)
        for t in range(T):
            i = nn.functional.linear(x[:, t], self.weight_ih_l0, self.bias_ih_l0).split(H, dim=-1)
            r = torch.sigmoid(i[0] + h @ weights[0].T + biases[0])
            z = torch.sigmoid(i[1] + h @ weights[1].T + biases[1])
            n = torch.tanh(i[2] + (r * h) @ weights[2].T + biases[2])
            h = (1 - z) * n + z * h
            out.append(h)
        return torch.stack(out, dim=1), h[None]


def make(tensors, name, module):
    with torch.no_grad():
        for p in module.parameters():
            p.copy_((p + 0.3 * torch.randn_like(p)).float().double())
    lstm = name == "lstm"
    x = randn(B, T, D).requires_grad_()
    start = [randn(B, H, scale=0.5).requires_grad_() for _ in range(2 if lstm else 1)]
    dh, dlast = randn(B, T, H), [randn(B, H) for _ in start]
    state = (start[0][None], start[1][None]) if lstm else start[0][None]
    h, last = module(x, state)
    last = [s[0] for s in last] if lstm else [last[0]]
    loss = (h * dh).sum() + sum((b * d).sum() for b, d in zip(last, dlast))
    loss.backward()
    values = {"x": x, "h_in": torch.cat(start, dim=1), "dh": dh, "dh_out": torch.cat(dlast, dim=1), "h": h,
              "h_out": torch.cat(last, dim=1), "dx": x.grad, "dh_in": torch.cat([s.grad for s in start], dim=1)}
    for key, p in module.named_parameters():
        key = key.replace("_l0", "")
        values[key], values["d" + key] = p, p.grad
    tensors.update({f"{name}.{key}": value for key, value in values.items()})


all_tensors = {}
make(all_tensors, "gru_before", Before())
make(all_tensors, "gru_after", nn.GRU(D, H, batch_first=True))
make(all_tensors, "lstm", nn.LSTM(D, H, batch_first=True))
save("rnn.safetensors", all_tensors)
