"""Attention for torch: the signature and meaning of its own function, computed by qkv.

    import qkv.torch
    output = qkv.torch.scaled_dot_product_attention(q, k, v, is_causal=True)

    with qkv.torch.patch():
        model(x)  # torch.nn.functional.scaled_dot_product_attention on CPU tensors is qkv's
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.bias import CausalBias, CausalVariant

from . import _qkv

__all__ = ["attention", "patch", "scaled_dot_product_attention"]

if not hasattr(Tensor, "__dlpack_c_exchange_api__"):
    raise ImportError(
        f"qkv.torch needs torch 2.10 or newer, and this is {torch.__version__}; with an older one "
        "pass .numpy() arrays to qkv.attention"
    )

_theirs = F.scaled_dot_product_attention


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(scale·query·keyᵀ + attn_mask)·value, as torch.nn.functional has it.

    Shapes: query (N, …, Hq, L, E), key (N, …, H, S, E), value (N, …, H, S, Ev), on the CPU, of
    float16, bfloat16, float32 or float64; the result is (N, …, Hq, L, Ev). A bool attn_mask keeps
    where it is True, any other is added; it broadcasts to (N, …, Hq, L, S); the causal biases of
    torch.nn.attention.bias may stand for it. is_causal is top-left:
    query i sees keys 0 to i. With enable_gqa, Hq may be a multiple of H. dropout_p is in force
    whenever it is above 0; which weights it drops is drawn by torch's generator, but is not what
    torch itself would have dropped.

    Differentiable once by query, key, value and a float attn_mask; usable under torch.compile.
    Unlike torch, a key that is masked is never read into the sum, so a NaN there does not leak.

    >>> import torch, qkv.torch
    >>> q = torch.eye(2, dtype=torch.float64)
    >>> qkv.torch.scaled_dot_product_attention(q, q, q, is_causal=True)[0].tolist()
    [1.0, 0.0]
    """
    if isinstance(attn_mask, CausalBias):
        # A mask that torch keeps as a rule.
        upper = attn_mask.variant == CausalVariant.UPPER_LEFT
        offset = 0 if upper else key.shape[-2] - query.shape[-2]
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril(offset)
    if is_causal and attn_mask is not None:
        raise ValueError("is_causal: attn_mask is given too; put the causal mask into attn_mask")
    if attn_mask is not None and not (attn_mask.is_floating_point() or attn_mask.dtype == torch.bool):
        raise TypeError(
            f"attn_mask: dtype {attn_mask.dtype}; give bool (True takes part) or numbers to add"
        )
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    lead = None
    if not _fits(query, key, value, enable_gqa):
        query, key, value, attn_mask, lead = _four_axes(query, key, value, attn_mask, enable_gqa)
    # The generator is asked only if something is drawn.
    seed = int(torch.randint(2**63 - 1, ())) if dropout_p > 0.0 else 0
    rest = (attn_mask, scale, is_causal, dropout_p, seed)
    if torch.compiler.is_compiling():
        output = torch.ops.qkv.attention(query, key, value, *rest)[0]
    else:
        bias, options = _options(*rest)
        output = attention(query, key, value, bias=bias, **options)
    return output if lead is None else output.reshape(*lead, *output.shape[-2:])


def _fits(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> bool:
    """Whether all have four axes and nothing is to be broadcast."""
    q, k, v = query.shape, key.shape, value.shape
    return (
        len(q) == len(k) == len(v) == 4
        and q[0] == k[0] == v[0]
        and k[1] == v[1]
        and (enable_gqa or q[1] == k[1])
    )


def _four_axes(query, key, value, mask, enable_gqa):
    """Leading axes broadcast, and made two: views wherever strides allow it."""
    arrays = (query, key, value)
    if min(x.dim() for x in arrays) < (3 if enable_gqa else 2):
        raise ValueError(
            f"query, key, value: shapes {[list(x.shape) for x in arrays]}; at least (L, E) is needed, "
            "and (H, L, E) with enable_gqa"
        )
    own = 3 if enable_gqa else 2  # axes that are not broadcast
    batch = torch.broadcast_shapes(*(x.shape[:-own] for x in arrays))
    query, key, value = (x.expand(*batch, *x.shape[-own:]) for x in arrays)
    lead = query.shape[:-2]
    if mask is not None and len(lead) > 2 and mask.dim() > 3:
        mask = mask.expand(*lead[:-1], *mask.shape[-3:]).flatten(0, -4)

    def four(x: Tensor) -> Tensor:
        while x.dim() < 4:
            x = x.unsqueeze(0)
        return x.flatten(0, -4) if x.dim() > 4 else x

    return four(query), four(key), four(value), mask, lead


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    bias: Tensor | None = None,
    sinks: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """qkv.attention, differentiable once by query, key, value, bias and sinks.

    Shapes and options are those of qkv.attention, but for out, return_lse and return_weights.

    >>> import torch, qkv.torch
    >>> q = torch.eye(2, dtype=torch.float64, requires_grad=True)
    >>> qkv.torch.attention(q, q, q, causal=True, softcap=5.0).sum().backward()
    >>> q.grad.shape
    torch.Size([2, 2])
    """
    if torch.is_grad_enabled() and (
        query.requires_grad
        or key.requires_grad
        or value.requires_grad
        or (bias is not None and bias.requires_grad)
        or (sinks is not None and sinks.requires_grad)
    ):
        return _Attention.apply(query, key, value, bias, sinks, options)
    return _attention(query, key, value, bias, sinks, options, lse=False)


def _attention(query, key, value, bias, sinks, options, lse):
    """Where gradients are not recorded: of no tensor, or by whoever calls."""
    return _qkv.attention(query, key, value, return_lse=lse, bias=bias, sinks=sinks, **options)


def _backward(grad, query, key, value, bias, sinks, output, lse, options, of_bias):
    own = {"bias": bias, "sinks": sinks, "bias_gradient": of_bias}
    found = _qkv.attention_backward(grad, query, key, value, output, lse, **own, **options)
    gradients = [found.q, found.k, found.v, None, None]
    if of_bias:
        gradients[3] = found.bias.to(bias.dtype)
    if sinks is not None:
        gradients[4] = found.sinks.to(sinks.dtype)
    return gradients


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, bias, sinks, options):
        output, lse = _attention(query, key, value, bias, sinks, options, lse=True)
        ctx.save_for_backward(query, key, value, bias, sinks, output, lse)
        ctx.options = options
        return output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        found = _backward(grad, *ctx.saved_tensors, ctx.options, ctx.needs_input_grad[3])
        return (*found, None)


