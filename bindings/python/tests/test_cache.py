"""qkv.Cache: a step of decoding is the row of a full run, to the bit."""

import numpy
import pytest
from conftest import numbers

import qkv

B, H, HKV, L, D, DV = 2, 4, 2, 9, 4, 3


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_decoding_is_the_full_run(rng, dtype):
    q = numbers(rng, B, H, L, D, dtype=dtype)
    k, v = numbers(rng, B, HKV, L, D, dtype=dtype), numbers(rng, B, HKV, L, DV, dtype=dtype)
    whole, lse = qkv.attention(q, k, v, causal=True, return_lse=True)
    cache = qkv.Cache(B, HKV, D, DV, dtype=numpy.dtype(dtype))
    first = 4
    cache.append(k[:, :, :first], v[:, :, :first])
    found = cache.attention(q[:, :, :first], causal="bottom-right")
    assert (found == whole[:, :, :first]).all()
    for i in range(first, L):
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
        row, row_lse = cache.attention(q[:, :, i : i + 1], return_lse=True)
        assert (row == whole[:, :, i : i + 1]).all()
        assert (row_lse == lse[:, :, i : i + 1]).all()
    assert len(cache) == L
    assert (cache.k == k).all() and (cache.v == v).all()
    cache.truncate(first)
    assert len(cache) == first
    assert (cache.attention(q[:, :, first - 1 : first]) == whole[:, :, first - 1 : first]).all()


def test_layout_and_reserve(rng):
    k, v = numbers(rng, B, L, HKV, D), numbers(rng, B, L, HKV, DV)
    q = numbers(rng, B, L, H, D)
    cache = qkv.Cache(B, HKV, D, DV, dtype=numpy.float64)
    cache.reserve(100)
    cache.append(k, v, layout="blhd")
    found, weights = cache.attention(q, layout="blhd", causal=True, return_weights=True)
    assert (found == qkv.attention(q, k, v, layout="blhd", causal=True)).all()
    assert weights.shape == (B, H, L, L)
    assert "9 tokens" in repr(cache)


def test_refused(rng):
    cache = qkv.Cache(B, HKV, D, DV)
    k, v = (numbers(rng, B, HKV, 1, n, dtype=numpy.float32) for n in (D, DV))
    with pytest.raises(ValueError, match="cache"):
        cache.append(k, k)
    assert len(cache) == 0
    with pytest.raises(TypeError, match="float64"):
        cache.append(k.astype(float), v)
    cache.append(k, v)
    with pytest.raises(TypeError, match="float64"):
        cache.attention(numbers(rng, B, H, 1, D))
    with pytest.raises(TypeError, match="'mask'"):
        cache.attention(k, mask=None)
    with pytest.raises(TypeError, match="int8"):
        qkv.Cache(1, 1, 1, dtype=numpy.int8)
    with pytest.raises(ValueError, match="batch"):
        qkv.Cache(-1, 1, 1)
