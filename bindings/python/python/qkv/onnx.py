"""An ONNX backend for graphs of Attention (opsets 23 to 25) and RotaryEmbedding (23).

    import onnx, qkv.onnx
    outputs = qkv.onnx.Backend.run_model(onnx.load("attention.onnx"), [q, k, v])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import onnx
import onnx.backend.base
from onnx import helper, numpy_helper

from . import _qkv

__all__ = ["Backend", "attention", "rotary_embedding"]

_Array = numpy.ndarray


def attention(
    Q: _Array,
    K: _Array,
    V: _Array,
    attn_mask: _Array | None = None,
    past_key: _Array | None = None,
    past_value: _Array | None = None,
    nonpad_kv_seqlen: _Array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
    want_scores: bool = True,
) -> tuple[_Array, _Array, _Array, _Array | None]:
    """The operator Attention: Y, present_key, present_value, qk_matmul_output.

    Inputs have 4 axes, or 3 with q_num_heads and kv_num_heads. softmax_precision is met by computing
    in float32 at least (float64 for float64), rounded once.
    """
    flat = Q.ndim == 3
    if flat:
        if not q_num_heads or not kv_num_heads:
            raise ValueError("inputs of 3 axes need q_num_heads and kv_num_heads")
        Q, K, V = (_split(x, n) for x, n in ((Q, q_num_heads), (K, kv_num_heads), (V, kv_num_heads)))
    if (past_key is None) != (past_value is None):
        raise ValueError("past_key and past_value come together")
    if past_key is not None and nonpad_kv_seqlen is not None:
        raise ValueError("nonpad_kv_seqlen and past_key exclude each other")
    if past_key is not None:
        K, V = numpy.concatenate((past_key, K), axis=2), numpy.concatenate((past_value, V), axis=2)
    past = 0 if past_key is None else past_key.shape[2]
    options: dict[str, Any] = {}
    if scale is not None:
        options["scale"] = scale
    if softcap:
        options["softcap"] = softcap
    if nonpad_kv_seqlen is not None:
        options["kv_lengths"] = nonpad_kv_seqlen.reshape(-1)
    keeps = []
    if attn_mask is not None:
        missing = K.shape[2] - attn_mask.shape[-1]
        truths = attn_mask.dtype == numpy.bool_
        if missing > 0:
            widths = [(0, 0)] * (attn_mask.ndim - 1) + [(0, missing)]
            filling = False if truths else -numpy.inf
            attn_mask = numpy.pad(attn_mask, widths, constant_values=filling)
        if truths:
            keeps.append(attn_mask)
        else:
            options["bias"] = attn_mask
    if is_causal:
        options["causal"] = past if nonpad_kv_seqlen is None else "bottom-right"
    if left_window_size >= 0 or right_window_size >= 0:
        window = tuple(None if side < 0 else side for side in (left_window_size, right_window_size))
        # Without a causal mask, windows stand as "bottom-right" does.
        if is_causal or nonpad_kv_seqlen is not None or past == K.shape[2] - Q.shape[2]:
            options["window"] = window
        else:
            keeps.append(_window(Q.shape[2], K.shape[2], past, *window))
    if keeps:
        options["keep"] = keeps[0] if len(keeps) == 1 else numpy.logical_and(*keeps)
    weights = want_scores and qk_matmul_output_mode == 3
    found = _qkv.attention(Q, K, V, return_weights=weights, **options)
    output, scores = found if weights else (found, None)
    if want_scores and not weights:
        steps = _qkv.steps(Q, K, V, **options)
        last = {0: "scaled", 1: "capped", 2: "masked"}[qk_matmul_output_mode]
        order = ["scaled", "capped", "biased", "masked"]
        present = [name for name in order[: order.index(last) + 1] if name in steps]
        scores = steps[present[-1]].astype(Q.dtype)
    if flat:
        output = output.transpose(0, 2, 1, 3).reshape(output.shape[0], output.shape[2], -1)
    return output, K, V, scores


def _split(x: _Array, heads: int) -> _Array:
    """[batch, length, heads·width] as [batch, heads, length, width]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def _window(queries: int, keys: int, offset: int, back: int | None, forward: int | None) -> _Array:
    distance = numpy.arange(keys) - (numpy.arange(queries)[:, None] + offset)
    kept = numpy.ones_like(distance, dtype=bool)
    if back is not None:
        kept &= distance >= -back
    if forward is not None:
        kept &= distance <= forward
    return kept


def rotary_embedding(
    X: _Array,
    cos_cache: _Array,
    sin_cache: _Array,
    position_ids: _Array | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> _Array:
    """The operator RotaryEmbedding."""
    flat = X.ndim == 3
    x = _split(X, num_heads) if flat else X
    if position_ids is not None:
        cos_cache, sin_cache = cos_cache[position_ids], sin_cache[position_ids]
    dim = rotary_embedding_dim or x.shape[-1]
    if cos_cache.shape[-1] != dim // 2:
        raise ValueError(f"cos_cache has {cos_cache.shape[-1]} columns, but {dim // 2} pairs turn")
    y = _qkv.rotary(x, cos=cos_cache, sin=sin_cache, interleaved=bool(interleaved))
    return y.transpose(0, 2, 1, 3).reshape(X.shape) if flat else y


def _run(node: onnx.NodeProto, inputs: Sequence[_Array | None]) -> Sequence[_Array | None]:
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if node.domain not in ("", "ai.onnx"):
        raise NotImplementedError(f"operators of domain {node.domain!r} are not computed here")
    if node.op_type == "Attention":
        want_scores = len(node.output) > 3 and bool(node.output[3])
        return attention(*inputs, want_scores=want_scores, **attributes)
    if node.op_type == "RotaryEmbedding":
        return (rotary_embedding(*inputs, **attributes),)
    raise NotImplementedError(
        f"{node.op_type}: only Attention and RotaryEmbedding are computed here"
    )


class _Prepared(onnx.backend.base.BackendRep):
    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        names = [i.name for i in self.graph.input if i.name not in self.constants]
        values: dict[str, Any] = dict(self.constants, **dict(zip(names, inputs, strict=True)))
        values[""] = None
        for node in self.graph.node:
            found = _run(node, [values[name] for name in node.input])
            values.update(zip(node.output, found, strict=False))
            values[""] = None
        return tuple(values[output.name] for output in self.graph.output)


class Backend(onnx.backend.base.Backend):
    """ONNX's interface to whoever runs models."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **keywords: Any
    ) -> onnx.backend.base.BackendRep:
        """Checks a model and holds it ready."""
        super().prepare(model, device, **keywords)
        return _Prepared(model)

    @classmethod
    def run_node(cls, node, inputs, device="CPU", outputs_info=None, **keywords):
        """Runs one operator."""
        super().run_node(node, inputs, device, outputs_info, **keywords)
        return tuple(_run(node, inputs))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """CPU only."""
        return device.split(":")[0] == "CPU"
