"""minGRU and minLSTM: recurrent networks whose training is one parallel scan, by a C library without dependencies.

    import minrnn
    model = minrnn.load("runs/book")                       # a model file, or the folder of a run
    print("".join(model.generate("Once", tokens=200)))     # text
    h, last = minrnn.mingru(x, weight, bias)               # the layer alone, on NumPy arrays
    from minrnn.torch import MinGRU                        # in place of torch.nn.GRU
"""
from . import _core
from .contexts import context
from .errors import (DataError, DeviceError, Error, FileError, FormatError, InvalidArgument, NotFinite,
                     OutOfMemory)
from .models import Model, Result, Score, load
from .runs import Log, read_log
from .scans import mingru, mingru_vjp, minlstm, minlstm_vjp, scan, scan_vjp
from .streams import Stream
from .weights import from_lucidrains, from_state_dict, to_torch

__version__ = _core.build()["version"]
__all__ = ["DataError", "DeviceError", "Error", "FileError", "FormatError", "InvalidArgument", "Log", "Model",
           "NotFinite", "OutOfMemory", "Result", "Score", "Stream", "context", "from_lucidrains",
           "from_state_dict", "load", "mingru", "mingru_vjp", "minlstm", "minlstm_vjp", "read_log", "scan", "scan_vjp",
           "to_torch"]
