from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, overload

from numpy.typing import NDArray

__all__ = ["__version__", "attention"]

__version__: str

class _Array(Protocol):
    """An array of NumPy, or of another library that speaks DLPack."""

    @property
    def shape(self) -> Any: ...
    def __dlpack__(self) -> Any: ...

_A = TypeVar("_A", bound=_Array)
_Mask: TypeAlias = _Array
_Numbers: TypeAlias = Sequence[float] | NDArray[Any] | _Array
_Counts: TypeAlias = Sequence[int] | NDArray[Any] | _Array
_Causal: TypeAlias = bool | int | Literal["top-left", "bottom-right"] | None
_Window: TypeAlias = tuple[int | None, int | None] | None
_Documents: TypeAlias = _Counts | tuple[_Counts, _Counts]
_Layout: TypeAlias = Literal["bhld", "blhd"]

@overload
def attention(
    q: _A,
    k: _A,
    v: _A,
    *,
    scale: float | None = None,
    causal: _Causal = None,
    window: _Window = None,
    softcap: float | None = None,
    keep: _Mask | None = None,
    drop: _Mask | None = None,
    bias: _Array | None = None,
    alibi: _Numbers | bool | None = None,
    sinks: _Numbers | None = None,
    kv_lengths: _Counts | None = None,
    documents: _Documents | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    layout: _Layout = "bhld",
    out: _A | None = None,
    return_lse: Literal[False] = False,
    return_weights: Literal[False] = False,
) -> _A: ...
@overload
def attention(
    q: _A,
    k: _A,
    v: _A,
    *,
    scale: float | None = None,
    causal: _Causal = None,
    window: _Window = None,
    softcap: float | None = None,
    keep: _Mask | None = None,
    drop: _Mask | None = None,
    bias: _Array | None = None,
    alibi: _Numbers | bool | None = None,
    sinks: _Numbers | None = None,
    kv_lengths: _Counts | None = None,
    documents: _Documents | None = None,
    dropout: float = 0.0,
    seed: int | None = None,
    layout: _Layout = "bhld",
    out: _A | None = None,
    return_lse: bool = False,
    return_weights: bool = False,
) -> Any: ...
