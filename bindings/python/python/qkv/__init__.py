"""Exact attention, every step visible.

    Attention(Q, K, V) = softmax(scale·Q·Kᵀ + mask)·V

``attention`` computes fast, ``attention_backward`` its gradients, ``merge`` puts partial results
together, ``Cache`` grows a token at a time, ``rotary`` turns queries and keys; ``steps`` gives every
intermediate and ``explain`` the worked calculation.
"""

from ._qkv import (
    Cache,
    Explanation,
    Gradients,
    __version__,
    attention,
    attention_backward,
    explain,
    merge,
    rotary,
    steps,
)

__all__ = [
    "Cache",
    "Explanation",
    "Gradients",
    "__version__",
    "attention",
    "attention_backward",
    "explain",
    "merge",
    "rotary",
    "steps",
]
