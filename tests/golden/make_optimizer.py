#!/usr/bin/env python3
"""Writes the file of tests/test_optimizer.c: how PyTorch's Adam and AdamW train a small minGRU for 20 steps.

    python3 tests/golden/make_optimizer.py

Needs PyTorch (2.x made the committed file); running the tests does not. The model is the one of make_golden.py, in
float64. Learning rates are computed here from their closed forms. Every setting starts from the same weights and sees
the same 20 batches; the file holds those, and for each setting the losses, the norms of the gradient before clipping,
the rates, and the weights after the last step."""
import math

import torch
import torch.nn.functional as F
from make_golden import Model, RMSNorm, save, single

STEPS, BATCH, TIME, VOCAB = 20, 3, 8, 7


def is_matrix(name, p):
    return p.dim() == 2


def is_no_gate(name, p):
    return "linear_" not in name


def is_any(name, p):
    return True


# name: optimizer, lr, betas, eps, weight decay, which parameters decay, clip (0: none), schedule, warm-up
SETTINGS = {
    "plain": (torch.optim.Adam, 0.01, (0.9, 0.999), 1e-8, 0.0, is_matrix, 0.0, "constant", 0),
    "clipped": (torch.optim.Adam, 0.02, (0.9, 0.999), 1e-6, 0.0, is_matrix, 0.25, "constant", 0),
    "l2": (torch.optim.Adam, 0.01, (0.9, 0.99), 1e-6, 0.1, is_matrix, 0.5, "linear", 3),
    "l2-all": (torch.optim.Adam, 0.01, (0.7, 0.9), 1e-4, 0.2, is_any, 0.0, "linear", 0),
    "decay": (torch.optim.AdamW, 0.02, (0.9, 0.999), 1e-6, 0.1, is_matrix, 1.0, "cosine", 4),
    "decay-all": (torch.optim.AdamW, 0.01, (0.8, 0.95), 1e-6, 0.5, is_any, 0.0, "constant", 5),
    "decay-no-gates": (torch.optim.AdamW, 0.02, (0.9, 0.98), 1e-6, 0.5, is_no_gate, 0.3, "cosine", 0),
}


def rate(lr, schedule, warmup, step):
    """The learning rate of a step, which counts from 1: rises to lr at step `warmup`, then falls
    towards 0 after STEPS."""
    if step <= warmup:
        return lr * step / warmup
    progress = (step - 1 - warmup) / (STEPS - warmup)
    return lr * {"constant": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}[schedule]


def train(start, ids, target, setting):
    kind, lr, betas, eps, decay, decays, clip, schedule, warmup = setting
    model = Model("mingru", "positive", False, RMSNorm)
    model.load_state_dict(start)
    named = list(model.named_parameters())
    groups = [{"params": [p for name, p in named if decays(name, p)], "weight_decay": decay},
              {"params": [p for name, p in named if not decays(name, p)], "weight_decay": 0.0}]
    optimizer = kind([group for group in groups if group["params"]], lr=lr, betas=betas, eps=eps)
    history = {"loss": [], "norm": [], "lr": []}
    for step in range(1, STEPS + 1):
        for group in optimizer.param_groups:
            group["lr"] = rate(lr, schedule, warmup, step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(ids[step - 1]).flatten(0, 1), target[step - 1].flatten(), ignore_index=-1)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip if clip else math.inf)
        optimizer.step()
        for key, value in (("loss", loss.item()), ("norm", norm.item()), ("lr", group["lr"])):
            history[key].append(value)
    return model, {key: torch.tensor(values) for key, values in history.items()}


def main():
    torch.manual_seed(20)
    model = Model("mingru", "positive", False, RMSNorm)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(single(p + 0.1 * torch.randn_like(p)))
    start = {key: value.clone() for key, value in model.state_dict().items()}
    ids = torch.randint(0, VOCAB, (STEPS, BATCH, TIME))
    target = (3 * ids + 1) % VOCAB
    target[:, 0, 2] = -1  # a row that does not count
    tensors = {"ids": ids.int(), "target": target.int()}
    tensors.update({f"start.{key}": value for key, value in start.items()})
    for name, setting in SETTINGS.items():
        trained, history = train(start, ids, target, setting)
        tensors.update({f"{name}.{key}": value for key, value in history.items()})
        tensors.update({f"{name}.{key}": p for key, p in trained.named_parameters()})
    save("optimizer.safetensors", tensors)


if __name__ == "__main__":
    main()
