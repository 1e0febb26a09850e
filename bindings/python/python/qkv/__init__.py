"""Exact attention, every step visible.

    Attention(Q, K, V) = softmax(scale·Q·Kᵀ + mask)·V

``attention`` computes fast, ``attention_backward`` its gradients, ``merge`` puts partial results
together, ``Cache`` grows a token at a time, ``rotary`` turns queries and keys; ``steps`` gives every
intermediate, ``explain`` the worked calculation, ``check`` says whether somebody else's numbers are
right, ``trace`` what the heads of a real model did, and ``MultiHeadAttention`` puts the layer around; ``address`` tells whether an array is read where
it lies. ``qkv.torch``, ``qkv.onnx`` and
``qkv.transformers`` are imported by name, and need those packages.
"""

from ._qkv import (
    Cache,
    Explanation,
    Gradients,
    MultiHeadAttention,
    Report,
    Trace,
    __version__,
    address,
    attention,
    attention_backward,
    check,
    explain,
    merge,
    rotary,
    steps,
    trace,
    trace_weights,
)

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
