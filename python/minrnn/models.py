"""Models: opened, made, trained, scored, and written with."""
import os
import threading
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from . import _core
from .arrays import count, flag, number, path_of, real, settings_as_text, utf8, whole
from .contexts import context
from .errors import InvalidArgument
from .streams import Stream

_FORWARD, _KEEP, _LOSSES = 0, 1, 2
_TRAIN, _EVALUATE, _MICRO = 0, 1, 2
_SAVE, _SAVE_INT8, _SAVE_BEST, _SAVE_TRAINING, _LOAD_TRAINING = range(5)
_SCALER = {"input_mean": 1, "input_scale": 1, "target_mean": 2, "target_scale": 2}  # 1: of inputs, 2: of targets
SCALER_TENSORS = {f"scaler.{name.replace('_', '.')}": name for name in _SCALER}  # as files call them
_VECTORS = {"weights": 0, "gradients": 1, "moment1": 2, "moment2": 3, "best": 4}
_CHOSEN = ("recompute", "recompute-chunk")  # keys that read as what training chose, once it has chosen for "auto"
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


def _vector(which):
    if not isinstance(which, str) or which not in _VECTORS:
        raise InvalidArgument(f"which = {which!r}: must be one of {', '.join(_VECTORS)}")
    return _VECTORS[which]


class _Holder(threading.local):
    """The models whose forward this thread keeps. If it ends without backward() or drop(), those forwards are dropped:
    otherwise every other call on these models would wait for ever."""

    def __init__(self):
        self.end = _End()


class _End:
    def __init__(self):
        self.models, self.process, self.current = {}, os.getpid(), os.getpid  # models: by id, whatever == means to them

    def __del__(self):
        for model in list(self.models.values()) if self.current() == self.process else ():  # not in a fork's child
            model = model()
            if model is not None:
                model._net.drop(False)


_holder = _Holder()


def _real(x, name, dtype=np.float32):
    """An array, or a tensor of PyTorch on any device, as floats."""
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        x = (x.float() if dtype is np.float32 else x.double()).numpy()  # NumPy has no bfloat16
    return real(x, name, dtype)


