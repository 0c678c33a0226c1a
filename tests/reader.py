#!/usr/bin/env python3
"""A second reader of minrnn's model files, written from docs/format.md alone.

usage: reader.py MODEL TEXTFILE
       reader.py MODEL --values FILE

Prints {"tokens": n, "nats_per_token": x, "logprobs": […]}: logprobs[i] is the log-probability of token i + 1
given tokens 0 … i, and x is minus their mean. With --values, a model of reals is given the sequences of FILE (JSON:
[sequence][token][value]) and its outputs are printed, one number per line. All arithmetic is float64, one sequence at a
time, nothing shared with the command: where the two differ by more than fp32 rounding, the
page or the command is wrong.
"""
import json
import math
import re
import sys

import numpy as np

CHOICES = {
    "model.input": ["tokens", "reals"],
    "model.head": ["token", "last", "mean", "pair-last", "pair-mean"],
    "model.loss": ["xent", "mse"],
    "model.mixer": ["mingru", "minlstm", "gru", "lstm", "attention", "mamba"],
    "model.candidate": ["positive", "linear", "tanh"],
    "model.scan": ["linear", "log"],
    "model.normalize-gates": ["yes", "no"],
    "model.h0": ["zero", "learned"],
    "model.conv": [str(taps) for taps in range(17)],
    "model.conv-place": ["inside", "residual"],
    "model.norm": ["rms", "layer", "none"],
}
AT_LEAST = {"model.inputs": 1, "model.outputs": 1, "model.layers": 1, "model.dim": 1, "model.expansion": 1,
            "model.mlp": 0}
OPTIONAL = {"model.weights": ["f32", "int8"], "model.gru-reset": ["before", "after"],
            "model.transition": ["positive", "signed"],
            "model.positions": ["rotary", "learned", "none"],
            "model.states": ["16", *map(str, range(1, 33))], "model.head-bias": ["no", "yes"],
            "model.output": ["linear", "tanh"], "model.gelu": ["tanh", "erf"],
            "model.mlp-gate": ["none", "geglu", "swiglu"], "model.mixer-bias": ["yes", "no"],
            "model.mlp-bias": ["yes", "no"], "model.tie-embeddings": ["no", "yes"],
            "model.mixer-conv": ["4", *map(str, range(1, 17))],
            "model.scaler": ["none", "input", "target", "both"]}
ATTENTION = ["model.heads", "model.window"]
NUMBERS = ["model.width", "model.mlp-width", "model.dt-rank", "model.norm-eps"]  # absent: 0
MODEL_KEYS = {*CHOICES, *AT_LEAST, "model.gate-init", "model.dropout"}
OTHER_KEYS = {"format", "version", "vocab", "step", "train.batch", "train.context"}


DTYPES = {"F32": "<f4", "F64": "<f8", "I8": "i1"}


class Refused(Exception):
    """The file is not what docs/format.md describes."""


def require(condition, message):
    if not condition:
        raise Refused(message)


def unique(pairs):
    require(len({key for key, _ in pairs}) == len(pairs), "a JSON object names a key twice")
    return dict(pairs)


def read_container(path):
    """The metadata and the tensors of a safetensors file."""
    with open(path, "rb") as file:
        content = file.read()
    header_length = int.from_bytes(content[:8], "little")
    require(8 + header_length <= len(content), "the header is cut short")
    header = json.loads(content[8:8 + header_length].decode("utf-8"), object_pairs_hook=unique)
    data = content[8 + header_length:]
    metadata = header.pop("__metadata__", {})
    tensors, spans = {}, []
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        require(entry["dtype"] in DTYPES, f"{name}: dtype {entry['dtype']}")
        dtype = np.dtype(DTYPES[entry["dtype"]])
        require(0 <= begin <= end <= len(data), f"{name}: lies outside the file")
        require(end - begin == dtype.itemsize * int(np.prod(entry["shape"])),
                f"{name}: its bytes and its shape disagree")
        tensors[name] = np.frombuffer(data[begin:end], dtype).reshape(entry["shape"])
        require(np.isfinite(tensors[name]).all(), f"{name}: a number that is not finite")
        spans.append((begin, end))
    # safetensors: the tensors cover the data without gap or overlap
    begins, ends = zip(*sorted(spans))
    require(begins + (len(data),) == (0,) + ends, "the tensors do not cover the data")
    return metadata, tensors


