"""Measures minrnn inside PyTorch beside other code for the same job, in one run.

    python -m minrnn.bench [--device cpu|cuda] [--lengths 512,1024] [--json FILE]

Three tables: a training step of one layer (forward, backward from a given gradient, update) with the memory that its
forward keeps for the backward; the cost of a call on almost no data, beside that of an empty operator; and what was
left out, and why. In
each round every form runs once, so that a change of the machine's pace meets all alike. Times are medians over rounds;
"beside minrnn" is the median over rounds of the ratio. On a GPU float32 products are rounded to TF32 in all forms.
"""
import argparse
import json
import os
import statistics
import sys
import time

import numpy as np

try:
    import torch
except ImportError:
    if __name__ != "__main__":
        raise
    sys.exit("python -m minrnn.bench: PyTorch is not installed (pip install torch)")
import torch.nn.functional as F
from torch import nn

import minrnn
from minrnn.torch import MinGRU

WIDE_IN, WIDE_OUT = 64, 384


class LogSpace(nn.Module):
    """minGRU by the paper's formula: h_t = (1 − z_t) h_(t−1) + z_t g(v_t), as a scan of logarithms."""

    def __init__(self, features, hidden):
        super().__init__()
        self.project = nn.Linear(features, 2 * hidden)

    def forward(self, x):
        gate, value = self.project(x).chunk(2, -1)
        log_g = torch.where(value >= 0, (F.relu(value) + 0.5).log(), F.logsigmoid(value))
        decay = F.logsigmoid(-gate).cumsum(1)
        return (decay + torch.logcumsumexp(F.logsigmoid(gate) + log_g - decay, 1)).exp()


class First(nn.Module):
    """The output alone of a module that gives a state, too."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


class Hgrn(nn.Module):
    """minGRU's gates before the chunked HGRN kernel of flash-linear-attention: h_t = exp(g_t) h_(t−1) + x_t."""

    def __init__(self, features, hidden):
        super().__init__()
        from fla.ops.hgrn import chunk_hgrn
        self.project, self.scan = nn.Linear(features, 2 * hidden), chunk_hgrn

    def forward(self, x):
        gate, value = self.project(x).chunk(2, -1)
        candidate = torch.where(value >= 0, value + 0.5, torch.sigmoid(value))
        return self.scan(torch.sigmoid(gate) * candidate, F.logsigmoid(-gate))[0]


FORMS = {
    "minrnn MinGRU": lambda: First(MinGRU(WIDE_IN, WIDE_OUT, batch_first=True)),
    "minrnn MinGRU, torch.compile": lambda: torch.compile(First(MinGRU(WIDE_IN, WIDE_OUT, batch_first=True))),
    "minGRU, log-space, torch.compile": lambda: torch.compile(LogSpace(WIDE_IN, WIDE_OUT)),
    "minGRU, log-space, eager": lambda: LogSpace(WIDE_IN, WIDE_OUT),
    "nn.GRU": lambda: First(nn.GRU(WIDE_IN, WIDE_OUT, batch_first=True)),
}


# ---- training steps

class Step:
    """One training step of a form: forward, loss, backward, update."""

    def __init__(self, make, batch, length, device):
        torch.manual_seed(1)
        self.model, self.gpu = make().to(device), device.startswith("cuda")
        self.x = torch.randn(batch, length, WIDE_IN, device=device)
        self.gradient = torch.randn(batch, length, WIDE_OUT, device=device) / (batch * length * WIDE_OUT)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.times = []

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.model(self.x).backward(self.gradient)
        self.optimizer.step()

    def timed(self):
        start = time.perf_counter()
        self()
        if self.gpu:
            torch.cuda.synchronize()
        self.times.append(time.perf_counter() - start)

    def memory(self):
        """Bytes that the forward keeps for the backward beside input and weights; on a GPU the peak of a step."""
        if self.gpu:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self()
            return torch.cuda.max_memory_allocated() - before
        kept = {}

        def keep(tensor):
            room = tensor.untyped_storage()
            kept[room.data_ptr()] = room.nbytes()
            return tensor
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            h = self.model(self.x)
        for own in (self.x, *self.model.parameters()):
            kept.pop(own.untyped_storage().data_ptr(), None)
        del h
        return sum(kept.values())


def prepare(options, length, left_out):
    steps = {}
    for name, make in FORMS.items():
        try:
            step = Step(make, options.batch, length, options.device)
            for _ in range(2):
                step()
            steps[name] = (step, step.memory())
        except Exception as error:  # a compiler may raise anything
            if name.startswith("minrnn"):
                raise
            left_out.append(f"{name}, T={length}: {str(error).strip().splitlines()[0][:100]}")
    return steps


def training(options, left_out):
    rows = []
    for length in options.lengths:
        steps = prepare(options, length, left_out)
        begin, rounds = time.perf_counter(), 0
        while rounds < 3 or (rounds < 101 and time.perf_counter() - begin < options.seconds):
            for step, _ in steps.values():
                step.timed()
            rounds += 1
        ours = steps["minrnn MinGRU"][0].times
        for name, (step, memory) in steps.items():
            ratio = statistics.median(a / b for a, b in zip(step.times, ours))
            rows.append({"form": name, "T": length, "batch": options.batch, "ms": 1e3 * statistics.median(step.times),
                         "best_ms": 1e3 * min(step.times), "rounds": rounds, "beside_minrnn": ratio, "bytes": memory})
    return rows


