"""Exact attention, every step visible.

    Attention(Q, K, V) = softmax(scale·Q·Kᵀ + mask)·V
"""

from ._qkv import __version__, attention

__all__ = ["__version__", "attention"]
