#!/usr/bin/env python3
"""Measures PyTorch's versions of the models of `minrnn reproduce efficiency`: forward, loss and backward of the same
stack.

    torch_peers.py [--device cuda|cpu] [--dtype f32|bf16] [--compile] [--only GRU] [--cell-seconds 20] T... > peers.json
    minrnn reproduce --merge peers.json --out DIR

Needs only PyTorch. Times are medians after warm-up; rows have the same format as minrnn's own. GRU and LSTM: a loop of
operations over time, which is what the paper compares with, and PyTorch's module (cuDNN on a GPU). minGRU and minLSTM:
the paper's log-space code, and minGRU as a loop, which is faster on a CPU. Mamba: a selective scan in plain operations.
Attention: scaled_dot_product_attention. --compile: torch.compile of those that are no loops, for each length anew.
--dtype bf16: all parameters and activations in bf16."""
import argparse
import datetime
import json
import signal
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

DIM, WIDTH, STATES, VOCAB, LAYERS = 64, 384, 16, 16, 3


# ---- the mixers: [B, T, DIM] -> [B, T, width]

def log_g(x):
    return torch.where(x >= 0, (F.relu(x) + 0.5).log(), -F.softplus(-x))


def scan_log(log_a, log_b):
    s = log_a.cumsum(1)
    return (s + torch.logcumsumexp(log_b - s, 1)).exp()


class MinLog(nn.Module):
    """minGRU (one gate) or minLSTM (two) as in the paper's appendix."""
    width = WIDTH

    def __init__(self, gates):
        super().__init__()
        self.gates, self.project = gates, nn.Linear(DIM, WIDTH * (gates + 1))

    def forward(self, x):
        parts = self.project(x).chunk(self.gates + 1, -1)
        # log(forget/input): for one gate and its complement, or for two gates normalised to a sum of one
        keep = -parts[0] if self.gates == 1 else F.softplus(-parts[1]) - F.softplus(-parts[0])
        return scan_log(-F.softplus(-keep), -F.softplus(keep) + log_g(parts[-1]))


class MinWalk(nn.Module):
    """minGRU as a loop over time."""
    width = WIDTH

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(DIM, 2 * WIDTH)

    def forward(self, x):
        k, v = self.project(x).chunk(2, -1)
        z = torch.sigmoid(k)
        b = z * torch.where(v >= 0, v + 0.5, torch.sigmoid(v))
        h, out = torch.zeros_like(b[:, 0]), []
        for a, c in zip((1 - z).unbind(1), b.unbind(1)):
            h = a * h + c
            out.append(h)
        return torch.stack(out, 1)


class GruLoop(nn.Module):
    width = WIDTH

    def __init__(self):
        super().__init__()
        self.gates, self.candidate = nn.Linear(DIM + WIDTH, 2 * WIDTH), nn.Linear(DIM + WIDTH, WIDTH)

    def forward(self, x):
        h, out = x.new_zeros(x.shape[0], WIDTH), []
        for now in x.unbind(1):
            z, r = torch.sigmoid(self.gates(torch.cat([now, h], 1))).chunk(2, 1)
            h = (1 - z) * h + z * torch.tanh(self.candidate(torch.cat([now, r * h], 1)))
            out.append(h)
        return torch.stack(out, 1)


