"""Which models of other programs are compared: sizes and settings of peer_models.py."""
import torch
import torch.nn as nn

from peer_drawn import drawn
from peer_models import Authors, Case, GammaNorm, Ours


def layers():
    """Single layers of minGRU-pytorch."""
    from minGRU_pytorch.minGRU import minGRU
    from minGRU_pytorch.minLSTM import minLSTM
    for kind in (minGRU, minLSTM):
        for dim, expansion, proj in ((8, 1., None), (7, 1., None), (6, 1.5, None), (5, 1.5, None), (8, 2., None),
                                     (6, 1., True), (4, 1.5, False), (3, 2., False), (1, 1., None), (17, 1.3, None)):
            name = f"layer-{kind.__name__.lower()}-d{dim}-e{expansion:g}{'' if proj is None else f'-proj{int(proj)}'}"
            settings = {"mixer": kind.__name__.lower()}
            yield Case(name, "mingru-pytorch", lambda k=kind, a=(dim, expansion, proj): k(*a), dim, reals=True,
                       layer=True, train=4 if dim in (8, 5) else 0, settings=settings)


LM_FORMS = [  # tokens, dim, depth, and what differs from the defaults
    (11, 8, 1, {}), (13, 7, 2, {}), (9, 8, 2, {"enable_conv": True}), (9, 6, 1, {"enable_conv": True, "expansion": 1.}),
    (16, 6, 2, {"enable_conv": True, "conv_kernel_size": 4, "expansion": 2.}),
    (7, 5, 1, {"enable_conv": True, "conv_kernel_size": 7, "ff_mult": 2}), (12, 10, 3, {"ff_mult": 2.5}),
    (5, 4, 1, {"ff_mult": 2, "expansion": 3.}), (256, 16, 2, {"expansion": 1.2}),
    (6, 4, 1, {"enable_conv": True, "conv_kernel_size": 1}), (10, 9, 5, {"enable_conv": True, "ff_mult": 1}),
]

SHORT = {"enable_conv": "conv", "conv_kernel_size": "taps", "ff_mult": "ff", "expansion": "e"}


def language_models():
    from minGRU_pytorch.minLM import minLM
    for lstm in (False, True):
        for tokens, dim, depth, other in LM_FORMS:
            words = "".join(f"-{SHORT[key]}{'' if value is True else f'{value:g}'}" for key, value in other.items())
            name = f"lm-{'minlstm' if lstm else 'mingru'}-v{tokens}-d{dim}-l{depth}{words}"
            arguments = dict(num_tokens=tokens, dim=dim, depth=depth, use_lstm=lstm, **other)
            yield Case(name, "mingru-pytorch", lambda a=arguments: minLM(**a), tokens, train=6 if dim in (8, 7) else 0,
                       settings={"mixer": "minlstm" if lstm else "mingru"})


def old_language_models():
    """Up to version 0.0.14, minGRU-pytorch had norms with gamma; the rest was as it is."""
    from minGRU_pytorch.minLM import minLM

    def make(arguments):
        model = minLM(**arguments)
        for layer in model.layers:
            layer[1], layer[3] = GammaNorm(arguments["dim"]), GammaNorm(arguments["dim"])
        model.norm = GammaNorm(arguments["dim"])
        return model

    for name, other in (("lm-gamma", {}), ("lm-gamma-conv", {"enable_conv": True})):
        arguments = dict(num_tokens=9, dim=6, depth=2, **other)
        yield Case(name, "mingru-pytorch", lambda a=arguments: make(a), 9, train=3, exports=False,
                   settings={"mixer": "mingru"})


MAMBA_FORMS = [
    {}, {"state_size": 8}, {"conv_kernel": 2}, {"conv_kernel": 6, "state_size": 8}, {"time_step_rank": 3},
    {"expand": 1, "hidden_size": 7}, {"vocab_size": 13, "hidden_size": 17}, {"layer_norm_epsilon": 1e-6},
    {"tie_word_embeddings": False}, {"use_conv_bias": False}, {"num_hidden_layers": 3, "state_size": 1},
    {"tie_word_embeddings": False, "use_conv_bias": False, "conv_kernel": 1, "state_size": 32},
    {"hidden_size": 5, "expand": 1, "state_size": 2, "conv_kernel": 2, "vocab_size": 7},
    {"hidden_size": 33, "layer_norm_epsilon": 1e-3, "time_step_rank": 1},
]