def _nearly(a, b):
    """Whether these are the same numbers, but for a way through float32."""
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=0)


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

    def __init__(self, *, device="cpu", threads=0, bf16=False, **settings):
        if not settings.keys() & {"vocab", "inputs", "outputs"}:
            raise InvalidArgument("a model needs vocab=\"bytes\" (text), or inputs= and outputs= (values and classes)")
        pairs = [text for pair in settings_as_text(settings).items() for text in pair]
        where = device, threads, bf16
        self._take(_core.net_create(context(*where), pairs), where)

    def _take(self, net, where):
        """Makes this the Model of a net."""
        self._net, self._where = net, where
        self._kept = self._held = None  # of forward(train=True): the scores' shape, and where its thread has it noted
        self._trained = False  # whether there are moments or best weights
        self._asked = {key: net.setting(key) for key in _CHOSEN}
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
        """All keys of the model and of its training, as text."""
        return {key["name"]: self._net.setting(key["name"]) for key in _core.keys()}

    @property
    def metadata(self):
        return self._net.meta()

    def set_metadata(self, key, value):
        """Metadata of your own, such as "mine.author", which is saved with the model."""
        self._net.set_meta(key, value)

    def set(self, **settings):
        """Changes training settings from the next step on: lr, schedule, warmup, steps, clip, ..."""
        for key, value in settings_as_text(settings).items():
            self._net.set(key, value)
            if key in _CHOSEN:
                self._asked[key] = value

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
            x = utf8(x, "text")
        if isinstance(x, (bytes, bytearray)):
            return np.frombuffer(self._net.encode(bytes(x)), np.int32)
        tokens = np.atleast_1d(whole(x, "tokens"))
        if tokens.ndim > 1:
            raise InvalidArgument(f"tokens: has the shape {tokens.shape}; one sequence is needed")
        return tokens

    def _values(self, x, shape):
        x = real(x, "values")
        if x.shape != shape:
            raise InvalidArgument(f"values: has the shape {x.shape}, where {shape} is needed")
        return x

    def encode(self, text):
        """Text (str or bytes) as an array of tokens."""
        if not isinstance(text, (str, bytes, bytearray)):
            raise InvalidArgument(f"text: must be str or bytes, not {type(text).__name__}")
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
        prompt, tokens = self._tokens(prompt), count(tokens, "tokens", 0)
        if not len(prompt):
            raise InvalidArgument("prompt: is empty; give at least one character")
        stops = [stop] if isinstance(stop, str) else [] if stop is None else stop
        if not isinstance(stops, (list, tuple)) or not all(isinstance(text, str) and text for text in stops):
            raise InvalidArgument(f"stop: is {stop!r}; a text or a list of texts is needed")
        how = (number(temperature, "temperature"), number(top_p, "top_p"), count(top_k, "top_k", 0, 2**31 - 1),
               count(seed, "seed", 0, 2**64 - 1))
        return pieces(self, prompt, tokens, how, stops)

    def score(self, text, chunk=4096):
        """The log-probabilities of a text (str, bytes or tokens), however long: a Score."""
        tokens, chunk = self._tokens(text), count(chunk, "chunk", 1)
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
        if not isinstance(batch, Mapping):
            raise InvalidArgument(f"batch: is of {type(batch).__name__}, and not a dict of arrays")
        unknown = batch.keys() - {"ids", "values", "reset", "length", "target", "target_values", "mask"}
        if unknown:
            names = ", ".join(sorted(map(str, unknown)))
            raise InvalidArgument(f"batch: {names}: no such array; there are ids, values, reset, length, target, "
                                  "target_values and mask")
        name, other, dims = ("ids", "values", 2) if self.input == "tokens" else ("values", "ids", 3)
        if batch.get(name) is None:
            raise InvalidArgument(f"batch: {name} is missing")
        if batch.get(other) is not None:
            raise InvalidArgument(f"batch: {other}: this model reads {name}")
        main = whole(batch[name], name) if dims == 2 else real(batch[name], name)
        if main.ndim != dims or (dims == 3 and main.shape[2] != self.inputs):
            wanted = "[batch, time]" if dims == 2 else f"[batch, time, {self.inputs}]"
            raise InvalidArgument(f"batch: {name} has the shape {main.shape}; {wanted} is needed")
        self._refuse_unused(batch)
        B, T = main.shape[:2]
        if B * T == 0 or (self.head.startswith("pair") and B % 2):
            raise InvalidArgument(f"batch: {B} sequences of {T} tokens; one or more of each are needed, and an even "
                                  "number of sequences where the model compares pairs")
        rows = (B, T) if self.head == "token" else (self._net.rows(B, T),)
        arrays = {name: main}
        for other, dtype, shape in (("reset", np.uint8, (B, T)), ("length", np.int32, (B,)), ("target", np.int32, rows),
                                    ("target_values", np.float32, (*rows, self.outputs)), ("mask", np.uint8, rows)):
            value = batch.get(other)
            if value is not None:
                value = real(value, other) if dtype is np.float32 else whole(value, other, dtype)
                if value.shape != shape:
                    raise InvalidArgument(f"{other}: has the shape {value.shape}, where {shape} is needed")
            arrays[other] = value
        return (B, T, arrays.get("ids"), arrays.get("values"), arrays["reset"], arrays["length"], arrays["target"],
                arrays["target_values"], arrays["mask"])

    def _refuse_unused(self, batch):
        """Refuses what the loss would not look at."""
        unused, reads = (("target_values", "mask"), "target, where -1 does not count") if self.loss == "xent" else (
            ("target",), "target_values and mask")
        for name in unused:
            if batch.get(name) is not None:
                raise InvalidArgument(f"batch: {name}: this model's loss, {self.loss}, reads {reads}")

    def _scores_of(self, batch, what):
        arguments = self._batch(batch)
        B, T = arguments[:2]
        rows = self._net.rows(B, T)
        if what == _LOSSES:
            out = np.empty((B, T) if self.head == "token" else rows, np.float32)
        else:
            out = np.empty((B, T, self.outputs) if self.head == "token" else (rows, self.outputs), np.float32)
        self._net.run(what, arguments, out)
        if what == _KEEP:
            self._kept, self._held = out.shape, _holder.end.models
            self._held[id(self)] = weakref.ref(self)
        return out

    def _let_go(self):
        """Before another thread can keep a forward: the end of this one must not drop that."""
        if self._held is not None:
            self._held.pop(id(self), None)

    def forward(self, ids=None, values=None, *, reset=None, length=None, train=False):
        """The scores of a batch: [batch, time, outputs], or [rows, outputs] for one per sequence. With train=True the
        activations are kept for backward()."""
        return self._scores_of({"ids": ids, "values": values, "reset": reset, "length": length},
                               _KEEP if flag(train, "train") else _FORWARD)

    __call__ = forward

    def backward(self, dscores):
        """Adds to the gradients, from that of your loss with respect to the scores of forward(train=True)."""
        dscores = real(dscores, "dscores")
        if self._kept and dscores.shape != self._kept:
            raise InvalidArgument(f"dscores: has the shape {dscores.shape}, and the scores {self._kept}")
        held = self._held
        self._let_go()
        try:
            self._net.backward(dscores, dscores.size)
        except BaseException:  # the forward is still kept, so that the caller can try again
            if held is not None:
                held[id(self)] = weakref.ref(self)
            raise

    def update(self):
        """Clips the gradients and updates the weights: a Result with grad_norm, lr and step."""
        result = Result(*self._net.update())
        self._trained = True
        return result

    def drop(self):
        """Discards a kept forward and the gradients so far."""
        self._let_go()
        self._net.drop(True)

    def mark_best(self):
        """Keeps the weights as they are now as the best ones: for save(best=True) and state_dict("best")."""
        self._net.mark_best()
        self._trained = True

    def losses(self, **batch):
        """The loss of each row of a batch."""
        return self._scores_of(batch, _LOSSES)

    def evaluate(self, **batch):
        """The loss of a batch, without training: a Result."""
        return Result(*self._net.learn(_EVALUATE, self._batch(batch), 0, 1, False, 0.0))

    def fit(self, batches, *, accumulate=1, carry=False, callback=None):
        """Trains on batches: an iterable of dicts with ids or values, and target or target_values (reset, length, mask
        if you like). accumulate: so many batches make one step. carry: rows continue where those of the last batch
        with carry ended, also in the next call of fit, until forget_carry(). callback(result) is called after each
        step; if it returns True, training stops. Returns the last Result. Ctrl-C stops between steps."""
        accumulate, carry = count(accumulate, "accumulate", 1, 2**31 - 1), flag(carry, "carry")
        if isinstance(batches, Mapping):
            raise InvalidArgument("batches: is one batch; an iterable of them is needed, such as [batch]")
        if not isinstance(batches, Iterable):
            raise InvalidArgument(f"batches: must be an iterable of dicts, not {type(batches).__name__}")
        if callback is not None and not callable(callback):
            raise InvalidArgument(f"callback: is of {type(callback).__name__}, which cannot be called")
        result, micro = None, 0
        for i, batch in enumerate(batches):
            if not isinstance(batch, Mapping):
                raise InvalidArgument(f"batches[{i}]: is of {type(batch).__name__}, and not a dict of arrays")
            arguments = self._batch(batch)
            if accumulate == 1 and not carry:
                result = Result(*self._net.learn(_TRAIN, arguments, 0, 1, False, 0.0))
            else:
                got = self._net.learn(_MICRO, arguments, micro, accumulate, carry, 0.0)
                micro = (micro + 1) % accumulate
                if micro:
                    continue
                result = Result(*got)
            self._trained = True
            if callback and callback(result):
                break
        if micro:
            self._net.drop(True)
            raise InvalidArgument(f"batches: the last step has {micro} of {accumulate} batches; nothing was learned of "
                                  "them")
        return result

    def forget_carry(self):
        """The next batch of fit(carry=True) starts anew: call it before other data. A kept forward goes first."""
        self._net.forget_carry()

    # ---- the scaler

    def fit_scaler(self, **batch):
        """Takes means and deviations of values and targets from a batch, so that the model works in your units. Call
        it before the first step, with all data."""
        self._net.fit_scaler(self._batch(batch))

    @property
    def scaler(self):
        """Name → float64 array: input_mean, input_scale, target_mean and target_scale, or what of them there is."""
        arrays = {name: np.empty(self.inputs if side == 1 else self.outputs) for name, side in _SCALER.items()}
        sides = self._net.scaler(*arrays.values())
        return {name: x for name, x in arrays.items() if sides & _SCALER[name]}

    def set_scaler(self, *, input_mean=None, input_scale=None, target_mean=None, target_scale=None):
        """Sets means and scales, in place of fit_scaler: a mean goes with its scale, and None is none."""
        given = zip(_SCALER.items(), (input_mean, input_scale, target_mean, target_scale))
        arrays = []
        for (name, side), x in given:
            arrays.append(None if x is None else real(x, name, np.float64))
            wanted = (self.inputs if side == 1 else self.outputs,)
            if x is not None and arrays[-1].shape != wanted:
                raise InvalidArgument(f"{name}: has the shape {arrays[-1].shape}, where {wanted} is needed")
        self._net.set_scaler(*arrays)

    # ---- tensors

    def state_dict(self, which="weights"):
        """Name → array of every tensor. On a CPU the arrays are the model's own memory: nothing is copied, and writing
        to them changes the model. which: weights, gradients, moment1, moment2, best. Beside the weights are copies of
        the scaler's numbers, such as scaler.input.mean, where there is one."""
        _vector(which)
        tensors = {name: self.tensor(name, which) for name, _, _ in self._net.tensors()}
        if which == "weights":
            scaler = self.scaler
            tensors |= {key: scaler[name] for key, name in SCALER_TENSORS.items() if name in scaler}
        return tensors

    def tensor(self, name, which="weights", copy=None):
        """One tensor. copy=None: its own memory where that is possible; copy=False: that or an error."""
        vector = _vector(which)
        shapes = {n: (dtype, shape) for n, dtype, shape in self._net.tensors()}
        if name not in shapes:
            raise KeyError(f"{name}: there is no such tensor")
        dtype, shape = shapes[name]
        if copy is False or not copy and which != "best" and dtype == "F32":
            try:
                return np.asarray(self._net.view(vector, name))
            except RuntimeError:  # of a GPU
                if copy is False:
                    raise
        out = np.empty(shape, np.float32)
        self._net.get(vector, name, out)
        return out

    def load_state_dict(self, tensors):
        """Sets the weights from a dict of arrays (NumPy or torch). Names and shapes must be the model's. The scaler's
        numbers can be set before the first step alone, as by set_scaler; afterwards they must be the model's. A dict
        that has none leaves the scaler as it is."""
        if not isinstance(tensors, Mapping):
            raise InvalidArgument(f"tensors: must be a dict of arrays, not {type(tensors).__name__}")
        for name, dtype, _ in self._net.tensors():  # before the first tensor is set
            if dtype == "I8":
                raise InvalidArgument(f"{name}: has 8 bits and cannot be set")
        own = self.scaler
        scaler = {name: _real(tensors[key], key, np.float64) for key, name in SCALER_TENSORS.items() if key in tensors}
        have = {name: shape for name, _, shape in self._net.tensors()}
        wanted = have.keys() | {key for key, name in SCALER_TENSORS.items() if name in scaler or scaler and name in own}
        if tensors.keys() != wanted:
            lacking, extra = (sorted(some, key=str) for some in (wanted - tensors.keys(), tensors.keys() - wanted))
            raise InvalidArgument(f"tensors: missing {lacking[:3]}, unknown {extra[:3]}")
        ready = {name: _real(tensors[name], name) for name in have}
        for name, value in ready.items():
            if value.shape != have[name]:
                raise InvalidArgument(f"{name}: has the shape {value.shape}, where {have[name]} is needed")
            if not np.isfinite(value).all():
                raise InvalidArgument(f"{name}: a number is NaN or infinite")
        if not all(name in own and _nearly(own[name], x) for name, x in scaler.items()):
            self.set_scaler(**scaler)
        for name, value in ready.items():
            self._net.put(0, name, value)

    # ---- files

    def save(self, path, *, int8=False, best=False):
        """Writes a model file, atomically; the command and every other minrnn can read it. int8: with matrices in 8
        bits; best: the weights of mark_best()."""
        int8, best = flag(int8, "int8"), flag(best, "best")
        if int8 and best:
            raise InvalidArgument("int8, best: one of them; open the file of the best weights to save it in 8 bits")
        self._net.save(_SAVE_INT8 if int8 else _SAVE_BEST if best else _SAVE, path_of(path))

    def save_training(self, path):
        """Saves all that training needs to go on with the same numbers, but for the settings and what carry=True has
        carried: the first batch after load_training starts anew."""
        self._net.save(_SAVE_TRAINING, path_of(path))

    def load_training(self, path):
        """Continues from save_training, in a model of the same configuration. Settings are this model's: give lr,
        schedule, seed and so on as they were."""
        self._net.save(_LOAD_TRAINING, path_of(path))
        self._trained = True

    def __reduce__(self):
        from .copies import parts
        return parts(self)


def load(path, *, device="cpu", threads=0, bf16=False):
    """Opens a model file, or the best model of a run's folder.

    device: cpu, cuda, cuda:1, auto. The file is checked: exceptions name what is wrong with it.
    """
    path = path_of(path)
    if os.path.isdir(path):
        path = os.path.join(path, b"model.safetensors")
    model, where = Model.__new__(Model), (device, threads, bf16)
    model._take(_core.net_open(context(*where), path), where)
    return model
