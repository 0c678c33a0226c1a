"""Runs of `minrnn train`: their logs as columns, and a curve for notebooks."""
import json
import os

import numpy as np

from .arrays import path_of, shown
from .errors import FileError, FormatError


class Log:
    """What a run has written: `steps` and `evals`, dicts of columns; a notebook shows the curve.

    The columns of `steps`: step, loss, lr, grad_norm, tokens_per_s, seconds. Those of `evals`: step, loss, accuracy,
    best, seconds. What a line does not have as a number is NaN.
    """

    def __init__(self, folder, steps, evals):
        self.folder, self.steps, self.evals = folder, steps, evals

    def __repr__(self):
        losses = self.steps.get("loss", ())
        last = f", last loss {losses[-1]:.4g}" if len(losses) else ""
        return f"Log({self.folder!r}: {len(self.steps.get('step', ()))} steps, {len(self.evals.get('step', ()))} " \
               f"evaluations{last})"

    def _repr_svg_(self):
        """The run's own chart, where it has one."""
        try:
            with open(os.path.join(self.folder, "curve.svg"), encoding="utf-8") as file:
                return file.read()
        except (OSError, UnicodeDecodeError):
            return None


def _number(row, name):
    """What a line has under a name; NaN where that is no number, or nothing."""
    try:
        return float(row.get(name))
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _columns(rows):
    names = {name: None for row in rows for name in row if name != "kind"}
    return {name: np.array([row[name] if name == "step" else _number(row, name) for row in rows],
                           np.int64 if name == "step" else np.float64) for name in names}


def _row(line):
    """One line of a log. ValueError: it is none."""
    try:
        row = json.loads(line)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(row, dict):
        raise ValueError("is no object")
    step = row.get("step", 0 if row.get("kind") not in ("step", "eval") else None)
    if type(step) is not int or not 0 <= step < 2**63:
        raise ValueError("has no step")
    return row


def read_log(folder):
    """Reads log.jsonl of a run's folder (or the file itself) as columns. Its last line may be half written."""
    path = os.fsdecode(path_of(folder))
    path = os.path.join(path, "log.jsonl") if os.path.isdir(path) else path
    try:
        with open(path, "rb") as file:
            lines = file.readlines()
    except OSError as error:
        raise FileError(f"{shown(path)}: {error.strerror}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(_row(line.decode()))
        except ValueError as error:
            if line.endswith(b"\n"):
                what = {UnicodeDecodeError: "is not UTF-8", json.JSONDecodeError: "is not JSON"}.get(type(error), error)
                raise FormatError(f"{shown(path)}, line {number}: {what}") from None
    return Log(os.path.dirname(path), _columns([row for row in rows if row.get("kind") == "step"]),
               _columns([row for row in rows if row.get("kind") == "eval"]))
