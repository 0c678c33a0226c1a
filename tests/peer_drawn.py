"""More models like those of peer_cases.py, with sizes drawn at random. A norm of two or three channels is almost a
sign, which makes much of rounding: the stacks have four or more."""
import random

import torch.nn as nn

from peer_models import Authors, Case, Ours


def draw_layer(dice, name):
    from minGRU_pytorch.minGRU import minGRU
    from minGRU_pytorch.minLSTM import minLSTM
    kind, dim = dice.choice((minGRU, minLSTM)), dice.randint(1, 40)
    expansion, proj = dice.choice((1., 1.25, 1.5, 2., 3.7)), dice.choice((None, None, True, False))
    return Case(name, "mingru-pytorch", lambda: kind(dim, expansion, proj), dim, reals=True, layer=True,
                settings={"mixer": kind.__name__.lower()})


def draw_lm(dice, name):
    from minGRU_pytorch.minLM import minLM
    form = dict(num_tokens=dice.randint(2, 70), dim=dice.randint(4, 40), depth=dice.randint(1, 4),
                ff_mult=dice.choice((1, 1.5, 2, 4)), expansion=dice.choice((1., 1.1, 1.5, 2., 3.)),
                conv_kernel_size=dice.randint(1, 16), enable_conv=dice.random() < 0.5, use_lstm=dice.random() < 0.5)
    return Case(name, "mingru-pytorch", lambda: minLM(**form), form["num_tokens"], train=dice.choice((0, 4)),
                settings={"mixer": "minlstm" if form["use_lstm"] else "mingru"})


def draw_mamba(dice, name):
    from transformers import MambaConfig, MambaForCausalLM
    config = MambaConfig(vocab_size=dice.randint(2, 70), hidden_size=dice.randint(4, 40),
                         num_hidden_layers=dice.randint(1, 3), state_size=dice.randint(1, 32),
                         expand=dice.choice((1, 2, 3)), conv_kernel=dice.randint(1, 16),
                         time_step_rank=dice.choice(("auto", 1, 2, 5)), layer_norm_epsilon=dice.choice((1e-5, 1e-6)),
                         tie_word_embeddings=dice.random() < 0.5, use_conv_bias=dice.random() < 0.5)
    return Case(name, "mamba", lambda: MambaForCausalLM(config), config.vocab_size, train=dice.choice((0, 3)),
                config=config, settings={"mixer": "mamba"})


def draw_authors(dice, name):
    reals, lstm = dice.random() < 0.3, dice.random() < 0.5
    normalize = lstm and dice.random() < 0.5
    form = dict(inputs=dice.randint(2, 20), outputs=dice.randint(2, 20), dim=dice.randint(4, 24),
                depth=dice.randint(1, 3), reals=reals, taps=dice.choice((0, 0, 3, 4, 7)),
                mlp=dice.choice((0, 1, 2, 2.5)), lstm=lstm, expansion=dice.choice((1, 1.5, 2, 6)), normalize=normalize,
                h0=dice.random() < 0.7)
    settings = {"mixer": "minlstm" if lstm else "mingru", "normalize-gates": "yes" if normalize else "no"}
    return Case(name, "authors", lambda: Authors(**form), form["inputs"], reals=reals, train=dice.choice((0, 4)),
                settings=settings)


def draw_ours(dice, name):
    mixer, heads, dim = dice.choice(("mingru", "minlstm", "gru", "lstm", "attention")), 2, 2 * dice.randint(2, 12)
    reals = dice.random() < 0.3
    form = dict(mixer=mixer, inputs=dice.randint(2, 20), dim=dim, depth=dice.randint(1, 3),
                width=0 if mixer == "attention" else dim * dice.randint(1, 3), mlp=dim * dice.randint(0, 3),
                heads=heads, reals=reals, outputs=dice.randint(2, 9) if reals else 0)
    settings = {"mixer": mixer, "norm": "layer", "normalize-gates": "no"}
    if mixer == "attention":
        settings.update({"heads": str(heads), "positions": "none", "window": "128"})
    return Case(name, "ours", lambda: Ours(**form), form["inputs"], reals=reals, train=dice.choice((0, 3)),
                settings=settings)


def draw_bare(dice, name):
    kind, size, depth = dice.choice((nn.GRU, nn.LSTM)), dice.randint(1, 20), dice.randint(1, 3)
    width, bias = dice.randint(1, 30), dice.random() < 0.7
    return Case(name, "torch", lambda: kind(size, width, depth, bias=bias, batch_first=True), size, reals=True,
                layer=True, settings={"mixer": kind.__name__.lower()})


KINDS = {"layer": draw_layer, "lm": draw_lm, "mamba": draw_mamba, "authors": draw_authors, "ours": draw_ours,
         "bare": draw_bare}


def drawn(name):
    """The model of a name such as drawn-mamba-17: always the same one."""
    _, kind, number = name.split("-")
    return KINDS[kind](random.Random(f"{kind} {number}"), name)


def names(count):
    return [f"drawn-{kind}-{number}" for number in range(count) for kind in KINDS]