def check_metadata(metadata):
    require(metadata.get("format") == "minrnn" and metadata.get("version") == "1", "not a minrnn file of version 1")
    for key in metadata:
        require(key in MODEL_KEYS | OPTIONAL.keys() | OTHER_KEYS | {*ATTENTION, *NUMBERS} or key.startswith("task."),
                f"unknown key {key}")
    for key in MODEL_KEYS:
        require(key in metadata, f"{key} is missing")
    for key, values in CHOICES.items():
        require(metadata[key] in values, f"{key} = {metadata[key]}")
    for key, values in OPTIONAL.items():
        require(metadata.get(key, values[0]) in values, f"{key} = {metadata.get(key)}")
    for key in NUMBERS:
        require(re.fullmatch(r"[0-9.e+-]+", metadata.get(key, "0")) and float(metadata.get(key, "0")) >= 0,
                f"{key} = {metadata.get(key)}")
    numbers = dict(AT_LEAST, **({key: 1 for key in ATTENTION} if metadata["model.mixer"] == "attention" else {}))
    for key, least in numbers.items():
        require(key in metadata, f"{key} is missing")
        require(re.fullmatch("[0-9]+", metadata[key]) and int(metadata[key]) >= least, f"{key} = {metadata[key]}")


def expected_shapes(form):
    """Name → shape of every tensor that a model of this form has."""
    V, D = int(form["inputs"]), int(form["dim"])
    H = int(form.get("width", 0)) or D * int(form["expansion"])
    F = int(form.get("mlp-width", 0)) or D * int(form["mlp"])
    shapes = {}

    def linear(name, outputs, inputs, bias="yes"):
        shapes[f"{name}.weight"] = (outputs, inputs)
        if bias == "yes":
            shapes[f"{name}.bias"] = (outputs,)

    mixer_bias, mlp_bias = form.get("mixer-bias", "yes"), form.get("mlp-bias", "yes")

    def norm(name):
        shapes[f"{name}.weight"] = (D,)
        if form["norm"] == "layer":
            shapes[f"{name}.bias"] = (D,)

    if form["input"] == "tokens":
        shapes["embed.weight"] = (V, D)
    else:
        linear("embed", D, V)
    for i in range(int(form["layers"])):
        block = f"blocks.{i}"
        if form["conv"] != "0":
            shapes[f"{block}.conv.weight"] = (D, 1, int(form["conv"]))
            shapes[f"{block}.conv.bias"] = (D,)
            if form["conv-place"] == "residual":
                linear(f"{block}.conv.point", D, D)
        norm(f"{block}.norm1")
        for gate in {"mingru": ["linear_z", "linear_h"],
                     "minlstm": ["linear_f", "linear_i", "linear_h"]}.get(form["mixer"], []):
            linear(f"{block}.mixer.{gate}", H, D, mixer_bias)
        rows = {"gru": 3 * H, "lstm": 4 * H}.get(form["mixer"])
        if rows:
            shapes.update({f"{block}.mixer.weight_ih": (rows, D), f"{block}.mixer.weight_hh": (rows, H)})
            shapes.update({f"{block}.mixer.bias_ih": (rows,), f"{block}.mixer.bias_hh": (rows,)})
        if form["mixer"] == "mamba":
            shapes.update(mamba_shapes(f"{block}.mixer", form, H))
        if form["mixer"] == "attention":
            shapes[f"{block}.mixer.in_proj_weight"] = (3 * D, D)
            if mixer_bias == "yes":
                shapes[f"{block}.mixer.in_proj_bias"] = (3 * D,)
            if form.get("positions") == "learned":
                shapes[f"{block}.mixer.position"] = (int(form["window"]), D)
        elif form["h0"] == "learned":
            shapes[f"{block}.mixer.h0"] = (2 * H,) if form["mixer"] == "lstm" else (H,)
        linear(f"{block}.mixer.down", D, D if form["mixer"] == "attention" else H, mixer_bias)
        if F > 0:
            norm(f"{block}.norm2")
            for name in ["up"] if form.get("mlp-gate", "none") == "none" else ["gate", "up"]:
                linear(f"{block}.mlp.{name}", F, D, mlp_bias)
            linear(f"{block}.mlp.down", D, F, mlp_bias)
    norm("norm")
    if form["head"].startswith("pair-"):
        linear("pair", D, 4 * D)
    return {**shapes, **head_shapes(form)}


