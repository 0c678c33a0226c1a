from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

# NumPy arrays in, NumPy arrays out; torch tensors in, torch tensors out.
Array = Any

def scan(a: Array, b: Array, h0: Array | None = ..., *, reset: ArrayLike | None = ..., length: ArrayLike | None = ...,
         return_state: bool = ...) -> Any: ...
def scan_vjp(a: Array, b: Array, h0: Array | None = ..., *, reset: ArrayLike | None = ...,
             length: ArrayLike | None = ...) -> tuple[Array, Array, Callable[..., tuple[Array, Array, Array]]]: ...
def mingru(x: Array, weight: Array, bias: Array | None = ..., h0: Array | None = ..., *, h_init: Array | None = ...,
           reset: ArrayLike | None = ..., length: ArrayLike | None = ..., candidate: str = ...,
           signed: bool = ...) -> tuple[Array, Array]: ...
def minlstm(x: Array, weight: Array, bias: Array | None = ..., h0: Array | None = ..., *, h_init: Array | None = ...,
            reset: ArrayLike | None = ..., length: ArrayLike | None = ..., candidate: str = ..., normalize: bool = ...,
            signed: bool = ...) -> tuple[Array, Array]: ...
def mingru_vjp(x: Array, weight: Array, bias: Array | None = ..., h0: Array | None = ..., *,
               h_init: Array | None = ..., reset: ArrayLike | None = ..., length: ArrayLike | None = ...,
               candidate: str = ...,
               signed: bool = ...) -> tuple[Array, Array, Callable[..., dict[str, Array]]]: ...
def minlstm_vjp(x: Array, weight: Array, bias: Array | None = ..., h0: Array | None = ..., *,
                h_init: Array | None = ..., reset: ArrayLike | None = ..., length: ArrayLike | None = ...,
                candidate: str = ..., normalize: bool = ...,
                signed: bool = ...) -> tuple[Array, Array, Callable[..., dict[str, Array]]]: ...
