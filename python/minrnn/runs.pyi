import os
from typing import Any

from numpy.typing import NDArray

class Log:
    folder: str
    steps: dict[str, NDArray[Any]]
    evals: dict[str, NDArray[Any]]
    def __init__(self, folder: str, steps: dict[str, NDArray[Any]], evals: dict[str, NDArray[Any]]) -> None: ...

def read_log(folder: str | os.PathLike[str]) -> Log: ...