class LstmLoop(nn.Module):
    width = WIDTH

    def __init__(self):
        super().__init__()
        self.gates = nn.Linear(DIM + WIDTH, 4 * WIDTH)

    def forward(self, x):
        h, c, out = x.new_zeros(x.shape[0], WIDTH), x.new_zeros(x.shape[0], WIDTH), []
        for now in x.unbind(1):
            i, f, o, u = self.gates(torch.cat([now, h], 1)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
            h = torch.sigmoid(o) * torch.tanh(c)
            out.append(h)
        return torch.stack(out, 1)


class Module(nn.Module):
    width = WIDTH

    def __init__(self, kind):
        super().__init__()
        self.inner = kind(DIM, WIDTH, batch_first=True)

    def forward(self, x):
        return self.inner(x)[0]


class Mamba(nn.Module):
    """S6 with the selective scan as a loop over time; the output projection is the stack's."""
    width = WIDTH

    def __init__(self):
        super().__init__()
        self.rank = DIM // 16
        self.in_proj = nn.Linear(DIM, 2 * WIDTH, bias=False)
        self.conv = nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH, padding=3)
        self.x_proj, self.dt_proj = nn.Linear(WIDTH, self.rank + 2 * STATES, bias=False), nn.Linear(self.rank, WIDTH)
        self.a_log = nn.Parameter(torch.arange(1, STATES + 1).float().log().repeat(WIDTH, 1))
        self.skip = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        u, z = self.in_proj(x).chunk(2, -1)
        u = F.silu(self.conv(u.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
        dt, b, c = self.x_proj(u).split([self.rank, STATES, STATES], -1)
        delta, a = F.softplus(self.dt_proj(dt)), -self.a_log.exp()
        h, out = x.new_zeros(x.shape[0], WIDTH, STATES), []
        for d, du, bt, ct in zip(delta.unbind(1), (delta * u).unbind(1), b.unbind(1), c.unbind(1)):
            h = torch.exp(d[..., None] * a) * h + du[..., None] * bt[:, None]
            out.append((h @ ct[..., None])[..., 0])
        return (torch.stack(out, 1) + u * self.skip) * F.silu(z)


class Attention(nn.Module):
    width = DIM

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)

    def forward(self, x):
        q, k, v = (part[:, None] for part in self.qkv(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0]


FORMS = {"minGRU log-space": lambda: MinLog(1), "minGRU loop": MinWalk, "minLSTM log-space": lambda: MinLog(2),
         "GRU loop": GruLoop, "GRU module": lambda: Module(nn.GRU),
         "LSTM loop": LstmLoop, "LSTM module": lambda: Module(nn.LSTM), "Mamba": Mamba, "attention": Attention}

WHOLE = ("log-space", "attention")  # forms that a compiler sees at once


class Stack(nn.Module):
    """embedding, three of norm, mixer, down-projection and residual, norm, head"""

    def __init__(self, make):
        super().__init__()
        self.embed, self.norm, self.head = nn.Embedding(VOCAB, DIM), nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(LAYERS))
        self.mixers = nn.ModuleList(make() for _ in range(LAYERS))
        self.downs = nn.ModuleList(nn.Linear(mixer.width, DIM) for mixer in self.mixers)

    def forward(self, ids):
        x = self.embed(ids)
        for norm, mixer, down in zip(self.norms, self.mixers, self.downs):
            x = x + down(mixer(norm(x)))
        return self.head(self.norm(x))


# ---- measuring

def once(step, gpu):
    start = time.perf_counter()
    step()
    if gpu:
        torch.cuda.synchronize()
    return time.perf_counter() - start


def timed(step, gpu, limit):
    """Median and best seconds, and the number of repetitions, as minrnn measures them."""
    spent = last = once(step, gpu)
    for _ in range(2):
        if spent + 2 * last < limit / 2:
            last = once(step, gpu)
            spent += last
    enough, times = spent + 1, []
    while len(times) < 201 and (not times or (spent + last < limit and (len(times) < 10 or spent < enough))):
        last = once(step, gpu)
        times.append(last)
        spent += last
    times.sort()
    return times[len(times) // 2], times[0], len(times)


def measure(form, length, options):
    gpu = options.device.startswith("cuda")
    torch.manual_seed(1)
    model = Stack(FORMS[form]).to(options.device, torch.bfloat16 if options.dtype == "bf16" else torch.float32)
    if options.compile:
        torch._dynamo.reset()
        model = torch.compile(model, dynamic=False)
    ids, target = (torch.randint(0, VOCAB, (options.batch, length), device=options.device) for _ in range(2))

    def step():
        model.zero_grad(set_to_none=True)
        F.cross_entropy(model(ids).float().flatten(0, 1), target.flatten()).backward()

    if gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    median, best, count = timed(step, gpu, options.cell_seconds)
    row = {"ms": 1e3 * median, "best_ms": 1e3 * best, "repetitions": count}
    if gpu:
        row["bytes"] = torch.cuda.max_memory_allocated() - before
    return row


def chip(device):
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else 'CPU'}, {torch.get_num_threads()} threads"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lengths", nargs="+", type=int, metavar="T")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dtype", default="f32", choices=("f32", "bf16"))
    parser.add_argument("--compile", action="store_true", help="torch.compile; loops and modules are left out")
    parser.add_argument("--only", default="", help="forms whose name contains this")
    parser.add_argument("--cell-seconds", type=float, default=20, help="leave out what would take longer")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    common = {"profile": "ours", "settings": "", "kind": options.device.split(":")[0], "dtype": options.dtype,
              "device": chip(options.device), "torch": torch.__version__}
    rows = []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        measure_all(options, common, rows)
    finally:  # also when it was stopped: what was measured so far
        print('{"experiment": "efficiency", "rows": [\n' + ",\n".join("  " + json.dumps(row) for row in rows) + "\n]}")


def measure_all(options, common, rows):
    forms = [name for name in FORMS if options.only in name]
    for form in [name for name in forms if not options.compile or name.endswith(WHOLE)]:
        last = 0
        for length in sorted(options.lengths):
            if 4 * last > options.cell_seconds:
                print(f"{form} T={length}: left out, about {2 * last:.3g} s a step", file=sys.stderr)
                break
            try:
                found = measure(form, length, options)
            except RuntimeError as error:  # out of memory, mostly
                print(f"{form} T={length}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
                break
            last = found["ms"] / 1e3
            print(f"{form} T={length}: {found['ms']:.4g} ms", file=sys.stderr)
            date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            rows.append({"experiment": "efficiency", "row": "PyTorch " + form + " compiled" * options.compile,
                         "column": f"B={options.batch} T={length}", **common, "date": date,
                         "batch": options.batch, "length": length, **found})


if __name__ == "__main__":
    main()
