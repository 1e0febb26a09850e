"""What the tests share: inputs of unequal sizes, and attention once more, written with NumPy."""

import numpy
import pytest


def numbers(rng, *shape, dtype=numpy.float64):
    """Of both signs, with as many digits as the dtype has."""
    return rng.standard_normal(shape).astype(dtype)


@pytest.fixture
def rng():
    return numpy.random.default_rng(7)


def by_hand(q, k, v, scale=None, kept=None, bias=None, sinks=None, softcap=None):
    """Output, lse and weights in float64: [batch, heads, length, width] with heads repeated."""
    q, k, v = (numpy.asarray(a, dtype=numpy.float64) for a in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = numpy.repeat(k, group, axis=1), numpy.repeat(v, group, axis=1)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * numpy.einsum("bhid,bhjd->bhij", q, k)
    if softcap is not None:
        scores = softcap * numpy.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if kept is not None:
        scores = numpy.where(kept, scores, -numpy.inf)
    largest = scores.max(axis=-1, keepdims=True)
    safe = numpy.where(numpy.isfinite(largest), largest, 0.0)
    exp = numpy.exp(scores - safe)
    total = exp.sum(axis=-1, keepdims=True)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        lse = (safe + numpy.log(total))[..., 0]
        if sinks is not None:
            total = total + numpy.exp(numpy.asarray(sinks)[None, :, None, None] - safe)
        weights = numpy.where(total > 0, exp / total, 0.0)
    return numpy.einsum("bhij,bhjd->bhid", weights, v), lse, weights


def bound(q, k, v, dtype=numpy.float64):
    """How far a result in a dtype may be from the exact one.

    A score is a sum of head_dim products and off by (head_dim + 3)·u·largest; that shifts a weight by
    the same share twice over (itself and the sum), the sums over keys add (keys + 8)·u, and all of it
    multiplies a value at most. by_hand itself computes in float64, for which the same holds.
    """
    unit = numpy.finfo(dtype).eps / 2
    of_hand = numpy.finfo(numpy.float64).eps / 2
    d, keys = q.shape[-1], k.shape[-2]
    largest = d * numpy.abs(q).max(initial=0) * numpy.abs(k).max(initial=0) + 1
    share = 2 * (d + 3) * largest + 2 * (keys + 8)
    return (unit + of_hand) * share * max(numpy.abs(v).max(initial=0), 1.0)