WORD = {"state_size": "states", "conv_kernel": "taps", "time_step_rank": "rank", "expand": "e", "hidden_size": "d",
        "vocab_size": "v", "layer_norm_epsilon": "eps", "tie_word_embeddings": "tie", "use_conv_bias": "convbias",
        "num_hidden_layers": "l"}


def mambas():
    from transformers import MambaConfig, MambaForCausalLM
    for i, form in enumerate(MAMBA_FORMS):
        full = {"vocab_size": 11, "hidden_size": 8, "num_hidden_layers": 1 + i % 2, "state_size": 16, **form}
        words = "".join(f"-{WORD[key]}{str(value).lower()}" for key, value in form.items())
        config = MambaConfig(**full)
        yield Case(f"mamba{words}", "mamba", lambda c=config: MambaForCausalLM(c), full["vocab_size"],
                   train=4 if i % 3 == 0 else 0, config=config, settings={"mixer": "mamba"})


AUTHORS_FORMS = [
    dict(inputs=16, outputs=16, dim=8, depth=1), dict(inputs=9, outputs=5, dim=6, depth=2, taps=4),
    dict(inputs=7, outputs=7, dim=5, depth=2, mlp=2, h0=False),
    dict(inputs=6, outputs=6, dim=4, depth=1, taps=4, mlp=2),
    dict(inputs=3, outputs=2, dim=6, depth=2, reals=True, mlp=1.5),
    dict(inputs=8, outputs=8, dim=6, depth=3, expansion=6),
]


def authors():
    for lstm in (False, True):
        for i, form in enumerate(AUTHORS_FORMS):
            for normalize in (False, True) if lstm and i in (0, 3) else (False,):
                mixer = "minlstm" if lstm else "mingru"
                name = f"authors-{mixer}-{i}" + ("-normalized" if normalize else "")
                arguments = dict(form, lstm=lstm, normalize=normalize)
                settings = {"mixer": mixer, "normalize-gates": "yes" if normalize else "no"}
                yield Case(name, "authors", lambda a=arguments: Authors(**a), form["inputs"],
                           reals=form.get("reals", False), train=5 if i % 2 else 0, settings=settings)


OUR_FORMS = [dict(inputs=9, dim=6, depth=1), dict(inputs=11, dim=8, depth=2, mlp=16),
             dict(inputs=3, dim=6, depth=1, reals=True, outputs=2)]


def ours():
    for mixer in ("mingru", "minlstm", "gru", "lstm", "attention"):
        for i, form in enumerate(OUR_FORMS):
            other = {"heads": 2} if mixer == "attention" else {"width": 2 * form["dim"]}
            arguments = dict(form, mixer=mixer, **other)
            settings = {"mixer": mixer, "norm": "layer", "normalize-gates": "no"}
            if mixer == "attention":
                settings.update({"heads": "2", "positions": "none", "window": "128"})
            yield Case(f"ours-{mixer}-{i}", "ours", lambda a=arguments: Ours(**a), form["inputs"],
                       reals=form.get("reals", False), train=3 if i == 1 else 0, settings=settings)


def bare():
    """Modules of PyTorch as they are."""
    for name, make, size in (("gru", lambda: nn.GRU(5, 7, batch_first=True), 5),
                             ("gru-2", lambda: nn.GRU(6, 6, 2, batch_first=True), 6),
                             ("gru-nobias", lambda: nn.GRU(4, 6, bias=False, batch_first=True), 4),
                             ("lstm", lambda: nn.LSTM(5, 7, batch_first=True), 5),
                             ("lstm-2", lambda: nn.LSTM(4, 4, 2, batch_first=True), 4)):
        yield Case(f"torch-{name}", "torch", make, size, reals=True, layer=True, train=2,
                   settings={"mixer": name.split("-")[0]})


def every():
    for group in (layers, language_models, old_language_models, mambas, authors, ours, bare):
        yield from group()


def by_name(name):
    if name.startswith("drawn-"):
        return drawn(name)
    return next(case for case in every() if case.name == name)


def cast(model, dtype):
    """The weights as a file of another dtype has them, and the model that such a file stands for (fp32)."""
    state = {name: weight.to(dtype) for name, weight in model.state_dict().items()}
    model.load_state_dict({name: weight.to(torch.float32) for name, weight in state.items()})
    return state
