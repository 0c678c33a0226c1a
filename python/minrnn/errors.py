"""The exceptions. Each carries the library's sentence, and is also the Python exception that people expect."""
from . import _core


class Error(Exception):
    """Something went wrong; the text names the file, key or argument."""


class InvalidArgument(Error, ValueError):
    """An argument, key or value that cannot be used."""


class OutOfMemory(Error, MemoryError):
    """There is not enough memory."""


class FileError(Error, OSError):
    """A file cannot be read or written."""


class FormatError(Error, ValueError):
    """A file is damaged, or is not what it should be."""


class DataError(Error, ValueError):
    """Data that cannot be used, such as a character that the vocabulary lacks."""


class NotFinite(Error, ArithmeticError):
    """A number became NaN or infinite."""


class DeviceError(Error, RuntimeError):
    """A device cannot be used."""


_core.set_exceptions({
    -1: OutOfMemory, -2: InvalidArgument, -3: FileError, -4: FormatError, -5: InvalidArgument, -6: DataError,
    -7: DeviceError, -8: NotFinite, -9: Error, -10: Error, -11: FileError,
})
