"""Models: opened, made, trained, scored, and written with."""
import os
from dataclasses import dataclass

import numpy as np

from . import _core
from .arrays import real, whole
from .contexts import context
from .errors import InvalidArgument
from .streams import Stream

_FORWARD, _KEEP, _LOSSES = 0, 1, 2
_TRAIN, _EVALUATE, _MICRO = 0, 1, 2
_SAVE, _SAVE_INT8, _SAVE_BEST, _SAVE_TRAINING, _LOAD_TRAINING = range(5)
_VECTORS = {"weights": 0, "gradients": 1, "moment1": 2, "moment2": 3, "best": 4}
_NO_DEFAULT = object()


@dataclass
class Result:
    """Of a training step or an evaluation. accuracy is NaN where the loss is mse."""
    loss: float
    accuracy: float
    grad_norm: float
    lr: float
    rows: int
    step: int


@dataclass
class Score:
    """Of a text: nats_per_token, and the log-probability of each token but the first."""
    tokens: int
    nats_per_token: float
    logprobs: np.ndarray


def _text_of(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) else repr(value) if isinstance(value, float) else str(value)


def _settings(settings):
    flat = []
    for key, value in settings.items():
        flat += [key.replace("_", "-"), _text_of(value)]
    return flat


class Model:
    """A model. `minrnn.Model(mixer="mingru", layers=2, dim=64, input="reals", inputs=3, outputs=1, loss="mse")` makes
    one with random weights: the keys are those of `minrnn train --help` and of docs/api.md, with _ for -;
    `minrnn.load` opens one. Nothing is copied between NumPy arrays and the library that need not be, and every long
    call lets other threads run.

    >>> model = Model(input="reals", inputs=2, outputs=1, loss="mse", layers=1, dim=16, lr=0.01, seed=1)
    >>> rng = np.random.default_rng(1)
    >>> x = rng.standard_normal((8, 20, 2)).astype(np.float32)
    >>> y = x.sum(2, keepdims=True)
    >>> first = model.fit([dict(values=x, target_values=y)])
    >>> last = model.fit([dict(values=x, target_values=y)] * 200)
    >>> last.loss < first.loss / 4
    True
    """

    def __init__(self, *, device="cpu", threads=0, bf16=False, _net=None, **settings):
        self._net = _net or _core.net_create(context(device, threads, bf16), _settings(settings))
        self._where = (device, threads, bf16)
        about = self._net.describe()
        self.input, self.inputs, self.head, self.loss = (about[k] for k in ("input", "inputs", "head", "loss"))
        self.outputs, self.parameters = about["outputs"], about["parameters"]
        self.state_bytes, self.vocab = about["state_bytes"], about["vocab"] or None

    # ---- what it is

    @property
    def steps(self):
        """Training steps done on these weights."""
        return self._net.describe()["steps"]

    @property
    def config(self):
        """All keys of the model, as text."""
        config = {}
        for key in _core.keys():
            if not key["flags"] & 16:  # a setting of training, which a model does not keep
                config[key["name"]] = self._net.setting(key["name"])
        return config

    @property
    def metadata(self):
        return self._net.meta()

    def set_metadata(self, key, value):
        """Metadata of your own, such as "mine.author", which is saved with the model."""
        self._net.set_meta(key, value)

    def set(self, **settings):
        """Changes training settings from the next step on: lr, schedule, warmup, steps, clip, ..."""
        flat = _settings(settings)
        for key, value in zip(flat[0::2], flat[1::2]):
            self._net.set(key, value)

    def __repr__(self):
        c = self.config
        return f"Model({c['mixer']}, {c['layers']} layers, dim {c['dim']}, {self.parameters:,} parameters, " \
               f"step {self.steps})"

    def _repr_html_(self):
        from .show import html
        return html(self)

    # ---- text and arrays

    def _tokens(self, x):
        if isinstance(x, str):
            x = x.encode()
        if isinstance(x, (bytes, bytearray)):
            return np.frombuffer(self._net.encode(bytes(x)), np.int32)
        return whole(x, "tokens").ravel()

    def _values(self, x, shape):
        x = real(x, "values")
        if x.shape != shape:
            raise InvalidArgument(f"values: has the shape {x.shape}, where {shape} is needed")
        return x

    def encode(self, text):
        """Text (str or bytes) as an array of tokens."""
        return self._tokens(text)

    def decode(self, tokens):
        """Tokens as text; bytes that are not whole characters become U+FFFD."""
        return self._decode_bytes(tokens).decode("utf-8", "replace")

    def _decode_bytes(self, tokens):
        tokens = whole(tokens, "tokens").ravel()
        return self._net.decode(tokens, len(tokens))

    def stream(self):
        """A new sequence: Stream.step, feed, save, load, clone."""
        return Stream(self)

    def generate(self, prompt="\n", tokens=256, *, temperature=1.0, top_k=0, top_p=1.0, seed=1, stop=None):
        """Writes on from a prompt: an iterator of pieces of text. Ctrl-C stops between pieces.

        >>> model = Model(vocab="bytes", layers=1, dim=8, seed=3)
        >>> text = "".join(model.generate("Once", tokens=40, seed=2))
        >>> text == "".join(model.generate("Once", tokens=40, seed=2))
        True
        """
        from .generate import pieces
        how = (float(temperature), float(top_p), int(top_k), int(seed))
        return pieces(self, self._tokens(prompt), tokens, how, [stop] if isinstance(stop, str) else stop or [])

    def score(self, text, chunk=4096):
        """The log-probabilities of a text (str, bytes or tokens), however long: a Score."""
        tokens = self._tokens(text)
        if len(tokens) < 2:
            raise InvalidArgument("text: a score needs two tokens or more")
        losses = np.empty(len(tokens) - 1, np.float32)
        stream = self._net.stream()
        for at in range(0, len(losses), chunk):
            n = min(chunk, len(losses) - at)
            stream.score(tokens[at:at + n], tokens[at + 1:at + 1 + n], n, losses[at:at + n])
        return Score(len(tokens), float(losses.mean(dtype=np.float64)), -losses)

    # ---- batches

    def _batch(self, batch):
        """A batch as the extension wants it: B, T and seven arrays or None."""
        unknown = batch.keys() - {"ids", "values", "reset", "length", "target", "target_values", "mask"}
        if unknown:
            raise InvalidArgument(f"batch: {', '.join(sorted(unknown))}: no such array; there are ids, values, reset, "
                                  "length, target, target_values and mask")
        name, dims = ("ids", 2) if self.input == "tokens" else ("values", 3)
        if batch.get(name) is None:
            raise InvalidArgument(f"batch: {name} is missing")
        main = whole(batch[name], name) if dims == 2 else real(batch[name], name)
        if main.ndim != dims or (dims == 3 and main.shape[2] != self.inputs):
            wanted = "[batch, time]" if dims == 2 else f"[batch, time, {self.inputs}]"
            raise InvalidArgument(f"batch: {name} has the shape {main.shape}; {wanted} is needed")
        arrays = {name: main}
        for other, dtype in (("reset", np.uint8), ("length", np.int32), ("target", np.int32),
                             ("target_values", np.float32), ("mask", np.uint8)):
            value = batch.get(other)
            arrays[other] = (None if value is None else real(value, other) if dtype is np.float32
                             else whole(value, other, dtype))
        return (*main.shape[:2], arrays.get("ids"), arrays.get("values"), arrays["reset"], arrays["length"],
                arrays["target"], arrays["target_values"], arrays["mask"])

    def _scores_of(self, batch, what):
        arguments = self._batch(batch)
        B, T = arguments[:2]
        rows = self._net.rows(B, T)
        if what == _LOSSES:
            out = np.empty((B, T) if self.head == "token" else rows, np.float32)
        else:
            out = np.empty((B, T, self.outputs) if self.head == "token" else (rows, self.outputs), np.float32)
        self._net.run(what, arguments, out)
        return out

    def forward(self, ids=None, values=None, *, reset=None, length=None, train=False):
        """The scores of a batch: [batch, time, outputs], or [rows, outputs] for one per sequence. With train=True the
        activations are kept for backward()."""
        return self._scores_of({"ids": ids, "values": values, "reset": reset, "length": length},
                               _KEEP if train else _FORWARD)

    __call__ = forward

    def backward(self, dscores):
        """Adds to the gradients, from that of your loss with respect to the scores of forward(train=True)."""
        dscores = real(dscores, "dscores")
        self._net.backward(dscores, dscores.size)

    def update(self):
        """Clips the gradients and updates the weights: a Result with grad_norm, lr and step."""
        return Result(*self._net.update())

    def drop(self):
        """Discards a kept forward and the gradients so far."""
        self._net.drop()

    def losses(self, **batch):
        """The loss of each row of a batch."""
        return self._scores_of(batch, _LOSSES)

    def evaluate(self, **batch):
        """The loss of a batch, without training: a Result."""
        return Result(*self._net.learn(_EVALUATE, self._batch(batch), 0, 1, False, 0.0))

    def fit(self, batches, *, accumulate=1, carry=False, callback=None):
        """Trains on batches: an iterable of dicts with ids or values, and target or target_values (reset, length, mask
        if you like). accumulate: so many batches make one step. carry: rows continue where those of the last batch
        ended. callback(result) is called after each step; if it returns True, training stops. Returns the last Result.
        Ctrl-C stops between steps."""
        if accumulate < 1:
            raise InvalidArgument(f"accumulate = {accumulate}: must be 1 or more")
        result, micro = None, 0
        for batch in batches:
            arguments = self._batch(batch)
            if accumulate == 1 and not carry:
                result = Result(*self._net.learn(_TRAIN, arguments, 0, 1, False, 0.0))
            else:
                got = self._net.learn(_MICRO, arguments, micro, accumulate, carry, 0.0)
                micro = (micro + 1) % accumulate
                if micro:
                    continue
                result = Result(*got)
            if callback and callback(result):
                break
        if micro:
            self._net.drop()
            raise InvalidArgument(f"batches: the last step has {micro} of {accumulate} batches; nothing was learned of "
                                  "them")
        return result

    def fit_scaler(self, **batch):
        """Takes means and deviations of values and targets from a batch, so that the model works in your units. Call
        it before the first step, with all data."""
        self._net.fit_scaler(self._batch(batch))

    # ---- tensors

    def state_dict(self, which="weights"):
        """Name → array of every tensor. On a CPU the arrays are the model's own memory: nothing is copied, and writing
        to them changes the model. which: weights, gradients, moment1, moment2, best."""
        return {name: self.tensor(name, which) for name, _, _ in self._net.tensors()}

    def tensor(self, name, which="weights", copy=None):
        """One tensor. copy=None: its own memory where that is possible."""
        shapes = {n: (dtype, shape) for n, dtype, shape in self._net.tensors()}
        if name not in shapes:
            raise KeyError(f"{name}: there is no such tensor")
        dtype, shape = shapes[name]
        if not copy and which != "best" and dtype == "F32":
            try:
                return np.asarray(self._net.view(_VECTORS[which], name))
            except RuntimeError:  # of a GPU
                if copy is False:
                    raise
        out = np.empty(shape, np.float32)
        self._net.get(_VECTORS[which], name, out)
        return out

    def load_state_dict(self, tensors):
        """Sets the weights from a dict of arrays (NumPy or torch). Names and shapes must be the model's."""
        have = {name: shape for name, _, shape in self._net.tensors()}
        if tensors.keys() != have.keys():
            lacking, extra = sorted(have.keys() - tensors.keys()), sorted(tensors.keys() - have.keys())
            raise InvalidArgument(f"tensors: missing {lacking[:3]}, unknown {extra[:3]}")
        ready = {}
        for name, value in tensors.items():
            if hasattr(value, "detach"):
                value = value.detach().cpu().float().numpy()
            ready[name] = real(value, name)
            if ready[name].shape != have[name]:
                raise InvalidArgument(f"{name}: has the shape {ready[name].shape}, where {have[name]} is needed")
            if not np.isfinite(ready[name]).all():
                raise InvalidArgument(f"{name}: a number is NaN or infinite")
        for name, value in ready.items():
            self._net.put(0, name, value)

    # ---- files

    def save(self, path, *, int8=False):
        """Writes a model file, atomically; the command and every other minrnn can read it."""
        self._net.save(_SAVE_INT8 if int8 else _SAVE, os.fspath(path))

    def save_training(self, path):
        """Saves all that training needs to go on with the same numbers."""
        self._net.save(_SAVE_TRAINING, os.fspath(path))

    def load_training(self, path):
        """Continues from save_training, in a model of the same configuration."""
        self._net.save(_LOAD_TRAINING, os.fspath(path))

    def __deepcopy__(self, memo):
        make, arguments = self.__reduce__()
        return make(*arguments)

    def __reduce__(self):
        import tempfile
        if self.config["weights"] == "int8":
            raise InvalidArgument("a model with 8-bit weights cannot be pickled or copied; open its file again")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            self.save(path)
            with open(path, "rb") as file:
                return _from_bytes, (file.read(), self._where)


def _from_bytes(data, where):
    model = Model(_net=_core.net_open_bytes(context(*where), data))
    model._where = where
    return model


def load(path, *, device="cpu", threads=0, bf16=False):
    """Opens a model file, or the best model of a run's folder.

    device: cpu, cuda, cuda:1, auto. The file is checked: exceptions name what is wrong with it.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        path = os.path.join(path, "model.safetensors")
    model = Model(_net=_core.net_open(context(device, threads, bf16), path))
    model._where = (device, threads, bf16)
    return model
