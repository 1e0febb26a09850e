"""Whose memory is read and written: strides, byte order, alignment, aliasing, no copies."""

import os
import subprocess
import sys
import threading

import numpy
import pytest
from conftest import numbers

import qkv


@pytest.fixture
def arrays(rng):
    return numbers(rng, 2, 4, 5, 8), numbers(rng, 2, 2, 7, 8), numbers(rng, 2, 2, 7, 6)


def strided(a, rng):
    """The same numbers with other strides: steps, reversals, exchanged axes, read-only."""
    wide = numbers(rng, *(2 * n + 1 for n in a.shape), dtype=a.dtype)
    stepped = wide[tuple(slice(1, None, 2) for _ in a.shape)]
    stepped[...] = a
    yield stepped
    yield numpy.flip(numpy.ascontiguousarray(numpy.flip(a)))
    yield numpy.asfortranarray(a)
    yield a.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3)
    kept = a.copy()
    kept.flags.writeable = False
    yield kept


def test_b070_strides_change_nothing(arrays, rng):
    """B070: the innermost axis need not be contiguous."""
    whole = qkv.attention(*arrays)
    for at, array in enumerate(arrays):
        for other in strided(array, rng):
            given = [other if i == at else a for i, a in enumerate(arrays)]
            assert (qkv.attention(*given) == whole).all(), (at, other.strides)


def test_broadcast_arrays(arrays):
    q, k, v = arrays
    one = numpy.broadcast_to(k[:1], k.shape)
    assert one.strides[0] == 0
    assert (qkv.attention(q, one, v) == qkv.attention(q, one.copy(), v)).all()
    kept = numpy.broadcast_to(numpy.arange(7) < 4, (2, 4, 5, 7))
    assert (qkv.attention(*arrays, keep=kept) == qkv.attention(*arrays, keep=kept.copy())).all()


@pytest.mark.parametrize("order", ["<", ">"])
def test_byte_order(arrays, order):
    other = [a.astype(a.dtype.newbyteorder(order)) for a in arrays]
    assert (qkv.attention(*other) == qkv.attention(*arrays)).all()
    bias = numpy.arange(35.0).reshape(5, 7).astype(numpy.dtype("f4").newbyteorder(order))
    native = bias.astype(numpy.float32)
    assert (qkv.attention(*arrays, bias=bias) == qkv.attention(*arrays, bias=native)).all()


def misaligned(a):
    raw = numpy.zeros(a.nbytes + 1, numpy.uint8)
    there = raw[1:].view(a.dtype).reshape(a.shape)
    there[...] = a
    assert not there.flags.aligned
    return there


def test_misaligned_arrays_are_read_right(arrays):
    assert (qkv.attention(*map(misaligned, arrays)) == qkv.attention(*arrays)).all()


def test_strides_between_elements(arrays):
    """A field of a record lies at strides that are no multiple of its size."""
    records = numpy.zeros(arrays[0].shape, dtype=[("tag", "i1"), ("x", "f8")])
    records["x"] = arrays[0]
    assert (qkv.attention(records["x"], *arrays[1:]) == qkv.attention(*arrays)).all()


def test_a_bool_of_another_byte_is_refused(arrays):
    odd = numpy.full((5, 7), 2, numpy.uint8).view(bool)
    for mask in (odd, odd.T.copy().T, numpy.broadcast_to(odd[0], (5, 7))):
        with pytest.raises(ValueError, match="bytes"):
            qkv.attention(*arrays, keep=mask)
    hidden = numpy.zeros((10, 14), numpy.uint8)
    hidden[1::2, 1::2] = 7
    assert (qkv.attention(*arrays, drop=hidden[::2, ::2].view(bool)) == qkv.attention(*arrays)).all()


def test_out(arrays):
    whole = qkv.attention(*arrays)
    out = numpy.full(whole.shape, numpy.nan)
    assert qkv.attention(*arrays, out=out) is out
    assert (out == whole).all()
    room = numpy.full((2, 4, 10, 13), numpy.nan)
    part = room[:, :, ::2, 1::2]
    output, lse = qkv.attention(*arrays, out=part, return_lse=True)
    assert output is part and (part == whole).all()
    assert numpy.isnan(room[:, :, 1::2]).all() and numpy.isnan(room[:, :, :, ::2]).all()
    moved = numpy.zeros((2, 5, 4, 6))
    qkv.attention(*(a.transpose(0, 2, 1, 3) for a in arrays), layout="blhd", out=moved)
    assert (moved.transpose(0, 2, 1, 3) == whole).all()


