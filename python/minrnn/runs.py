"""Runs of `minrnn train`: their logs as columns, and a curve for notebooks."""
import json
import os

import numpy as np


class Log:
    """What a run has written: `steps` and `evals`, dicts of columns; a notebook shows the curve.

    The columns of `steps`: step, loss, lr, grad_norm, tokens_per_s, seconds. Those of `evals`: step, loss, accuracy,
    best, seconds. What a line does not have is NaN.
    """

    def __init__(self, folder, steps, evals):
        self.folder, self.steps, self.evals = folder, steps, evals

    def __repr__(self):
        last = f", last loss {self.steps['loss'][-1]:.4g}" if len(self.steps.get("step", ())) else ""
        return f"Log({self.folder!r}: {len(self.steps.get('step', ()))} steps, {len(self.evals.get('step', ()))} " \
               f"evaluations{last})"

    def _repr_svg_(self):
        """The run's own chart, where it has one."""
        try:
            with open(os.path.join(self.folder, "curve.svg"), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return None


def _columns(rows):
    names = {name: None for row in rows for name in row if name != "kind"}
    return {name: np.array([row.get(name, np.nan) for row in rows], np.int64 if name == "step" else np.float64)
            for name in names}


def read_log(folder):
    """Reads log.jsonl of a run's folder (or the file itself) as columns."""
    path = os.path.join(folder, "log.jsonl") if os.path.isdir(folder) else folder
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                rows.append(json.loads(line))
            except ValueError:
                if line.endswith("\n"):
                    raise ValueError(f"{path}, line {number}: not JSON") from None
    return Log(os.path.dirname(path), _columns([row for row in rows if row.get("kind") == "step"]),
               _columns([row for row in rows if row.get("kind") == "eval"]))
