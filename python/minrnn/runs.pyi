from typing import Any

from numpy.typing import NDArray

from .models import Path

class Log:
    folder: str
    steps: dict[str, NDArray[Any]]
    evals: dict[str, NDArray[Any]]
    def __init__(self, folder: str, steps: dict[str, NDArray[Any]], evals: dict[str, NDArray[Any]]) -> None: ...

def read_log(folder: Path) -> Log: ...
