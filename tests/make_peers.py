#!/usr/bin/env python3
"""Writes models of other programs, and what these programs compute with them.

usage: make_peers.py FOLDER [NAME… | --drawn COUNT | --golden]

Needs torch, transformers, minGRU-pytorch and safetensors. Each model gets a folder: model.safetensors (or parts with an
index, or model.pt), config.json where the program writes one, expected.safetensors (y: the outputs, and x: the inputs
of models of reals; y64: the same in fp64) and case.json (which model this is, its tokens, and what the weights do not
say). Without names: all models of peer_cases.py, and some of them in other dtypes, in parts and by torch.save. --drawn:
models of random sizes, COUNT of each kind. --golden: those of tests/golden/peers."""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

from peer_cases import by_name, cast, every
from peer_drawn import names as drawn_names
from peer_models import exact_output, output

LENGTH, LONG = 12, 100  # tokens; LONG: where sizes are drawn
# models that are also written in other dtypes and in parts: NAME@VARIANT
VARIED = ["lm-mingru-v9-d8-l2-conv", "mamba", "layer-minlstm-d5-e1.5", "authors-minlstm-3"]
# small ones, one of each kind, which are in the repository
GOLDEN = ["layer-mingru-d4-e1.5-proj0", "layer-minlstm-d5-e1.5@parts", "lm-mingru-v9-d6-l1-conv-e1",
          "lm-minlstm-v7-d5-l1-conv-taps7-ff2@bf16", "mamba-d5-e1-states2-taps2-v7", "authors-minlstm-3-normalized",
          "ours-attention-0", "torch-lstm-2"]
DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}


def tensors_of(model):
    """What torch saves, without the second name of a tied weight."""
    state, seen = {}, set()
    for name, weight in model.state_dict().items():
        if weight.data_ptr() not in seen or weight.numel() == 0:
            state[name] = weight.detach().clone().contiguous()
        seen.add(weight.data_ptr())
    return state


def save_parts(state, folder, parts=3):
    """The form in which Hugging Face saves large models."""
    names = list(state)
    cuts = [names[i::parts] for i in range(parts)]
    index = {"metadata": {"total_size": sum(w.numel() * w.element_size() for w in state.values())}, "weight_map": {}}
    for i, some in enumerate(cuts, 1):
        file = f"model-{i:05}-of-{parts:05}.safetensors"
        save_file({name: state[name] for name in some}, folder / file, metadata={"format": "pt"})
        index["weight_map"].update({name: file for name in some})
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def save_model(case, model, variant, folder):
    state = tensors_of(model)
    if variant in DTYPES:
        whole = cast(model, DTYPES[variant])
        state = {name: whole[name] for name in state}
    if case.settings.get("normalize-gates") == "yes":  # the authors' code has it in its config
        (folder / "config.json").write_text('{"use_coeff_norm": true}\n')
    if variant in ("pt", "legacy"):
        torch.save({"model": model.state_dict(), "step": 1}, folder / "model.pt",
                   _use_new_zipfile_serialization=variant == "pt")
        if case.config is not None:
            (folder / "config.json").write_text(model.config.to_json_string())
    elif case.config is not None:
        model.to(DTYPES.get(variant, torch.float32))
        model.save_pretrained(folder, max_shard_size="2KB" if variant == "parts" else "1GB")
        (folder / "generation_config.json").unlink()
        model.float()
    elif variant == "parts":
        save_parts(state, folder)
    else:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def write(full_name, base):
    name, _, variant = full_name.partition("@")
    case, folder = by_name(name), base / full_name
    folder.mkdir(parents=True, exist_ok=True)
    model = case.build()
    save_model(case, model, variant, folder)
    x = case.example(LONG if name.startswith("drawn-") else LENGTH)
    with torch.no_grad():
        expected = {"y": output(model, x)[0].float().contiguous()}
        exact = exact_output(model, x)
        if exact is not None:
            expected["y64"] = exact[0].contiguous()
    if case.reals:
        expected["x"] = x[0].contiguous()
    save_file(expected, folder / "expected.safetensors")
    flags = [word for key, value in case.settings.items() if key != "mixer" for word in (f"--{key}", value)]
    facts = {"family": case.family, "input": "reals" if case.reals else "tokens", "inputs": case.inputs,
             "layer": case.layer, "mixer": case.settings["mixer"], "flags": flags, "exports": case.exports,
             "trained": case.train, "dtype": variant if variant in DTYPES else "f32"}
    if not case.reals:
        facts["tokens"] = x[0].tolist()
    (folder / "case.json").write_text(json.dumps(facts) + "\n")
    return folder


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    torch.set_num_threads(1)
    wanted = sys.argv[2:]
    if wanted[:1] == ["--drawn"]:
        wanted = drawn_names(int(wanted[1]))
    elif wanted == ["--golden"]:
        wanted = GOLDEN
    names = wanted or [case.name for case in every()] + [f"{name}@{variant}" for name in VARIED
                                                               for variant in (*DTYPES, "parts", "pt", "legacy")]
    for name in names:
        folder = write(name, pathlib.Path(sys.argv[1]))
        print(folder.name, sum(file.stat().st_size for file in folder.iterdir()))


if __name__ == "__main__":
    main()
