"""Hugging Face models on qkv, and a record of what their attention did.

    import qkv.transformers
    qkv.transformers.register()
    model = AutoModel.from_pretrained(…, attn_implementation="qkv")

    with qkv.transformers.record() as trace:
        model(**inputs)
    trace[3][0].weights          # layer 3, its first call: [batch, heads, queries, keys]
    trace[3][0].explain(head=2)  # the worked calculation of one head
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from transformers.utils import output_capturing

from . import _qkv
from .torch import attention

__all__ = ["Call", "Trace", "record", "register"]

# Tensors that models hand on to every attention function and that say nothing about attention:
# positions are in the queries, keys and masks already.
_HARMLESS = {"position_ids", "cache_position", "position_embeddings", "input_ids", "labels"}

_recorders: list[Trace] = []


def register(name: str = "qkv") -> None:
    """Makes attn_implementation=name mean qkv.

    Both the attention function and the mask function are registered: without the second a model
    drops its masks and says nothing. Some architectures (Bloom, Falcon) keep an implementation of
    their own whatever they are told; ``model.config._attn_implementation`` says what is in force.
    """
    AttentionInterface.register(name, _forward)
    AttentionMaskInterface.register(name, sdpa_mask)


def _forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    **keywords: Any,
) -> tuple[Tensor, Tensor | None]:
    """As AttentionInterface asks: query [batch, heads, queries, head_dim], key and value with heads
    not repeated; gives [batch, queries, heads, value_dim], and the weights if they are asked for."""
    for name, given in keywords.items():
        if isinstance(given, Tensor) and name not in _HARMLESS:
            raise TypeError(
                f"{name}: qkv does not know this tensor, and leaving it out could be wrong; use another "
                'attn_implementation for this model, such as "eager"'
            )
    options: dict[str, Any] = {}
    bias = position_bias
    if attention_mask is None:
        # What the mask function leaves out where this says the same. With an empty static cache there
        # are more keys than queries, and the first query still sees the first key alone.
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        if causal and query.shape[2] > 1:
            options["causal"] = "top-left"
    elif attention_mask.dtype == torch.bool:
        options["keep"] = attention_mask
    else:
        bias = attention_mask if bias is None else bias + attention_mask
    if scaling is not None:
        options["scale"] = float(scaling)
    if softcap is not None:
        options["softcap"] = float(softcap)
    if dropout > 0.0:
        options.update(dropout=float(dropout), seed=int(torch.randint(2**63 - 1, ())))
    # Lengths before heads: the output then lies as it is wanted.
    moved = [x.transpose(1, 2) for x in (query, key, value)]
    output = attention(*moved, bias=bias, sinks=s_aux, layout="blhd", **options)
    wanted = _wants_weights(keywords)
    if not (wanted or _recorders):
        return output, None
    call = Call(query, key, value, bias, s_aux, options)
    for recorder in _recorders:
        recorder._add(module, call)
    return output, call.weights if wanted else None


def _wants_weights(keywords: dict[str, Any]) -> bool:
    """Whether somebody called the model with output_attentions: models say it as a keyword, or take
    the weights from whatever layers return while a collector for them is there."""
    if keywords.get("output_attentions"):
        return True
    collector = getattr(output_capturing, "_active_collector", None)
    collected = collector.get() if collector is not None else None
    return collected is not None and any("attentions" in key for key in collected)


class Call:
    """One call of attention as it ran: q, k and v after everything that a model does to them."""

    def __init__(self, q, k, v, bias, sinks, options):
        self.q, self.k, self.v = (x.detach() for x in (q, k, v))
        self._bias, self._sinks = (None if x is None else x.detach() for x in (bias, sinks))
        self.options = dict(options)

    def _kept(self) -> Call:
        """With memory of its own: caches write over theirs."""
        return Call(*(x.clone() for x in (self.q, self.k, self.v)), self._bias, self._sinks, self.options)

    @property
    def weights(self) -> Tensor:
        """[batch, heads, queries, keys], worked out now, before dropout."""
        own = {"bias": self._bias, "sinks": self._sinks}
        return _qkv.attention(self.q, self.k, self.v, return_weights=True, **own, **self.options)[1]

    def explain(self, head: int = 0, batch: int = 0, **keywords: Any) -> _qkv.Explanation:
        """The worked calculation of one head, as qkv.explain gives it; keywords are its own."""
        kv_head = head // (self.q.shape[1] // self.k.shape[1])
        options = {n: x for n, x in self.options.items() if n not in ("keep", "dropout", "seed")}

        def part(x: Tensor | None) -> Tensor | None:
            if x is None:
                return None
            x = x.expand(self.q.shape[0], self.q.shape[1], *x.shape[-2:])
            return x[batch, head]

        return _qkv.explain(
            self.q[batch, head],
            self.k[batch, kv_head],
            self.v[batch, kv_head],
            keep=part(self.options.get("keep")),
            bias=part(self._bias),
            sinks=None if self._sinks is None else self._sinks[head : head + 1],
            **options,
            **keywords,
        )

    def __repr__(self) -> str:
        return f"<Call q {list(self.q.shape)}, k {list(self.k.shape)}, v {list(self.v.shape)}>"


class Trace:
    """Calls by layer: trace[layer] is a list, in the order in which they ran."""

    def __init__(self, layers: Iterable[int] | None) -> None:
        self._layers = None if layers is None else set(layers)
        self._calls: dict[int, list[Call]] = {}

    def _add(self, module: torch.nn.Module, call: Call) -> None:
        layer = getattr(module, "layer_idx", None)
        if layer is None:
            layer = len(self._calls)
        if self._layers is None or layer in self._layers:
            self._calls.setdefault(layer, []).append(call._kept())

    def map(self, tokens: Sequence[str] | None = None, **keywords: Any) -> _qkv.Trace:
        """The weights of each layer's first call as qkv.trace_weights shows them: a map of all heads,
        and heads by what they look at. tokens are one text's, such as those of
        tokenizer.convert_ids_to_tokens.
        """
        layers = [self[layer][0].weights.float() for layer in self]
        if tokens is not None:
            layers = [layer[:1] for layer in layers]
        return _qkv.trace_weights(layers, tokens, **keywords)

    def _repr_html_(self) -> str:
        return self.map()._repr_html_()

    def __getitem__(self, layer: int) -> list[Call]:
        return self._calls[layer]

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._calls))

    def __repr__(self) -> str:
        return f"<Trace of layers {sorted(self._calls)}>"


@contextlib.contextmanager
def record(layers: Iterable[int] | None = None) -> Iterator[Trace]:
    """Collects q, k and v of what models on qkv run within the block, of the layers asked for.

    Weights are worked out when they are looked at, so nothing of the size queries × keys is held but
    the masks that the models themselves made.
    """
    trace = Trace(layers)
    _recorders.append(trace)
    try:
        yield trace
    finally:
        _recorders.remove(trace)
