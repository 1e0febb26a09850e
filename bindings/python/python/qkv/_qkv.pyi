from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, TypeVar, final, overload

from numpy import float32, float64
from numpy.typing import NDArray
from typing_extensions import Unpack

__all__ = [
    "Cache",
    "Explanation",
    "Gradients",
    "MultiHeadAttention",
    "Report",
    "Trace",
    "__version__",
    "address",
    "attention",
    "attention_backward",
    "check",
    "explain",
    "merge",
    "rotary",
    "steps",
    "trace",
    "trace_weights",
]

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

class _Options(TypedDict, total=False):
    scale: float | None
    causal: _Causal
    window: _Window
    softcap: float | None
    keep: _Mask | None
    drop: _Mask | None
    bias: _Array | None
    alibi: _Numbers | bool | None
    sinks: _Numbers | None
    kv_lengths: _Counts | None
    documents: _Documents | None
    dropout: float
    seed: int | None

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
@final
class Gradients:
    @property
    def q(self) -> Any: ...
    @property
    def k(self) -> Any: ...
    @property
    def v(self) -> Any: ...
    @property
    def bias(self) -> Any: ...
    @property
    def sinks(self) -> Any: ...

def attention_backward(
    grad_output: _A,
    q: _A,
    k: _A,
    v: _A,
    output: _A,
    lse: _Array,
    *,
    bias_gradient: bool = True,
    layout: _Layout = "bhld",
    **options: Unpack[_Options],
) -> Gradients: ...
def merge(
    parts: Sequence[tuple[_A, _Array]],
    *,
    sinks: _Numbers | None = None,
    layout: _Layout = "bhld",
) -> tuple[_A, Any]: ...
def address(array: _Array) -> int | None: ...
def rotary(
    x: _A,
    positions: int | _Counts | Sequence[_Counts] | None = None,
    *,
    base: float = 10000.0,
    interleaved: bool = False,
    dim: int | None = None,
    scaling: float | dict[str, Any] | None = None,
    cos: _Array | None = None,
    sin: _Array | None = None,
    layout: _Layout = "bhld",
) -> _A: ...
def steps(
    q: _A,
    k: _A,
    v: _A,
    *,
    layout: _Layout = "bhld",
    **options: Unpack[_Options],
) -> dict[str, NDArray[float64]]: ...
def explain(
    q: _A,
    k: _A,
    v: _A,
    *,
    lang: Literal["en", "zh"] = "en",
    digits: int = 4,
    rows: int | Sequence[int] | None = None,
    tokens: Sequence[str] | None = None,
    contrast: bool = False,
    layout: _Layout = "bhld",
    **options: Unpack[_Options],
) -> Explanation: ...
@final
class Explanation:
    def text(self) -> str: ...
    def markdown(self) -> str: ...
    def latex(self) -> str: ...
    def html(self) -> str: ...
    @property
    def steps(self) -> dict[str, NDArray[float64]]: ...
    def _repr_html_(self) -> str: ...

@final
class Cache:
    def __new__(
        cls,
        batch: int,
        kv_heads: int,
        head_dim: int,
        value_dim: int | None = None,
        *,
        dtype: Any = "float32",
    ) -> Cache: ...
    def append(self, k: _Array, v: _Array, *, layout: _Layout = "bhld") -> None: ...
    def attention(
        self,
        q: _A,
        *,
        layout: _Layout = "bhld",
        out: _A | None = None,
        return_lse: bool = False,
        return_weights: bool = False,
        **options: Unpack[_Options],
    ) -> Any: ...
    def truncate(self, tokens: int) -> None: ...
    def reserve(self, tokens: int) -> None: ...
    def copy(self) -> Cache: ...
    def __copy__(self) -> Cache: ...
    def __deepcopy__(self, memo: Any, /) -> Cache: ...
    def __len__(self) -> int: ...
    @property
    def k(self) -> NDArray[Any]: ...
    @property
    def v(self) -> NDArray[Any]: ...

def check(
    q: _A,
    k: _A,
    v: _A,
    *,
    scores: _Array | None = None,
    scaled: _Array | None = None,
    weights: _Array | None = None,
    output: _Array | None = None,
    lse: _Array | None = None,
    lang: Literal["en", "zh"] = "en",
    layout: _Layout = "bhld",
    **options: Unpack[_Options],
) -> Report: ...
@final
class Report:
    @property
    def verdict(self) -> str: ...
    @property
    def agrees(self) -> bool: ...
    @property
    def causes(self) -> list[str]: ...
    @property
    def max_abs_error(self) -> float: ...
    @property
    def bound(self) -> float: ...
    def json(self) -> str: ...
    def to_dict(self) -> dict[str, Any]: ...

@final
class MultiHeadAttention:
    def __new__(
        cls,
        wq: _Array,
        wk: _Array,
        wv: _Array,
        wo: _Array | None = None,
        *,
        heads: int,
        kv_heads: int | None = None,
        bq: _Array | None = None,
        bk: _Array | None = None,
        bv: _Array | None = None,
        bo: _Array | None = None,
    ) -> MultiHeadAttention: ...
    @classmethod
    def from_torch(
        cls, state: Any, heads: int, *, prefix: str = ""
    ) -> MultiHeadAttention: ...
    def __call__(
        self, x: _A, context: _A | None = None, **options: Unpack[_Options]
    ) -> _A: ...
    def steps(
        self, x: _A, context: _A | None = None, **options: Unpack[_Options]
    ) -> dict[str, NDArray[float64]]: ...
    def explain(
        self,
        x: _A,
        context: _A | None = None,
        *,
        lang: Literal["en", "zh"] = "en",
        digits: int = 4,
        rows: int | Sequence[int] | None = None,
        tokens: Sequence[str] | None = None,
        contrast: bool = False,
        **options: Unpack[_Options],
    ) -> Explanation: ...

@final
class Trace:
    @property
    def model(self) -> str: ...
    @property
    def layers(self) -> list[int]: ...
    @property
    def heads(self) -> list[int]: ...
    @property
    def tokens(self) -> list[list[str]]: ...
    @property
    def conventions(self) -> dict[str, str]: ...
    def get(
        self,
        kind: Literal["q", "k", "v", "rot_q", "rot_k", "scores", "weights", "z"],
        layer: int,
        head: int,
        *,
        entry: int = 0,
    ) -> NDArray[float32]: ...
    def weights(self, layer: int, head: int, *, entry: int = 0) -> NDArray[float32]: ...
    def heads_by(
        self, by: str, *, control: str | None = None, most: int = 10
    ) -> list[dict[str, Any]]: ...
    def next_tokens(self, *, entry: int = 0, most: int = 5) -> list[tuple[str, float]]: ...
    def html(self, *, entry: int = 0) -> str: ...
    def svg(self, layer: int, head: int, *, entry: int = 0) -> str: ...
    def text(
        self, *, layer: int | None = None, head: int | None = None, entry: int = 0
    ) -> str: ...
    def save(self, path: str | PathLike[str], *, keep: str | None = None) -> None: ...
    def _repr_html_(self) -> str: ...

def trace(
    model: str | PathLike[str],
    text: str | Sequence[str] | None = None,
    *,
    generate: int | None = None,
    pad: Literal["left", "right"] | None = None,
    lang: Literal["en", "zh"] = "en",
) -> Trace: ...
def trace_weights(
    weights: _Array | Sequence[_Array],
    tokens: Sequence[str] | None = None,
    *,
    kv_heads: int | None = None,
    lang: Literal["en", "zh"] = "en",
) -> Trace: ...
