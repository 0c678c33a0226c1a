#!/usr/bin/env python3
"""Runs exported models in onnxruntime and compares their scores with the library's: whole sequences, chunks, steps.

usage: onnx_check.py MINRNN LIBRARY        prints the largest difference of each model; exit 1 if one is too large

Models are made by the C API (onnx_cases.py), so no training is needed. Exit 77: what this program needs is not here."""
import ctypes
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

try:
    import numpy as np
    import onnxruntime
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
try:
    import onnx
    import onnx.reference
except ImportError:
    onnx = None

from onnx_cases import CASES

B, T = 4, 37
TOLERANCE = 1e-5
CHUNKS = (1, 5, 2, 13, 16)
SCALER = np.array([1e3, -40, 0.5]), np.array([250, 0.5, 1e-3])  # of inputs
P = ctypes.c_void_p


class Error(ctypes.Structure):
    _fields_ = [("status", ctypes.c_int), ("text", ctypes.c_char * 1024)]


class Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("device", ctypes.c_char_p), ("threads", ctypes.c_int),
                ("bf16", ctypes.c_int), ("exact", ctypes.c_int), ("allocator", P), ("log", P), ("warn", P),
                ("log_user", P), ("cuda_stream", P)]


class Batch(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("B", ctypes.c_int), ("T", ctypes.c_int), ("ids", P), ("values", P),
                ("reset", P), ("length", P), ("target", P), ("target_values", P), ("mask", P),
                ("counted", ctypes.c_int64)]


class Tensor(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
                ("ndim", ctypes.c_int), ("shape", ctypes.c_int64 * 4), ("count", ctypes.c_size_t)]


class Library:
    def __init__(self, path, device):
        self.lib, self.error, self.context = ctypes.CDLL(path), Error(), P()
        self.lib.mr_net_rows.restype = ctypes.c_size_t
        options = Options(size=ctypes.sizeof(Options), device=device, threads=1, exact=1)
        self.call("mr_context_new", ctypes.byref(options), ctypes.byref(self.context))

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments, ctypes.byref(self.error)):
            raise ValueError(self.error.text.decode())

    def open(self, path):
        net = P()
        self.call("mr_net_open", self.context, path.encode(), ctypes.byref(net))
        return net

    def create(self, settings):
        words = [str(word).encode() for pair in settings.items() for word in pair]
        net = P()
        self.call("mr_net_create", self.context, (ctypes.c_char_p * (len(words) + 1))(*words, None), ctypes.byref(net))
        return net

    def change(self, net, change):
        """Puts change(name, numbers) in the place of each tensor."""
        tensor = Tensor(size=ctypes.sizeof(Tensor))
        for index in range(self.lib.mr_net_tensors(net)):
            self.call("mr_net_tensor", net, index, ctypes.byref(tensor))
            numbers, size = np.empty(tensor.count, np.float32), ctypes.c_size_t(tensor.count)
            self.call("mr_net_get", net, 0, tensor.name, P(numbers.ctypes.data), size)
            numbers = change(tensor.name.decode(), numbers).astype(np.float32)
            self.call("mr_net_put", net, 0, tensor.name, P(numbers.ctypes.data), size)

    def forward(self, net, data):
        batch = Batch(size=ctypes.sizeof(Batch), B=data.shape[0], T=data.shape[1])
        if data.dtype == np.float32:
            batch.values = data.ctypes.data
        else:
            data = data.astype(np.int32)
            batch.ids = data.ctypes.data
        outputs = self.lib.mr_net_outputs(net)
        scores = np.full((self.lib.mr_net_rows(net, *data.shape[:2]), outputs), np.nan, np.float32)
        self.call("mr_net_forward", net, ctypes.byref(batch), P(scores.ctypes.data), ctypes.c_size_t(scores.size))
        return scores

    def steps(self, net, row):
        """The scores after each token of one sequence."""
        stream, scores = P(), np.full((len(row), self.lib.mr_net_outputs(net)), np.nan, np.float32)
        self.call("mr_stream_new", net, ctypes.byref(stream))
        for token, out in zip(row, scores):
            where = (P(out.ctypes.data), ctypes.c_size_t(out.size))
            if row.dtype == np.float32:
                self.call("mr_stream_step_values", stream, P(token.ctypes.data), *where)
            else:
                self.call("mr_stream_step", stream, ctypes.c_int32(int(token)), *where)
        self.lib.mr_stream_free(stream)
        return scores


