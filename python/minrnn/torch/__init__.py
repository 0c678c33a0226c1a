"""minGRU and minLSTM for PyTorch: modules in place of nn.GRU and nn.LSTM, and the functions beneath them.

    from minrnn.torch import MinGRU
    layer = MinGRU(64, 128, num_layers=2, batch_first=True)
    output, h_n = layer(x)
"""
from .functions import cell, scan
from .modules import MinGRU, MinLSTM
from .weights import from_lucidrains, from_model, to_model

__all__ = ["MinGRU", "MinLSTM", "cell", "from_lucidrains", "from_model", "scan", "to_model"]
