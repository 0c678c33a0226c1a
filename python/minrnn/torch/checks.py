"""Arguments of minrnn.torch: each is checked, and refused by its name."""
import numbers

import torch
from torch.autograd import forward_ad

from . import ops

HALF = (torch.float16, torch.bfloat16)
_WHOLE = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def is_tensor(x, name):
    """Refuses anything but a dense tensor."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name}: must be a tensor, not {type(x).__name__}")
    if x.layout is not torch.strided or x.is_nested:
        raise ValueError(f"{name}: is {'nested' if x.is_nested else x.layout}; a dense tensor is needed")
    return x


def has_shape(x, name, shape, like):
    """Refuses a tensor of another shape, or on another device than the main argument."""
    is_tensor(x, name)
    if x.shape != shape:
        raise ValueError(f"{name}: has the shape {tuple(x.shape)}, where {tuple(shape)} is needed")
    if x.device != like.device:
        raise ValueError(f"{name}: is on {x.device}, and the input on {like.device}; all must be on one device")
    return x


def wide(x, name, shape, like, dtype):
    """A state or a weight, in the dtype that the op wants."""
    if x is None:
        return None
    has_shape(x, name, shape, like)
    wanted = ops.wide(dtype)
    if x.dtype == wanted:
        return x
    if x.dtype not in HALF or wanted == torch.float64:
        raise TypeError(f"{name}: is {x.dtype}, where {wanted} is needed beside {dtype}")
    return x.float()


def main(x, name):
    """The main argument in a dtype that the ops have, by autocast's rules, and the dtype that results are given in."""
    is_tensor(x, name)
    kind = x.device.type
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"{name}: is on {x.device}; minrnn computes on cpu and cuda")
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64 and x.is_floating_point():
        x = x.to(torch.bfloat16) if torch.get_autocast_dtype(kind) == torch.bfloat16 else x.float()
        return x, x.dtype
    if x.dtype == torch.float16:
        return x.float(), torch.float16
    if x.dtype not in ops.DTYPES:
        raise TypeError(f"{name}: is {x.dtype}; float32, bfloat16, float16 or float64 is needed")
    if x.dtype == torch.float64 and kind != "cpu":
        raise TypeError(f"{name}: float64 is computed on the CPU alone, not on {x.device}")
    return x, x.dtype


def is_reset(reset, shape, like):
    """Refuses a reset mask of another shape or dtype."""
    if reset is None:
        return
    has_shape(reset, "reset", shape, like)
    if reset.dtype not in (torch.bool, torch.uint8):
        raise TypeError(f"reset: is {reset.dtype}; bool or uint8 is needed")


def lengths(length, B, T, like):
    """The number of tokens in each row, as int32. The kernels treat less than 0 as 0, and more than T as T."""
    if length is None:
        return None
    has_shape(length, "length", (B,), like)
    if length.dtype not in _WHOLE:
        raise TypeError(f"length: is {length.dtype}; whole numbers are needed (int64, int32 and smaller)")
    return (length.clamp(0, T) if length.dtype == torch.int64 else length).to(torch.int32)


def one_length(length):
    """The length of a sequence without a batch, as that of a batch of one."""
    if length is None:
        return None
    if is_tensor(length, "length").numel() != 1:
        raise ValueError(f"length: has {length.numel()} numbers; one is needed without a batch")
    return length.reshape(1)


def masks(reset, length, like, B, T):
    is_reset(reset, (B, T), like)
    return None if reset is None else reset.to(torch.uint8), lengths(length, B, T, like)


def choice(value, name, choices):
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}: is {value!r}; it must be one of {', '.join(choices)}")
    return value


def flag(value, name):
    if not isinstance(value, bool):
        raise TypeError(f"{name}: is {value!r}; True or False is needed")
    return value


def size(value, name):
    """A size as an int, also of NumPy's kinds."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < 1:
        raise ValueError(f"{name}: is {value!r}; a whole number of 1 or more is needed")
    return int(value)


def no_tangents(what, *tensors):
    """Refuses forward-mode derivatives, which would be lost where no gradient is asked for."""
    if torch.compiler.is_compiling() or forward_ad._current_level < 0:
        return
    for x in tensors:
        if x is not None and forward_ad.unpack_dual(x).tangent is not None:
            raise RuntimeError(f"minrnn: forward-mode derivatives of a {what} are not there; use backward")