def make(library, settings, path):
    """Writes the model of a case. No tensor is left at 0 or 1, as many start."""
    settings = dict(settings)
    scale, eight, scaler = settings.pop("scale", 1), settings.pop("int8", False), settings.pop("scaler", "none")
    net = library.create({**settings, "seed": int(hashlib.sha256(path.encode()).hexdigest()[:6], 16)})
    rng = np.random.default_rng(len(path))

    def noisy(name, numbers):
        numbers = numbers + 0.1 * rng.standard_normal(numbers.shape)
        return numbers * scale if name == "embed.weight" or ".down." in name or ".point." in name else numbers

    library.change(net, noisy)
    if scaler != "none":
        numbers = {"input": SCALER, "target": (np.array([0.3, -0.4]), np.array([2.5, 0.5]))}
        pairs = [P(v.ctypes.data) if scaler in (side, "both") else None for side in numbers for v in numbers[side]]
        library.call("mr_net_set_scaler", net, *pairs)
    library.call("mr_net_save_int8" if eight else "mr_net_save", net, path.encode())
    library.lib.mr_net_free(net)


def inputs_of(settings, rng):
    if settings.get("input") != "reals":
        return rng.integers(0, 256 if "vocab" in settings else int(settings["inputs"]), (B, T))
    values = rng.standard_normal((B, T, int(settings["inputs"])))
    if settings.get("scaler") in ("input", "both"):
        values = values * SCALER[1] + SCALER[0]
    return values.astype(np.float32)


def start(session, sequences):
    """The state before the first token: zeros."""
    return {part.name: np.zeros([sequences, *part.shape[1:]], np.float32) for part in session.get_inputs()[1:]}


def run(session, data, chunks, state=None):
    """The scores of all chunks, the state handed on from one to the next, and the last state."""
    names = [output.name for output in session.get_outputs()]
    first, state, scores = session.get_inputs()[0], state or start(session, len(data)), []
    for begin, end in zip(np.cumsum([0, *chunks])[:-1], np.cumsum(chunks)):
        part, *values = session.run(names, {first.name: data[:, begin:end], **state})
        state = {name.removeprefix("next_"): value for name, value in zip(names[1:], values)}
        scores.append(part)
    return scores, state


class Reference:
    """The evaluator of the package onnx, called as onnxruntime is: another reading of the standard."""

    def __init__(self, path):
        model = onnx.load(path)
        self.evaluator = onnx.reference.ReferenceEvaluator(model)
        self.inputs, self.outputs = model.graph.input, model.graph.output

    def get_inputs(self):
        return [SimpleNamespace(name=part.name, shape=[d.dim_value for d in part.type.tensor_type.shape.dim])
                for part in self.inputs]

    def get_outputs(self):
        return self.outputs

    def run(self, names, values):
        return self.evaluator.run(names, values)


def run_joined(session, data):
    """Two sequences side by side of which one is at token 10 and one at its start: the scores of each."""
    _, state = run(session, data[:1, :10], [10])
    both = {name: np.concatenate([state[name], zeros]) for name, zeros in start(session, 1).items()}
    scores, _ = run(session, np.stack([data[0, 10:], data[1, :-10]]), [3, T - 13], both)
    return np.concatenate(scores, axis=1)


def worst_of(got, wanted):
    """The largest difference, relative where the score is above 1; infinite if a shape differs or a number is NaN."""
    if got.shape != wanted.shape or got.dtype != np.float32:
        return np.inf
    off = np.abs(got - wanted) / np.maximum(1, np.abs(wanted))
    return np.inf if np.isnan(off).any() else off.max()


