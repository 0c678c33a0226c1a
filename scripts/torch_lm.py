#!/usr/bin/env python3
"""Measures PyTorch's training step at the sizes of `minrnn bench lm`, as its users would write it: torch.compile, bf16
autocast, fused AdamW, clipping.

    torch_lm.py [--forms transformer,mingru] [--layers 12] [--dim 768] [--batch 32] [--context 1024] [--vocab 256]

transformer: pre-norm, heads of 64 channels, scaled_dot_product_attention (flash). mingru: norm, convolution of 4 taps,
the paper's log-space minGRU with expansion 2, norm, MLP. One JSON object a line; times are medians after warm-up."""
import argparse
import json
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv, self.down, self.heads = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), dim // 64

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, 64).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.down(y.transpose(1, 2).reshape(B, T, D))


class MinGru(nn.Module):
    """The paper's appendix, after a causal depthwise convolution."""

    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, 4, groups=dim, padding=3)
        self.project, self.down = nn.Linear(dim, 4 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        x = self.conv(x.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2)
        gate, value = self.project(x).float().chunk(2, -1)
        log_g = torch.where(value >= 0, (F.relu(value) + 0.5).log(), -F.softplus(-value))
        decay = (-F.softplus(gate)).cumsum(1)
        h = (decay + torch.logcumsumexp(log_g - F.softplus(-gate) - decay, 1)).exp()
        return self.down(h)


class Block(nn.Module):
    def __init__(self, mixer, dim):
        super().__init__()
        self.norm1, self.norm2, self.mixer = nn.RMSNorm(dim), nn.RMSNorm(dim), mixer(dim)
        self.up, self.mlp_down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.mixer(self.norm1(x))
        return x + self.mlp_down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, mixer, options):
        super().__init__()
        self.embed = nn.Embedding(options.vocab, options.dim)
        self.blocks = nn.Sequential(*[Block(mixer, options.dim) for _ in range(options.layers)])
        self.norm, self.head = nn.RMSNorm(options.dim), nn.Linear(options.dim, options.vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, target):
        scores = self.head(self.norm(self.blocks(self.embed(ids))))
        return F.cross_entropy(scores.flatten(0, 1).float(), target.flatten())


def measure(name, options):
    torch.manual_seed(1)
    model = Model({"transformer": Attention, "mingru": MinGru}[name], options).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    times = []
    torch.cuda.reset_peak_memory_stats()
    for step in range(options.warm + options.steps):
        ids = torch.randint(options.vocab, (options.batch, options.context), device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(ids, ids.roll(-1, 1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        if step >= options.warm:
            times.append(time.perf_counter() - start)
    seconds = statistics.median(times)
    return {"form": name, "torch": torch.__version__, "chip": torch.cuda.get_device_name(),
            "layers": options.layers, "dim": options.dim, "batch": options.batch, "context": options.context,
            "vocab": options.vocab, "ms": 1e3 * seconds, "best_ms": 1e3 * min(times),
            "tokens_per_s": options.batch * options.context / seconds,
            "parameters": sum(p.numel() for p in model.parameters()),
            "peak_bytes": torch.cuda.max_memory_allocated(), "loss": loss.item()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forms", default="transformer,mingru")
    for name, value in ("layers", 12), ("dim", 768), ("batch", 32), ("context", 1024), ("vocab", 256), ("steps", 10):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--warm", type=int, default=4)
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    for name in options.forms.split(","):
        print(json.dumps(measure(name, options)), flush=True)


main()
