"""What users give: arrays and numbers of the library's types, and never another number than was given; paths; keys."""
import json
import numbers
import operator
import os

import numpy as np

from .errors import InvalidArgument

_NO_NUMBERS = "cSUTMm"  # kinds of dtypes: complex numbers, texts, times


def _plain(x, name):
    refuse_mask(x, name)
    try:
        only_dlpack = hasattr(x, "__dlpack__") and not hasattr(x, "__array__")
        x = np.from_dlpack(x) if only_dlpack else np.asarray(x)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:  # such as rows of several lengths
        raise InvalidArgument(f"{name}: {error}") from None
    if x.dtype.kind in _NO_NUMBERS:
        raise InvalidArgument(f"{name}: must be numbers, not {x.dtype}")
    return x


def refuse_mask(x, name):
    """Refuses an array some of whose numbers are masked."""
    if isinstance(x, np.ma.MaskedArray) and np.ma.is_masked(x):
        raise InvalidArgument(f"{name}: a masked array; its mask would be lost")


def in_place(x, dtype):
    """x as C can read it: itself where it already is so."""
    x = np.ascontiguousarray(x, dtype)
    return x if x.flags.aligned else x.copy()


def _as(x, name, dtype):
    try:
        return in_place(x, dtype)
    except OverflowError:  # of a Python int
        raise InvalidArgument(f"{name}: a number is too large") from None
    except (TypeError, ValueError):  # of objects, such as None
        raise InvalidArgument(f"{name}: must be numbers, not {x if x.ndim == 0 else x.dtype}") from None


def whole(x, name, dtype=np.int32):
    """x as whole numbers; what the type cannot hold is refused, not wrapped or cut off."""
    x = _plain(x, name)
    with np.errstate(invalid="ignore"):
        result = _as(x, name, dtype)
    if x.dtype != result.dtype and not (result == x).all():
        at = np.argwhere(result != x)[0]
        where = "".join(f"[{i}]" for i in at) if x.ndim else ""
        limits = np.iinfo(dtype)
        raise InvalidArgument(f"{name}{where} = {x[tuple(at)] if x.ndim else x}: must be a whole number from "
                              f"{limits.min} to {limits.max}")
    return result


def real(x, name, dtype=np.float32):
    """x as floats. Numbers that are too large become infinite, which the library refuses by their place."""
    x = _plain(x, name)
    with np.errstate(over="ignore"):
        return _as(x, name, dtype)


def count(x, name, least, most=2**63 - 1):
    """x as an int from least to most."""
    try:
        value = operator.index(x)
    except TypeError:
        value = None
    if value is None or isinstance(x, bool) or not least <= value <= most:
        too_large = value is not None and value > most
        limit = f"from {least} to {most}" if too_large or most < 2**31 - 1 else f"{least} or more"
        raise InvalidArgument(f"{name} = {x!r:.100}: must be a whole number, {limit}")
    return value


def number(x, name):
    """x as a float."""
    try:
        if not isinstance(x, (str, bytes, bytearray, bool)):  # of which float() makes numbers, too
            return float(x)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidArgument(f"{name} = {x!r:.100}: must be a number")


def flag(x, name):
    """x as a bool. A text is none: "no" would count as true."""
    if x is None or isinstance(x, (int, np.integer, np.bool_)) and x in (0, 1):
        return bool(x)
    raise InvalidArgument(f"{name} = {x!r:.100}: must be True or False")


def utf8(text, name):
    """A str as UTF-8."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{name}: character {error.start} is half of one (a lone surrogate)") from None


def path_of(path):
    """A path as the bytes that the system knows it by."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        raise InvalidArgument(f"path = {path!r:.100}: no file can have this name") from None
    except TypeError:
        raise InvalidArgument(f"path: must be a text or a path, not {type(path).__name__}") from None
    if b"\0" in name:
        raise InvalidArgument("path: has a zero byte")
    return name


def shown(path):
    """A path as sentences have it, which every terminal can print."""
    return os.fsencode(path).decode("utf-8", "replace")


def _text_of(value):
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(x, numbers.Real) for x in value):  # such as betas
            return ",".join(_text_of(x) for x in value)
        return json.dumps(value, ensure_ascii=False, default=str)  # the characters of a vocabulary
    return value if isinstance(value, str) else repr(value) if isinstance(value, float) else str(value)


def settings_as_text(settings):
    """Keys as the library spells them, and their values as text."""
    return {key.replace("_", "-"): _text_of(value) for key, value in settings.items()}