def compare_reference(library, net, path, data, head):
    data = np.ascontiguousarray(data[:2, :9])
    scores, _ = run(Reference(path), data, [4, 5])
    wanted = library.forward(net, data)
    return worst_of(np.concatenate(scores, axis=1).reshape(wanted.shape) if head == "token" else scores[-1], wanted)


def compare(library, net, session, data, head):
    """The largest difference of whole sequences, chunks and steps; also for one sequence alone."""
    results = {}
    for rows in (B, 2 if head.startswith("pair") else 1):
        part = np.ascontiguousarray(data[:rows])
        wanted = library.forward(net, part)
        for what, chunks in (("whole", [T]), ("chunks", CHUNKS), ("steps", [1] * T)):
            scores, _ = run(session, part, chunks)
            got = np.concatenate(scores, axis=1).reshape(wanted.shape) if head == "token" else scores[-1]
            results[what] = max(results.get(what, 0), worst_of(got, wanted))
    if head in ("token", "last"):
        got = np.concatenate([scores.reshape(1, -1) for scores in run(session, data[:1], [1] * T)[0]])
        results["stream"] = worst_of(got, library.steps(net, np.ascontiguousarray(data[0])))
    if head == "token":
        wanted = library.forward(net, np.ascontiguousarray(data[:2])).reshape(2, T, -1)
        results["joined"] = worst_of(run_joined(session, data), np.stack([wanted[0, 10:], wanted[1, :-10]]))
    return results


def check_file(path, settings):
    """What does not need to run: the checker of onnx, and the metadata."""
    if onnx is not None:
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
    meta = onnxruntime.InferenceSession(path).get_modelmeta()
    keys = meta.custom_metadata_map
    assert meta.producer_name == "minrnn", meta.producer_name
    for key, value in settings.items():
        if f"model.{key}" in keys and key not in ("norm-eps",):
            assert keys[f"model.{key}"] == str(value), (key, keys[f"model.{key}"])
    assert keys["model.mixer"] == settings["mixer"]
    assert keys.get("vocab") == settings.get("vocab"), "vocab"


def export(minrnn, model, out):
    done = subprocess.run([minrnn, "export", model, "--to", "onnx", "--out", out, "--device", "cpu"],
                          capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr.strip())
    with open(out, "rb") as file:
        return file.read()


def check_case(minrnn, library, name, settings):
    """The largest difference of one model, by kind of run."""
    model, out = f"{name}.safetensors", f"{name}.onnx"
    make(library, settings, model)
    assert export(minrnn, model, out) == export(minrnn, model, "again.onnx"), "not the same bytes"
    check_file(out, settings)
    net = library.open(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(out, options)
    head = settings.get("head", "token")
    data = inputs_of(settings, np.random.default_rng(len(name)))
    results = compare(library, net, session, data, head)
    if onnx is not None:
        results["reference"] = compare_reference(library, net, out, data, head)
    library.lib.mr_net_free(net)
    return results


def main():
    minrnn, path, *only = sys.argv[1:]
    libraries = {eight: Library(path, b"ref" if eight else b"cpu") for eight in (False, True)}
    failures, worst = 0, {}
    os.chdir(tempfile.mkdtemp(dir="."))
    for name, settings in CASES.items():
        if only and name not in only:
            continue
        try:
            results = check_case(minrnn, libraries["int8" in settings], name, settings)
        except Exception as error:  # each model is looked at, whatever another one does
            results = {str(error): np.inf}
        largest = max(results.values())
        failed = not largest <= TOLERANCE
        failures += failed
        worst[settings["mixer"]] = max(worst.get(settings["mixer"], 0), largest)
        details = ", ".join(f"{what} {value:.1e}" for what, value in results.items())
        print(f"{'FAIL' if failed else 'ok  '} {name}: {details}")
    print(json.dumps({mixer: f"{value:.1e}" for mixer, value in worst.items()}))
    return failures > 0 or not worst


if __name__ == "__main__":
    sys.exit(main())
