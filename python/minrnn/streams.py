"""Streams: one sequence and its state, token by token."""
import numpy as np

from .arrays import real, whole
from .errors import InvalidArgument


def _one(x):
    """A token that is no int, such as NumPy's."""
    token = whole(x, "token")
    if token.size != 1:
        raise InvalidArgument(f"token: has the shape {token.shape}; one token is needed")
    return token.item()


class Stream:
    """One sequence. Its state is small and does not grow; made by Model.stream().

    >>> import minrnn
    >>> model = minrnn.Model(vocab="bytes", layers=1, dim=8, seed=3)
    >>> stream = model.stream()
    >>> stream.feed(b"abc").shape
    (256,)
    >>> other = stream.clone()
    >>> bool((stream.step(100) == other.step(100)).all())
    True
    """

    def __init__(self, model, _core=None):
        self._model = model
        self._core = _core or model._net.stream()

    def step(self, x):
        """Feeds one token (an int) or one row of values; returns the scores after it."""
        scores = np.empty(self._model.outputs, np.float32)
        if self._model.input == "tokens":
            self._core.step(x if type(x) is int else _one(x), scores)
        else:
            row = self._model._values(x, (self._model.inputs,))
            self._core.feed(row, 1, True, scores)
        return scores

    def feed(self, x):
        """Feeds text, tokens or rows of values; returns the scores after the last one."""
        scores = np.empty(self._model.outputs, np.float32)
        if self._model.input == "tokens":
            tokens = self._model._tokens(x)
            self._core.feed(tokens, len(tokens), False, scores)
        else:
            values, inputs = real(x, "values"), self._model.inputs
            if values.ndim > 2 or values.ndim > 1 and values.shape[-1] != inputs or values.size % inputs:
                raise InvalidArgument(f"values: has the shape {values.shape}, where [time, {inputs}] is needed")
            values = values.reshape(-1, inputs)
            self._core.feed(values, len(values), True, scores)
        return scores

    def reset(self):
        """Starts a new sequence."""
        self._core.reset()

    def save(self):
        """The state, as bytes: for later, for another process or device."""
        return self._core.save()

    def load(self, state):
        """Continues from a saved state."""
        if not isinstance(state, (bytes, bytearray, memoryview)):
            raise InvalidArgument(f"state: must be bytes, not {type(state).__name__}")
        self._core.load(bytes(state))

    def clone(self):
        """Another stream with the same state."""
        return Stream(self._model, self._core.clone())

    def __repr__(self):
        return f"Stream({self._model!r}, {self._model.state_bytes:,} bytes of state)"

    def __reduce__(self):
        """With its model. A state alone is far smaller: save() and load()."""
        return _restored, (self._model, self.save())

    __copy__ = clone


def _restored(model, state):
    stream = model.stream()
    stream.load(state)
    return stream