def test_refused_out(arrays):
    whole = qkv.attention(*arrays)
    q, k, v = arrays
    fixed = whole.copy()
    fixed.flags.writeable = False
    twice = numpy.lib.stride_tricks.as_strided(numpy.zeros(99), whole.shape, (8, 8, 8, 8))
    refused = [
        (whole[:, :, :4], ValueError, "shape"),
        (whole.astype(numpy.float32), TypeError, "float32"),
        (fixed, ValueError, "read-only"),
        (misaligned(whole), ValueError, "misaligned"),
        (whole.astype(">f8"), ValueError, "foreign-endian"),
        (twice, ValueError, "twice"),
    ]
    for out, error, words in refused:
        with pytest.raises(error, match=words):
            qkv.attention(q, k, v, out=out)
    same = numpy.zeros((2, 4, 5, 8))
    with pytest.raises(ValueError, match="shares with q"):
        qkv.attention(same, k, numbers(numpy.random.default_rng(1), 2, 2, 7, 8), out=same)


def test_results_outlive_everything(arrays):
    output, lse = qkv.attention(*(a.copy() for a in arrays), return_lse=True)
    view = output[1:, ::2]
    copy = view.copy()
    del output, lse
    for _ in range(50):
        qkv.attention(*arrays)
    assert (view == copy).all()
    view += 1.0
    assert (view == copy + 1).all()


def test_arrays_are_read_where_they_lie(arrays, rng):
    """By address: the first element that the engine reads is the array's own."""
    for array in arrays:
        for other in (array, *strided(array, rng)):
            assert qkv.address(other) == other.ctypes.data, other.strides
        assert qkv.address(array[:, :0]) == array.ctypes.data
    keep = numpy.zeros((4, 7), bool)
    assert qkv.address(keep[1:]) == keep.ctypes.data + 7
    assert qkv.address(misaligned(arrays[0])) is None
    assert qkv.address(arrays[0].astype(">f8")) is None
    with pytest.raises(TypeError, match="array: dtype int64"):
        qkv.address(numpy.arange(3))


GIBIBYTE = """
import resource, numpy, qkv
k = numpy.ones((1, 8, 1 << 18, 64), numpy.float32)  # 512 MiB each
v = k + 1
q = numpy.ones((1, 8, 1, 64), numpy.float32)
qkv.attention(q, k[:, :, :4096], v[:, :, :4096])  # threads and tables are there now
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
output = qkv.attention(q, k, v)
print(peak() - before, abs(output - 2).max() < 1e-4)
"""


def test_a_gibibyte_is_not_copied():
    """The process grows by its output and the states of its blocks; the keys are 1 GiB."""
    ended = subprocess.run(
        [sys.executable, "-c", GIBIBYTE], capture_output=True, text=True, timeout=300
    )
    grown, right = ended.stdout.split()
    assert right == "True", ended
    # What decoding keeps a chunk of 2,048 keys is below 1 KiB, and threads have stacks.
    assert int(grown) <= 8 * (1 << 18) // 2048 * 1024 + (2 << 20), grown


def test_other_threads_run_meanwhile(rng):
    """While one thread computes, this one gets the interpreter."""
    q = numbers(rng, 1, 1, 3000, 64, dtype=numpy.float32)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (qkv.attention(q, q, q), done.set()))
    steps = 0
    thread.start()
    while not done.is_set():
        steps += 1
    thread.join()
    assert steps > 0


LONG = {
    "attention": "q = numpy.ones((1, 8, 20000, 64)); call = lambda: qkv.attention(q, q, q)",
    "rotary": "q = numpy.broadcast_to(numpy.float32(1), (1, 8, 1 << 19, 64)); call = lambda: qkv.rotary(q)",
    "text": "q = numpy.ones((1000, 64)); call = qkv.explain(q, q, q, contrast=True).text",
}


@pytest.mark.parametrize("what", LONG)
def test_ctrl_c(what):
    """A long call ends at the signal; what it began ends in the background."""
    program = f"""
import os, signal, sys, threading, numpy, qkv
# Who runs the tests in the background may have told all of them to ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
{LONG[what]}
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.2, interrupt).start()
# Whether it was the call itself that ended, or what comes after it.
events = []
sys.setprofile(lambda frame, event, function: events.append(event))
try:
    call()
    print("finished")
except KeyboardInterrupt:
    sys.setprofile(None)
    print("interrupted" if "c_exception" in events else "too late", flush=True)
    os._exit(0)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert ended.stdout.strip() == "interrupted", ended.stderr


FORK = """
import os, signal, numpy, qkv
q = numpy.ones((1, 8, 512, 64), numpy.float32)
whole, lse = qkv.attention(q, q, q, return_lse=True)  # the pool is there now
child = os.fork()
if child == 0:
    signal.alarm(60)  # ends it if it waits for threads that it does not have
    same = (qkv.attention(q, q, q) == whole).all()
    qkv.attention_backward(q, q, q, q, whole, lse)
    os._exit(0 if same else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_computes():
    ended = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=300)
    assert ended.stdout.strip() == "0", ended