def mamba_shapes(name, form, H):
    D, S, taps = int(form["dim"]), int(form.get("states", 16)), int(form.get("mixer-conv", 4))
    R = int(form.get("dt-rank", 0)) or (D + 15) // 16
    return {f"{name}.in_proj.weight": (2 * H, D), f"{name}.conv1d.weight": (H, 1, taps), f"{name}.conv1d.bias": (H,),
            f"{name}.x_proj.weight": (R + 2 * S, H), f"{name}.A_log": (H, S), f"{name}.D": (H,),
            f"{name}.dt_proj.weight": (H, R), f"{name}.dt_proj.bias": (H,)}


def head_shapes(form):
    """The same for the head and the scaler."""
    V, C = int(form["inputs"]), int(form["outputs"])
    shapes = {} if form.get("tie-embeddings") == "yes" else {"head.weight": (C, int(form["dim"]))}
    if form.get("head-bias") == "yes":
        shapes["head.bias"] = (C,)
    for side, channels in ("input", V), ("target", C):
        if form.get("scaler", "none") in (side, "both"):
            shapes.update({f"scaler.{side}.mean": (channels,), f"scaler.{side}.scale": (channels,)})
    return shapes


def dequantize(tensors):
    """Matrices of 8 bits and their scales as one tensor each."""
    whole = dict(tensors)
    for name in [name for name, tensor in tensors.items()
                 if tensor.ndim == 2 and name != "embed.weight"
                 and not name.endswith((".weight_hh", ".position", ".A_log"))]:
        require(tensors[name].dtype == np.int8, f"{name}: not I8")
        require(f"{name}_scale" in whole, f"{name}_scale is missing")
        scale = whole.pop(f"{name}_scale")
        require(scale.dtype == np.float32 and scale.shape == tensors[name].shape[:1],
                f"{name}_scale: wrong type or shape")
        require((tensors[name] > -128).all(), f"{name}: -128")
        require(((scale > 0) | ((scale == 0) & (tensors[name] == 0).all(1))).all(), f"{name}_scale: not above 0")
        whole[name] = scale[:, None].astype(np.float64) * tensors[name]
    return whole


# The mathematics: every x is [time, channel].

def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))  # 1/(1 + e^(−x)), which would overflow


def softplus(x):
    return np.logaddexp(0, x)


ERF = np.vectorize(math.erf, otypes=[np.float64])


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


CANDIDATE = {
    "positive": lambda v: np.where(v >= 0, v + 0.5, sigmoid(v)),
    "linear": lambda v: v,
    "tanh": np.tanh,
}


