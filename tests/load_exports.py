#!/usr/bin/env python3
"""Loads exported weights into the modules of the other programs: every name must be known, none may be missing, and the
module must compute the same bits as with its own weights.

usage: load_exports.py FOLDER

FOLDER is what `weights_check.py --exports` kept."""
import pathlib
import sys

import torch
from safetensors.torch import load_file

from make_peers import LONG
from peer_cases import by_name, cast
from peer_models import GammaNorm, output


def load(folder):
    name, _, variant = folder.name.partition("@")
    case = by_name(name)
    model = case.build()
    if variant in ("f16", "bf16"):
        cast(model, {"f16": torch.float16, "bf16": torch.bfloat16}[variant])
    weights = load_file(folder / "model.safetensors")
    if any(isinstance(part, GammaNorm) for part in model.modules()):
        return None  # is exported for newer versions of its package
    fresh = case.make().eval()
    for tied in {"lm_head.weight"} & fresh.state_dict().keys() - weights.keys():
        if case.config.tie_word_embeddings:
            weights[tied] = weights["backbone.embeddings.weight"]
    if case.config is not None and not case.config.use_conv_bias:
        weights = {key: value for key, value in weights.items() if not key.endswith("conv1d.bias") or value.any()}
    fresh.load_state_dict(weights, strict=True)
    x = case.example(LONG)
    with torch.no_grad():
        return torch.equal(output(model, x), output(fresh, x))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch.set_num_threads(1)
    failures, count = 0, 0
    for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        try:
            same = load(folder)
        except (RuntimeError, KeyError) as error:
            print(f"FAIL: {folder.name}: {error}")
            failures += 1
            continue
        if same is False:
            print(f"FAIL: {folder.name}: other outputs")
        failures, count = failures + (same is False), count + (same is not None)
    print(f"{count} exports loaded, {failures} failures")
    sys.exit(failures > 0 or count == 0)


if __name__ == "__main__":
    main()
