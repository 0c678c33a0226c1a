from collections.abc import Mapping
from typing import Any

from .models import Model, Path

class Tensors(dict[str, Any]):
    metadata: dict[str, str]

def from_state_dict(tensors: Mapping[str, Any] | Path | Any, *, layout: str = ...,
                    vocab: str | list[str] | tuple[str, ...] | None = ..., text: str | None = ..., device: str = ...,
                    threads: int = ..., bf16: bool = ..., **keys: Any) -> Model: ...
def from_lucidrains(source: Mapping[str, Any] | Path | Any, **options: Any) -> Model: ...
def to_torch(model: Model) -> Tensors: ...
