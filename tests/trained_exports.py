#!/usr/bin/env python3
"""Loads models that minrnn has trained and exported into modules of other programs, and compares the outputs.

usage: trained_exports.py OUTPUTS FOLDER

OUTPUTS is the program model_outputs. FOLDER/NAME.safetensors is a model of minrnn, FOLDER/NAME.export what it was
exported as; NAME is minlm-MIXER or ours-MIXER."""
import math
import pathlib
import subprocess
import sys

import torch
from minGRU_pytorch.minLM import minLM
from safetensors.torch import load_file

from peer_models import Ours, exact_output

TOKENS = [1, 0, 3, 2, 2, 5, 4, 1, 1, 0, 6, 3] * 4


def like(name, weights):
    """The module that the weights belong in, with the sizes that they have."""
    kind, mixer = name.split("-")[:2]
    rows, dim = weights["token_emb.weight" if kind == "minlm" else "embed.weight"].shape
    if kind == "minlm":
        conv = weights.get("layers.0.0.net.0.weight")
        return minLM(num_tokens=rows, dim=dim, depth=2, use_lstm=mixer == "minlstm", enable_conv=conv is not None,
                     conv_kernel_size=3 if conv is None else conv.shape[2],
                     expansion=weights["layers.0.2.to_out.weight"].shape[1] / dim,
                     ff_mult=weights["layers.0.4.0.weight"].shape[0] / dim)
    width = dim if mixer == "attention" else weights["blocks.0.mixer.down.weight"].shape[1]
    return Ours(mixer, rows, dim, 2, width, weights["blocks.0.mlp.up.weight"].shape[0], heads=2)


def compare(program, path):
    weights = load_file(path.with_suffix(".export"))
    module = like(path.stem, weights)
    module.load_state_dict(weights, strict=True)
    printed = subprocess.run([program, path, "cpu"], input=" ".join(map(str, TOKENS)), capture_output=True, text=True,
                             check=True).stdout
    found = [float(word) for word in printed.split()]
    with torch.no_grad():
        wanted = exact_output(module.eval(), torch.tensor([TOKENS])).flatten().tolist() * 2
    if len(found) != len(wanted):
        return math.inf
    return max(abs(a - b) / max(1, abs(b)) if math.isfinite(a - b) else math.inf for a, b in zip(found, wanted))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    failures, paths = 0, sorted(pathlib.Path(sys.argv[2]).glob("*.safetensors"))
    for path in paths:
        error = compare(sys.argv[1], path)
        print(f"{path.stem}: {error:.2g}")
        failures += not error <= 1e-5
    print(f"{len(paths)} trained models, {failures} failures")
    sys.exit(failures > 0 or not paths)


if __name__ == "__main__":
    main()