# ---- the cost of a call

_library = torch.library.Library("minrnn_bench", "FRAGMENT")
_library.define("empty(Tensor x, Tensor w, Tensor b) -> (Tensor, Tensor, Tensor)")
_library.define("empty_backward(Tensor x, Tensor w, Tensor b) -> (Tensor, Tensor, Tensor)")


def _nothing(x, w, b):
    return x.new_empty(x.shape), w.new_empty(w.shape), b.new_empty(b.shape)


for _name in ("empty", "empty_backward"):
    for _key in ("CPU", "CUDA"):
        _library.impl(_name, _nothing, _key)


class _Empty(torch.autograd.Function):
    """An operator that does nothing, registered as minrnn's are."""

    @staticmethod
    def forward(ctx, *args):
        ctx.save_for_backward(*args)
        ctx.set_materialize_grads(False)
        return torch.ops.minrnn_bench.empty.default(*args)

    @staticmethod
    def backward(ctx, *_):
        return torch.ops.minrnn_bench.empty_backward.default(*ctx.saved_tensors)


def microseconds(calls, gpu):
    """The host's time of a call in each of 40 rounds of many calls; the forms take turns. On a CPU it is the time of
    this thread, without what other programs take of the machine; on a GPU it ends when all is launched."""
    clock, times = time.perf_counter if gpu else time.thread_time, {name: [] for name in calls}
    for _ in range(41):
        for name, call in calls.items():
            start = clock()
            for _ in range(200):
                call()
            times[name].append((clock() - start) / 200 * 1e6)
            if gpu:
                torch.cuda.synchronize()
    return {name: found[1:] for name, found in times.items()}


def overhead(options):
    x, g = torch.ones(1, 1, 4, device=options.device), torch.ones(1, 1, 64, device=options.device)
    w, b = (torch.ones(*shape, device=options.device, requires_grad=True) for shape in ((128, 4), (128,)))
    a, wide = np.ones((1, 4, 1), np.float32), np.ones((8, 1), np.float32)
    found = microseconds({
        "empty operator, forward": lambda: _Empty.apply(x, w, b),
        "minrnn.torch.cell, forward": lambda: minrnn.torch.cell(x, w, b),
        "empty operator, forward and backward": lambda: _Empty.apply(x, w, b)[0].backward(x),
        "minrnn.torch.cell, forward and backward": lambda: minrnn.torch.cell(x, w, b)[0].backward(g),
        "minrnn.scan on NumPy arrays": lambda: minrnn.scan(a, a),
        "minrnn.mingru on NumPy arrays": lambda: minrnn.mingru(a, wide),
    }, options.device.startswith("cuda"))
    rows = []
    for name, times in found.items():
        row = {"call": name, "us": statistics.median(times), "best_us": min(times), "beyond_empty_us": None}
        if "cell" in name:
            empty = found[name.replace("minrnn.torch.cell", "empty operator")]
            row["beyond_empty_us"] = statistics.median(a - b for a, b in zip(times, empty))
        rows.append(row)
    return rows


# ---- the report

def machine(device):
    if device.startswith("cuda"):
        return torch.cuda.get_device_name()
    names = []
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{names[0] if names else 'CPU'}, {torch.get_num_threads()} threads{load}"


def show(found):
    print(f"{found['machine']}; PyTorch {found['torch']}, minrnn {found['minrnn']}\n")
    print(f"| training step, {WIDE_IN} → {WIDE_OUT} | T | ms (median) | rounds | beside minrnn | MB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for row in found["training"]:
        print(f"| {row['form']} | {row['T']} | {row['ms']:.4g} | {row['rounds']} | {row['beside_minrnn']:.3g} | "
              f"{row['bytes'] / 1e6:.4g} |")
    print("\n| call | µs (median) | µs (least) | beyond the empty one (median) |\n| --- | --- | --- | --- |")
    for row in found["overhead"]:
        beyond = row["beyond_empty_us"]
        beyond = "" if beyond is None else f"{beyond:.3g}"
        print(f"| {row['call']} | {row['us']:.3g} | {row['best_us']:.3g} | {beyond} |")
    for line in found["left_out"]:
        print(f"left out: {line}")


def main():
    parser = argparse.ArgumentParser(prog="python -m minrnn.bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--lengths", default="", help="512,1024 on a CPU, 512,4096 on a GPU")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60, help="for the rounds of one length")
    parser.add_argument("--json", metavar="FILE", help="write everything here, too")
    options = parser.parse_args()
    gpu = options.device.startswith("cuda")
    if gpu and not torch.cuda.is_available():
        parser.error(f"--device {options.device}: PyTorch sees no GPU here")
    options.lengths = [int(n) for n in (options.lengths or ("512,4096" if gpu else "512,1024")).split(",")]
    left_out = []
    try:
        import fla.ops.hgrn  # noqa: F401
        FORMS["minGRU on fla's HGRN kernel, torch.compile"] = lambda: torch.compile(Hgrn(WIDE_IN, WIDE_OUT))
    except ImportError:
        left_out.append("fla's HGRN kernel: flash-linear-attention is not installed")
    if gpu:
        torch.set_float32_matmul_precision("high")  # TF32 for all alike
    found = {"machine": machine(options.device), "torch": torch.__version__, "minrnn": minrnn.__version__,
             "overhead": overhead(options), "training": training(options, left_out), "left_out": left_out}
    show(found)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