def _options(mask, scale, is_causal, dropout_p, seed) -> tuple[Tensor | None, dict[str, Any]]:
    """A float mask, which may have a gradient, and all else."""
    options: dict[str, Any] = {}
    if mask is not None and mask.dtype == torch.bool:
        options["keep"] = mask
        mask = None
    if scale is not None:
        options["scale"] = float(scale)
    if is_causal:
        options["causal"] = "top-left"
    if dropout_p > 0.0:
        options.update(dropout=float(dropout_p), seed=seed)
    return mask, options


@torch.library.custom_op("qkv::attention", mutates_args=(), device_types="cpu")
def _op(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scale: float | None,
    is_causal: bool,
    dropout_p: float,
    seed: int,
) -> tuple[Tensor, Tensor]:
    bias, options = _options(mask, scale, is_causal, dropout_p, seed)
    with torch.no_grad():
        return _attention(query, key, value, bias, None, options, lse=True)


@_op.register_fake
def _op_shapes(query, key, value, mask, scale, is_causal, dropout_p, seed):
    rows = query.shape[:-1]
    return query.new_empty(*rows, value.shape[-1]), query.new_empty(rows, dtype=torch.float64)


@torch.library.custom_op("qkv::attention_backward", mutates_args=(), device_types="cpu")
def _backward_op(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    output: Tensor,
    lse: Tensor,
    scale: float | None,
    is_causal: bool,
    dropout_p: float,
    seed: int,
    of_mask: bool,
) -> list[Tensor]:
    bias, options = _options(mask, scale, is_causal, dropout_p, seed)
    with torch.no_grad():
        found = _backward(grad, query, key, value, bias, None, output, lse, options, of_mask)
    return [x for x in found if x is not None]


@_backward_op.register_fake
def _backward_op_shapes(
    grad, query, key, value, mask, output, lse, scale, is_causal, dropout_p, seed, of_mask
):
    arrays = [query, key, value] + ([mask] if of_mask else [])
    return [x.new_empty(x.shape) for x in arrays]


def _keep(ctx, inputs, output):
    query, key, value, mask, *ctx.arguments = inputs
    ctx.save_for_backward(query, key, value, mask, *output)
    ctx.set_materialize_grads(False)


def _op_backward(ctx, grad, _):
    if grad is None:
        return (None,) * 8
    query, key, value, mask, output, lse = ctx.saved_tensors
    of_mask = ctx.needs_input_grad[3]
    found = torch.ops.qkv.attention_backward(
        grad, query, key, value, mask, output, lse, *ctx.arguments, of_mask
    )
    return (*found, *([] if of_mask else [None]), None, None, None, None)


_op.register_autograd(_op_backward, setup_context=_keep)


def _routed(query, key, value, *arguments, **keywords):
    """qkv for plain CPU tensors of dtypes that it knows; torch for all others."""
    known = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    if (
        query.device.type == "cpu"
        and query.dtype in known
        and query.layout == torch.strided
        and not query.is_nested
    ):
        return scaled_dot_product_attention(query, key, value, *arguments, **keywords)
    return _theirs(query, key, value, *arguments, **keywords)


@contextlib.contextmanager
def patch() -> Iterator[None]:
    """Within it, torch.nn.functional.scaled_dot_product_attention on CPU tensors is qkv's.

    Modules that call it by that name are rerouted, torch's own among them; a name that was imported
    from there before stays torch's. When the block ends, however it ends, all is as it was.
    """
    before = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = _routed
    try:
        yield
    finally:
        F.scaled_dot_product_attention = before
