"""bfloat16, which NumPy knows by the package ml_dtypes."""

import numpy
import pytest
from conftest import by_hand, numbers

import qkv

ml_dtypes = pytest.importorskip("ml_dtypes")


def test_bfloat16(rng):
    arrays = [
        numbers(rng, *shape).astype(ml_dtypes.bfloat16)
        for shape in [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)]
    ]
    output, weights = qkv.attention(*arrays, return_weights=True)
    assert output.dtype == weights.dtype == ml_dtypes.bfloat16
    exact = by_hand(*arrays)
    # A rounding to 8 bits is off by 2^-8 at most. The result is rounded; where the processor multiplies
    # bfloat16, so are the weights, with their sum. float32 adds less than 2^-14.
    spread = by_hand(*arrays[:2], numpy.abs(arrays[2].astype(float)))[0]
    room = 2**-8 * (abs(exact[0]) + 2 * spread) + 2**-14
    assert (numpy.abs(output.astype(float) - exact[0]) <= room).all()
    room = 2**-8 * 3 * exact[2] + 2**-14
    assert (numpy.abs(weights.astype(float) - exact[2]) <= room).all()
    reversed_keys = [arrays[0], arrays[1][:, :, ::-1], arrays[2][:, :, ::-1]]
    copies = [a.copy() for a in reversed_keys]
    assert (qkv.attention(*reversed_keys) == qkv.attention(*copies)).all()
    out = numpy.zeros(output.shape, ml_dtypes.bfloat16)
    qkv.attention(*arrays, out=out)
    assert (out == output).all()


def test_no_other_dtype_of_two_bytes(rng):
    q = numbers(rng, 2, 4)
    with pytest.raises(TypeError, match="float8"):
        qkv.attention(*[q.astype(ml_dtypes.float8_e5m2)] * 3)
    with pytest.raises(TypeError, match="int16"):
        qkv.attention(*[q.astype(numpy.int16)] * 3)


def test_b113_bytes(rng):
    """B113: the bytes 80 3F C0 3F are 1 and 1.5."""
    v = numpy.frombuffer(bytes([0x80, 0x3F, 0xC0, 0x3F]), ml_dtypes.bfloat16).reshape(1, 2)
    q = numpy.zeros((1, 2), ml_dtypes.bfloat16)
    assert qkv.attention(q, q, v).astype(float).tolist() == [[1.0, 1.5]]


def test_b096_decoding(rng):
    """B096: a token at a time is the full run, to the bit, in bfloat16 too."""
    q, k, v = (numbers(rng, 1, 2, 9, 8).astype(ml_dtypes.bfloat16) for _ in range(3))
    whole = qkv.attention(q, k, v, causal=True)
    cache = qkv.Cache(1, 2, 8, dtype="bfloat16")
    for i in range(9):
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
        assert (cache.attention(q[:, :, i : i + 1]) == whole[:, :, i : i + 1]).all()
