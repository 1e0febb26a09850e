"""Gradients against differences of attention in float64, and what they promise."""

import numpy
import pytest
from conftest import numbers

import qkv

B, H, HKV, LQ, LK, D, DV = 2, 4, 2, 3, 5, 4, 3

OPTIONS = [
    dict(),
    dict(causal="bottom-right", scale=-0.4),
    dict(window=(1, 1), softcap=2.0),
    dict(kv_lengths=[5, 2], alibi=True),
    dict(dropout=0.4, seed=9),
    dict(documents=([1, 2], [2, 3])),
]


@pytest.fixture
def arrays(rng):
    return numbers(rng, B, H, LQ, D), numbers(rng, B, HKV, LK, D), numbers(rng, B, HKV, LK, DV)


def difference(loss, x, step=2**-17):
    """Central differences. Their error is step² of the third derivative, here below 1e-9·1e2, and
    rounding of the loss over the step, 2^-52·2^17·the loss, below 1e-9."""
    found = numpy.zeros_like(x)
    for at in numpy.ndindex(x.shape):
        kept = x[at]
        x[at] = kept + step
        more = loss()
        x[at] = kept - step
        found[at] = (more - loss()) / (2 * step)
        x[at] = kept
    return found


@pytest.mark.parametrize("options", OPTIONS)
def test_against_differences(arrays, rng, options):
    q, k, v = arrays
    bias, sinks = numbers(rng, 1, H, LQ, LK), numbers(rng, H)
    grad = numbers(rng, B, H, LQ, DV)
    given = dict(options, bias=bias, sinks=sinks)
    output, lse = qkv.attention(q, k, v, return_lse=True, **given)
    found = qkv.attention_backward(grad, q, k, v, output, lse, **given)

    def loss():
        return float((qkv.attention(q, k, v, **given) * grad).sum())

    for name, x in [("q", q), ("k", k), ("v", v), ("bias", bias), ("sinks", sinks)]:
        right = difference(loss, x)
        gradient = getattr(found, name)
        assert gradient.shape == x.shape
        assert numpy.abs(gradient - right).max() < 1e-7, name


@pytest.mark.parametrize("dtype", [numpy.float16, numpy.float32])
def test_dtypes_and_layout(arrays, dtype):
    q, k, v = (a.astype(dtype) for a in arrays)
    output, lse = qkv.attention(q, k, v, return_lse=True)
    found = qkv.attention_backward(output, q, k, v, output, lse)
    assert found.q.dtype == found.k.dtype == found.v.dtype == dtype
    assert found.bias is None and found.sinks is None
    moved = [a.transpose(0, 2, 1, 3) for a in (output, q, k, v, output)]
    other = qkv.attention_backward(*moved, lse, layout="blhd")
    for name in "qkv":
        assert (getattr(other, name).transpose(0, 2, 1, 3) == getattr(found, name)).all()
    two = qkv.attention_backward(
        output[0, 3], q[0, 3], k[0, 1], v[0, 1], output[0, 3], lse[0, 3]
    )
    assert (two.q == found.q[0, 3]).all() and two.k.shape == k[0, 1].shape


def test_no_bias_gradient(arrays, rng):
    bias = numbers(rng, LQ, LK)
    output, lse = qkv.attention(*arrays, bias=bias, return_lse=True)
    given = (output, *arrays, output, lse)
    assert qkv.attention_backward(*given, bias=bias, bias_gradient=False).bias is None
    assert qkv.attention_backward(*given, bias=bias).bias.shape == bias.shape


def test_refused(arrays):
    q, k, v = arrays
    output, lse = qkv.attention(q, k, v, return_lse=True)
    with pytest.raises(ValueError, match="lse"):
        qkv.attention_backward(output, q, k, v, output, lse[:1])
    with pytest.raises(ValueError, match="grad_output"):
        qkv.attention_backward(output[:, :, :1], q, k, v, output, lse)
    with pytest.raises(TypeError, match="float32"):
        qkv.attention_backward(output.astype(numpy.float32), q, k, v, output, lse)
    with pytest.raises(TypeError, match="'mask'.*keep"):
        qkv.attention_backward(output, q, k, v, output, lse, mask=None)


def test_merge(arrays, rng):
    q, k, v = arrays
    sinks = numbers(rng, H)
    whole, lse = qkv.attention(q, k, v, sinks=sinks, return_lse=True)
    cuts = [slice(0, 2), slice(2, 2), slice(2, LK)]
    parts = [qkv.attention(q, k[:, :, at], v[:, :, at], return_lse=True) for at in cuts]
    found = qkv.merge(parts, sinks=sinks)
    # Either is off by a few roundings a key.
    assert numpy.abs(found[0] - whole).max() < 64 * numpy.finfo(float).eps
    assert numpy.abs(found[1] - lse).max() < 64 * numpy.finfo(float).eps
    moved = [(output.transpose(0, 2, 1, 3), lse) for output, lse in parts]
    other = qkv.merge(moved, sinks=sinks, layout="blhd")
    assert (other[0].transpose(0, 2, 1, 3) == found[0]).all()
    with pytest.raises(ValueError, match="empty"):
        qkv.merge([])
    with pytest.raises(ValueError, match="lse"):
        qkv.merge([(parts[0][0], lse[:1])])
