"""The models that onnx_check.py exports: names, and settings of mr_net_create. "scale" makes the residual stream
small, so that the epsilon of norms shows; "scaler" and "int8" stand for calls of the API."""

TEXT = {"vocab": "bytes", "dim": 24, "layers": 2}
IDS = {"input": "tokens", "inputs": 11, "outputs": 5, "dim": 20, "layers": 2}
REALS = {"input": "reals", "inputs": 3, "outputs": 2, "loss": "mse", "dim": 20, "layers": 2}

MINRNN = {
    "plain": {**TEXT, "mixer": "mingru", "conv": 0, "mlp": 0, "norm": "rms"},
    "inside": {**TEXT, "mixer": "mingru", "candidate": "tanh", "h0": "learned", "conv": 4, "conv-place": "inside",
               "mlp": 2, "norm": "layer", "expansion": 3, "head-bias": "yes"},
    "log": {**TEXT, "mixer": "mingru", "candidate": "positive", "scan": "log", "conv": 4, "conv-place": "residual",
            "mlp": 0, "norm": "layer", "expansion": 1},
    "log-lstm": {**TEXT, "mixer": "minlstm", "normalize-gates": "yes", "candidate": "positive", "scan": "log",
                 "h0": "learned", "conv": 4, "conv-place": "residual", "mlp": 3, "norm": "rms"},
    "unnormal": {**TEXT, "mixer": "minlstm", "normalize-gates": "no", "candidate": "linear", "h0": "learned", "conv": 4,
                 "conv-place": "inside", "mlp": 0, "norm": "rms"},
    "normalised": {**TEXT, "mixer": "minlstm", "normalize-gates": "yes", "candidate": "positive", "h0": "learned",
                   "conv": 0, "mlp": 2, "norm": "layer"},
    "none": {**TEXT, "mixer": "minlstm", "normalize-gates": "no", "candidate": "linear", "conv": 4, "mlp": 2,
             "norm": "none"},
    "signed": {**TEXT, "mixer": "mingru", "transition": "signed", "candidate": "tanh", "h0": "learned", "conv": 4,
               "mlp": 2, "norm": "rms"},
    "signed-n": {**TEXT, "mixer": "minlstm", "transition": "signed", "normalize-gates": "yes", "candidate": "positive",
                 "h0": "learned", "conv": 0, "mlp": 0, "norm": "layer"},
    "signed-raw": {**TEXT, "mixer": "minlstm", "transition": "signed", "normalize-gates": "no", "candidate": "linear",
                   "conv": 0, "mlp": 2, "norm": "rms"},
    "one": {**TEXT, "mixer": "mingru", "dim": 1, "layers": 1, "expansion": 1, "conv": 4, "mlp": 1, "norm": "rms"},
    "tall": {**TEXT, "mixer": "minlstm", "dim": 7, "layers": 9, "expansion": 1, "conv": 4, "mlp": 2},
    "quiet": {**TEXT, "mixer": "mingru", "conv": 4, "mlp": 2, "norm": "layer", "scale": 1e-3},
    "quiet-rms": {**TEXT, "mixer": "mingru", "conv": 0, "mlp": 0, "norm": "rms", "scale": 1e-3},
}
OTHERS = {
    "gru": {**TEXT, "mixer": "gru", "h0": "learned", "conv": 4, "conv-place": "inside", "mlp": 2, "norm": "rms"},
    "gru-after": {**TEXT, "mixer": "gru", "gru-reset": "after", "conv": 0, "mlp": 0, "norm": "layer"},
    "lstm": {**TEXT, "mixer": "lstm", "h0": "learned", "conv": 0, "mlp": 2, "norm": "rms", "head-bias": "yes"},
    "lstm-zero": {**TEXT, "mixer": "lstm", "expansion": 1, "dim": 9, "conv": 4, "mlp": 0, "norm": "layer"},
    "rotary": {**TEXT, "mixer": "attention", "conv": 0, "mlp": 2, "norm": "rms", "heads": 3, "window": 1000},
    "rotary-short": {**TEXT, "mixer": "attention", "conv": 0, "mlp": 2, "norm": "rms", "window": 5},
    "learned": {**TEXT, "mixer": "attention", "positions": "learned", "window": 9, "conv": 4, "conv-place": "inside",
                "mlp": 0, "norm": "layer", "heads": 2},
    "nowhere": {**TEXT, "mixer": "attention", "positions": "none", "window": 1, "conv": 4, "conv-place": "residual",
                "mlp": 2, "norm": "rms"},
    "mamba": {**TEXT, "mixer": "mamba", "conv": 0, "mlp": 0, "norm": "rms"},
    "mamba-few": {**TEXT, "mixer": "mamba", "states": 5, "expansion": 3, "conv": 4, "conv-place": "inside", "mlp": 2,
                  "norm": "layer"},
    "mamba-one": {**TEXT, "mixer": "mamba", "states": 1, "expansion": 1, "dim": 5, "layers": 1, "mlp": 0},
}
HEADS = {
    "last": {**IDS, "mixer": "mingru", "head": "last", "conv": 4, "mlp": 2},
    "mean": {**IDS, "mixer": "minlstm", "head": "mean", "head-bias": "yes"},
    "mean-attention": {**IDS, "mixer": "attention", "head": "mean", "window": 7, "heads": 2},
    "pair-last": {**IDS, "mixer": "mingru", "head": "pair-last"},
    "pair-mean": {**IDS, "mixer": "gru", "head": "pair-mean"},
    "reals": {**REALS, "mixer": "mingru", "head": "token", "h0": "learned"},
    "tanh": {**REALS, "mixer": "minlstm", "head": "token", "output": "tanh", "conv": 4},
    "scaled": {**REALS, "mixer": "mingru", "head": "token", "scaler": "both"},
    "scaled-last": {**REALS, "mixer": "mamba", "head": "last", "scaler": "target", "head-bias": "yes"},
    "scaled-in": {**REALS, "mixer": "lstm", "head": "mean", "scaler": "input", "output": "tanh"},
    "int8": {**TEXT, "mixer": "mingru", "conv": 4, "mlp": 2, "int8": True},
    "int8-gru": {**TEXT, "mixer": "gru", "conv": 0, "mlp": 2, "int8": True},
}
FORMS = {
    "gelu-erf": {**TEXT, "mixer": "mingru", "mlp": 2, "gelu": "erf"},
    "geglu": {**TEXT, "mixer": "mingru", "mlp-gate": "geglu", "mlp-width": 37},
    "geglu-erf": {**TEXT, "mixer": "lstm", "mlp-gate": "geglu", "mlp": 2, "gelu": "erf", "mlp-bias": "no"},
    "swiglu": {**TEXT, "mixer": "minlstm", "mlp-gate": "swiglu", "mlp": 2, "mixer-bias": "no"},
    "conv-1": {**TEXT, "mixer": "mingru", "conv": 1, "conv-place": "inside"},
    "conv-2": {**TEXT, "mixer": "minlstm", "conv": 2, "conv-place": "residual", "width": 31},
    "conv-16": {**TEXT, "mixer": "mingru", "conv": 16, "conv-place": "inside", "norm": "layer", "norm-eps": 0.01},
    "mamba-new": {**TEXT, "mixer": "mamba", "mixer-conv": 2, "dt-rank": 7, "width": 29, "norm-eps": 0.01},
    "mamba-bare": {**TEXT, "mixer": "mamba", "mixer-conv": 1, "mixer-bias": "no"},
    "tied": {**TEXT, "mixer": "mingru", "tie-embeddings": "yes"},
    "attention-bare": {**TEXT, "mixer": "attention", "mixer-bias": "no", "window": 8, "gelu": "erf", "mlp": 1},
    "int8-forms": {**TEXT, "mixer": "mamba", "mlp-gate": "swiglu", "mlp": 2, "tie-embeddings": "yes", "int8": True},
    "pair-erf": {**IDS, "mixer": "minlstm", "head": "pair-last", "gelu": "erf"},
    "gru-wide": {**TEXT, "mixer": "gru", "width": 13, "mlp-width": 5, "norm-eps": 0.001, "norm": "rms"},
}
CASES = {**MINRNN, **OTHERS, **HEADS, **FORMS}