class Model:
    def __init__(self, path):
        metadata, tensors = read_container(path)
        check_metadata(metadata)
        for name, tensor in tensors.items():
            require((tensor.dtype == np.float64) == name.startswith("scaler."), f"{name}: dtype {tensor.dtype}")
            require((tensor > 0).all() or not re.fullmatch(r"scaler\.\w+\.scale", name), f"{name}: not above 0")
        if metadata.get("model.weights", "f32") == "int8":
            tensors = dequantize(tensors)
        for name, tensor in tensors.items():
            require(tensor.dtype != np.int8, f"{name}: I8")
        self.tensors = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
        self.form = {key[len("model."):]: value for key, value in metadata.items() if key.startswith("model.")}
        self.vocab = metadata.get("vocab")
        shapes = expected_shapes(self.form)
        difference = sorted(self.tensors.keys() ^ shapes.keys())
        require(not difference, f"tensors missing or too many: {difference}")
        for name, shape in shapes.items():
            require(self.tensors[name].shape == shape, f"{name}: shape {self.tensors[name].shape}, not {shape}")

    def linear(self, name, x):
        return x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0)

    def gelu(self, x):
        return x * 0.5 * (1 + ERF(x / np.sqrt(2))) if self.form.get("gelu") == "erf" else gelu(x)

    def norm(self, name, x):
        weight, eps = self.tensors[f"{name}.weight"], float(self.form.get("norm-eps", 0))
        if self.form["norm"] == "none":
            return x * weight
        if self.form["norm"] == "rms":
            return x / np.sqrt((x**2).mean(-1, keepdims=True) + (eps or 1e-6)) * weight
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred**2).mean(-1, keepdims=True)
        return centred / np.sqrt(variance + (eps or 1e-5)) * weight + self.tensors[f"{name}.bias"]

    def conv(self, name, x):
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        taps = weight.shape[2]
        padded = np.concatenate([np.zeros((taps - 1, x.shape[1])), x])  # padded[t + j] is x[t − taps + 1 + j]
        return bias + sum(weight[:, 0, j] * padded[j:j + len(x)] for j in range(taps))

    def recurrent(self, name, u):
        """GRU or LSTM."""
        weights, biases = self.tensors[f"{name}.weight_hh"], self.tensors[f"{name}.bias_hh"]
        H = weights.shape[1]
        lstm, before = self.form["mixer"] == "lstm", self.form.get("gru-reset", "before") == "before"
        inputs = u @ self.tensors[f"{name}.weight_ih"].T + self.tensors[f"{name}.bias_ih"]
        state = self.tensors[f"{name}.h0"] if self.form["h0"] == "learned" else np.zeros(2 * H)
        h, c, states = state[:H], state[H:], []
        for i in inputs:
            s = weights @ h + biases
            if lstm:
                admit, forget, g, o = np.split(i + s, 4)
                c = sigmoid(forget) * c + sigmoid(admit) * np.tanh(g)
                h = sigmoid(o) * np.tanh(c)
            else:
                r, z = sigmoid(i[:H] + s[:H]), sigmoid(i[H:2 * H] + s[H:2 * H])
                s_n = weights[2 * H:] @ (r * h) + biases[2 * H:] if before else r * s[2 * H:]
                h = (1 - z) * np.tanh(i[2 * H:] + s_n) + z * h
            states.append(h)
        return np.array(states)

    def mamba(self, name, v):
        t = self.tensors
        x, z = np.split(v @ t[f"{name}.in_proj.weight"].T, 2, axis=1)
        u = self.conv(f"{name}.conv1d", x)
        u = u * sigmoid(u)
        A, D = -np.exp(t[f"{name}.A_log"]), t[f"{name}.D"]
        projected = u @ t[f"{name}.x_proj.weight"].T
        rank = projected.shape[1] - 2 * A.shape[1]
        B, C = np.split(projected[:, rank:], 2, axis=1)
        step = softplus(self.linear(f"{name}.dt_proj", projected[:, :rank]))
        h, out = np.zeros_like(A), np.empty_like(u)
        for i in range(len(u)):
            h = np.exp(step[i][:, None] * A) * h + (step[i] * u[i])[:, None] * B[i]
            out[i] = h @ C[i] + D * u[i]
        return out * z * sigmoid(z)

    def mixer(self, name, u):
        if self.form["mixer"] in ("gru", "lstm"):
            return self.recurrent(name, u)
        if self.form["mixer"] == "mamba":
            return self.mamba(name, u)
        candidate = CANDIDATE[self.form["candidate"]]
        c = candidate(self.linear(f"{name}.linear_h", u))
        if self.form.get("transition") == "signed":
            a, b = self.signed(name, u, c)
        elif self.form["mixer"] == "mingru":
            z = sigmoid(self.linear(f"{name}.linear_z", u))
            a, b = 1 - z, z * c
        else:
            forget, admit = self.linear(f"{name}.linear_f", u), self.linear(f"{name}.linear_i", u)
            if self.form["normalize-gates"] == "yes":
                d = softplus(-admit) - softplus(-forget)
                a, b = sigmoid(d), sigmoid(-d) * c
            else:
                a, b = sigmoid(forget), sigmoid(admit) * c
        h = candidate(self.tensors[f"{name}.h0"]) if self.form["h0"] == "learned" else np.zeros(c.shape[1])
        states = np.empty_like(c)
        for t in range(len(u)):  # scan = log means the same numbers
            h = a[t] * h + b[t]
            states[t] = h
        return states

    def signed(self, name, u, c):
        minimal = self.form["mixer"] == "mingru"
        a = np.clip(1.2 * np.tanh(self.linear(f"{name}.linear_z" if minimal else f"{name}.linear_f", u)), -1, 1)
        left = 1 - np.abs(a)
        if minimal:
            return a, left * c
        admit = sigmoid(self.linear(f"{name}.linear_i", u))
        return a, (left if self.form["normalize-gates"] == "yes" else 1) * admit * c

    def attention(self, name, u):
        heads, window = int(self.form["heads"]), int(self.form["window"])
        positions = self.form.get("positions", "rotary")
        n = np.arange(len(u))
        if positions == "learned":
            u = u + self.tensors[f"{name}.position"][n % window]
        qkv = u @ self.tensors[f"{name}.in_proj_weight"].T + self.tensors.get(f"{name}.in_proj_bias", 0)
        q, k, v = qkv.reshape(len(u), 3, heads, -1).transpose(1, 2, 0, 3)
        size = q.shape[-1]
        if positions == "rotary":
            turn = np.exp(1j * n[:, None] * 10000.0 ** (-np.arange(0, size, 2) / size))
            q, k = ((x[..., 0::2] + 1j * x[..., 1::2]) * turn for x in (q, k))
            scores = (q @ k.conj().transpose(0, 2, 1)).real / np.sqrt(size)
        else:
            scores = q @ k.transpose(0, 2, 1) / np.sqrt(size)
        distance = n[:, None] - n
        scores = np.where((distance >= 0) & (distance < window), scores, -np.inf)
        weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
        return (weights @ v).transpose(1, 0, 2).reshape(len(u), -1)

    def block(self, name, x):
        conv_place = self.form["conv-place"] if self.form["conv"] != "0" else "none"
        if conv_place == "residual":
            x = x + self.linear(f"{name}.conv.point", self.conv(f"{name}.conv", x))
        u = self.norm(f"{name}.norm1", x)
        if conv_place == "inside":
            u = self.conv(f"{name}.conv", u)
        x = x + self.linear(f"{name}.mixer.down",
                            (self.attention if self.form["mixer"] == "attention" else self.mixer)(f"{name}.mixer", u))
        if f"{name}.norm2.weight" in self.tensors:
            x = x + self.linear(f"{name}.mlp.down", self.hidden(f"{name}.mlp", self.norm(f"{name}.norm2", x)))
        return x

    def hidden(self, name, v):
        gate = self.form.get("mlp-gate", "none")
        up = self.linear(f"{name}.up", v)
        if gate == "none":
            return self.gelu(up)
        g = self.linear(f"{name}.gate", v)
        return up * (g * sigmoid(g) if gate == "swiglu" else self.gelu(g))

    def blocks(self, x):
        for i in range(int(self.form["layers"])):
            x = self.block(f"blocks.{i}", x)
        return self.norm("norm", x)

    def head(self, y):
        tied = self.form.get("tie-embeddings") == "yes"
        return y @ self.tensors["embed.weight" if tied else "head.weight"].T + self.tensors.get("head.bias", 0)

    def code(self, values):
        """What a sequence of values comes to: a row for each token, or one."""
        if "scaler.input.mean" in self.tensors:
            values = (values - self.tensors["scaler.input.mean"]) / self.tensors["scaler.input.scale"]
        y = self.blocks(self.linear("embed", values))
        kind = self.form["head"].removeprefix("pair-")
        return y if kind == "token" else y[-1:] if kind == "last" else y.mean(0, keepdims=True)

    def outputs(self, sequences):
        """The outputs of all sequences of values, in the caller's units."""
        require(self.form["input"] == "reals", "not a model of values")
        codes = [self.code(np.array(values, np.float64)) for values in sequences]
        if self.form["head"].startswith("pair-"):
            pairs = [np.concatenate([a, b, a * b, a - b], axis=1) for a, b in zip(codes[0::2], codes[1::2])]
            codes = [self.gelu(self.linear("pair", pair)) for pair in pairs]
        scores = self.head(np.concatenate(codes))
        if self.form.get("output") == "tanh":
            scores = np.tanh(scores)
        if "scaler.target.mean" in self.tensors:
            scores = scores * self.tensors["scaler.target.scale"] + self.tensors["scaler.target.mean"]
        return scores

    def logprobs(self, ids):
        outputs = self.head(self.blocks(self.tensors["embed.weight"][ids[:-1]]))
        log_softmax = outputs - np.logaddexp.reduce(outputs, axis=-1, keepdims=True)
        return log_softmax[np.arange(len(ids) - 1), ids[1:]]

    def tokens(self, content):
        """The ids of a text, given as bytes."""
        for key, value in [("input", "tokens"), ("head", "token"), ("loss", "xent")]:
            require(self.form[key] == value, f"not a model of text: model.{key} = {self.form[key]}")
        require(self.vocab is not None, "not a model of text: no vocab")
        if self.vocab == "bytes":
            characters, text = list(range(256)), content
        else:
            characters, text = json.loads(self.vocab), content.decode("utf-8")
            require(all(isinstance(c, str) and len(c) == 1 for c in characters), "vocab: not characters")
        index = {character: i for i, character in enumerate(characters)}
        require(len(index) == len(characters) == int(self.form["inputs"]) == int(self.form["outputs"]),
                "vocab: not one token for each input and output")
        for character in text:
            require(character in index, f"the vocabulary lacks {character!r}")
        require(len(text) >= 2, "a score needs two tokens or more")
        return np.array([index[character] for character in text])


def main():
    if len(sys.argv) not in (3, 4) or (len(sys.argv) == 4 and sys.argv[2] != "--values"):
        sys.exit(__doc__)
    try:
        model = Model(sys.argv[1])
        if len(sys.argv) == 4:
            with open(sys.argv[3], encoding="utf-8") as file:
                outputs = model.outputs(json.load(file))
            print("\n".join(map(repr, outputs.ravel().tolist())))
            return
        with open(sys.argv[2], "rb") as file:
            ids = model.tokens(file.read())
    except (Refused, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sys.exit(f"reader.py: {sys.argv[1]}: {error}")
    logprobs = model.logprobs(ids)
    print(json.dumps({"tokens": len(ids), "nats_per_token": -logprobs.mean(), "logprobs": logprobs.tolist()}))


if __name__ == "__main__":
    main()
