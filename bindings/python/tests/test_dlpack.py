"""Arrays of any other library, which come by DLPack's capsules."""

import gc
import sys

import numpy
import pytest
from conftest import numbers

import qkv


class Versioned:
    """An array that says nothing but how to hand over its memory."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)


class Older(Versioned):
    """The protocol before it had versions."""

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


@pytest.mark.parametrize("wrap", [Versioned, Older])
@pytest.mark.parametrize("dtype", [numpy.float16, numpy.float32, numpy.float64])
def test_capsules(rng, wrap, dtype):
    arrays = [numbers(rng, *shape, dtype=dtype) for shape in [(2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6)]]
    whole = qkv.attention(*arrays)
    found = qkv.attention(*map(wrap, arrays))
    assert type(found) is numpy.ndarray and found.dtype == dtype and (found == whole).all()
    for other in [
        [a.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3) for a in arrays],
        [a[:, :, ::-1].copy()[:, :, ::-1] for a in arrays],
    ]:
        assert (qkv.attention(*map(wrap, other)) == whole).all()
    mask = numpy.arange(35).reshape(5, 7) % 3 > 0
    kept = qkv.attention(*map(wrap, arrays), keep=wrap(mask))
    assert (kept == qkv.attention(*arrays, keep=mask)).all()


@pytest.mark.parametrize("wrap", [Versioned, Older])
def test_memory_is_given_back(rng, wrap):
    q = numbers(rng, 3, 4)
    before = sys.getrefcount(q)
    for _ in range(10):
        qkv.attention(wrap(q), wrap(q), wrap(q))
    gc.collect()
    assert sys.getrefcount(q) == before


def test_out_by_capsule(rng):
    q = numbers(rng, 3, 4)
    # The older protocol cannot say whether it may be written.
    with pytest.raises(ValueError, match="read-only"):
        qkv.attention(q, q, q, out=Older(numpy.zeros((3, 4))))
    if numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0":
        return  # NumPy itself speaks only that
    out = Versioned(numpy.zeros((3, 4)))
    assert qkv.attention(q, q, q, out=out) is out
    assert (out.array == qkv.attention(q, q, q)).all()
    fixed = numpy.zeros((3, 4))
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        qkv.attention(q, q, q, out=Versioned(fixed))


def test_refused(rng):
    q = numbers(rng, 3, 4)
    with pytest.raises(TypeError, match="int64"):
        qkv.attention(Versioned(q.astype(numpy.int64)), q, q)
    with pytest.raises(TypeError, match="complex128"):
        qkv.attention(Versioned(q.astype(complex)), q, q)
    with pytest.raises(ValueError, match="5 axes"):
        qkv.attention(Versioned(q[None, None, None]), q, q)
    raw = numpy.zeros(3 * 4 * 8 + 1, numpy.uint8)[1:].view(float).reshape(3, 4)
    try:
        found = qkv.attention(Versioned(raw), q, q)
    except (ValueError, BufferError):
        return
    assert (found == qkv.attention(raw.copy(), q, q)).all()
