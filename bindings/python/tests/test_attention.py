"""qkv.attention against attention written with NumPy, option by option."""

import numpy
import pytest
from conftest import bound, by_hand, numbers

import qkv

B, H, HKV, LQ, LK, D, DV = 2, 6, 3, 5, 7, 4, 3


@pytest.fixture(params=[numpy.float16, numpy.float32, numpy.float64])
def arrays(request, rng):
    dtype = request.param
    return (
        numbers(rng, B, H, LQ, D, dtype=dtype),
        numbers(rng, B, HKV, LK, D, dtype=dtype),
        numbers(rng, B, HKV, LK, DV, dtype=dtype),
    )


def close(found, expected, arrays):
    assert found.shape == expected.shape
    assert numpy.isfinite(expected).all()
    most = bound(*arrays, dtype=arrays[0].dtype)
    assert numpy.abs(found - expected).max(initial=0) <= most


def test_plain(arrays):
    output, lse, weights = qkv.attention(*arrays, return_lse=True, return_weights=True)
    expected = by_hand(*arrays)
    assert output.dtype == weights.dtype == arrays[0].dtype
    assert lse.dtype == numpy.float64
    for found, right in zip((output, lse, weights), expected):
        close(found, right, arrays)


def offset_of(causal):
    return {"top-left": 0, "bottom-right": LK - LQ}.get(causal, causal)


@pytest.mark.parametrize("causal", ["top-left", "bottom-right", 1, -1])
def test_causal(arrays, causal):
    i, j = numpy.ogrid[:LQ, :LK]
    kept = j <= i + offset_of(causal)
    close(qkv.attention(*arrays, causal=causal), by_hand(*arrays, kept=kept)[0], arrays)


def test_causal_true_needs_as_many_keys(arrays):
    q, k, v = arrays
    with pytest.raises(ValueError, match="top-left.*bottom-right"):
        qkv.attention(q, k, v, causal=True)
    own = qkv.attention(q, k[:, :, :LQ], v[:, :, :LQ], causal=True)
    kept = numpy.tril(numpy.ones((LQ, LQ), bool))
    close(own, by_hand(q, k[:, :, :LQ], v[:, :, :LQ], kept=kept)[0], arrays)
    assert (qkv.attention(*arrays, causal=False) == qkv.attention(*arrays)).all()


@pytest.mark.parametrize("window", [(2, 0), (1, 1), (None, 0), (0, None), (None, None)])
def test_window(arrays, window):
    i, j = numpy.ogrid[:LQ, :LK]
    back, forward = (LK if side is None else side for side in window)
    distance = j - (i + LK - LQ)
    kept = (-back <= distance) & (distance <= forward)
    found = qkv.attention(*arrays, window=window, causal=None)
    close(found, by_hand(*arrays, kept=kept)[0], arrays)


def test_masks(arrays, rng):
    keep = rng.random((H, LQ, LK)) < 0.7
    drop = rng.random((B, 1, 1, LK)) < 0.3
    kept = keep & ~drop
    found = qkv.attention(*arrays, keep=keep, drop=drop)
    close(found, by_hand(*arrays, kept=kept)[0], arrays)


def test_bias_scale_softcap_sinks(arrays, rng):
    bias = numbers(rng, B, 1, LQ, LK, dtype=arrays[0].dtype)
    sinks = numbers(rng, H)
    found, weights = qkv.attention(
        *arrays, bias=bias, scale=-0.3, softcap=1.5, sinks=sinks, return_weights=True
    )
    expected = by_hand(*arrays, bias=bias, scale=-0.3, softcap=1.5, sinks=sinks)
    close(found, expected[0], arrays)
    close(weights, expected[2], arrays)
    assert (weights.sum(-1) < 1).all()


def test_a_bias_of_another_dtype(arrays, rng):
    bias = numbers(rng, LQ, LK, dtype=numpy.float16)
    close(qkv.attention(*arrays, bias=bias), by_hand(*arrays, bias=bias)[0], arrays)


def test_alibi(arrays):
    i, j = numpy.ogrid[:LQ, :LK]
    slopes = numpy.arange(H) / 8
    bias = -slopes[:, None, None] * abs(i + LK - LQ - j)
    close(qkv.attention(*arrays, alibi=slopes), by_hand(*arrays, bias=bias)[0], arrays)
    paper = qkv.attention(*arrays, alibi=True)
    from_list = [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    assert (paper == qkv.attention(*arrays, alibi=from_list)).all()


def test_lengths_and_documents(arrays):
    j = numpy.arange(LK)
    kept = (j < numpy.array([LK, 3])[:, None])[:, None, None]
    found = qkv.attention(*arrays, kv_lengths=numpy.array([LK, 3]))
    close(found, by_hand(*arrays, kept=kept)[0], arrays)
    of_query = numpy.array([0, 0, 1, 1, 1])
    of_key = numpy.array([0, 0, 0, 1, 1, 1, 1])
    found = qkv.attention(*arrays, documents=([2, 3], [3, 4]))
    close(found, by_hand(*arrays, kept=of_query[:, None] == of_key)[0], arrays)
    q, k, v = arrays
    same = qkv.attention(q, k[:, :, :LQ], v[:, :, :LQ], documents=[2, 3])
    kept = of_query[:, None] == of_query
    close(same, by_hand(q, k[:, :, :LQ], v[:, :, :LQ], kept=kept)[0], arrays)


def test_dropout_goes_by_the_seed(arrays):
    first = qkv.attention(*arrays, dropout=0.5, seed=3)
    assert (first == qkv.attention(*arrays, dropout=0.5, seed=3)).all()
    assert (first != qkv.attention(*arrays, dropout=0.5, seed=4)).any()
    with pytest.raises(ValueError, match="seed"):
        qkv.attention(*arrays, dropout=0.5)
    assert (qkv.attention(*arrays, dropout=0.0) == qkv.attention(*arrays)).all()


def test_a_query_without_a_key(arrays):
    keep = numpy.ones((LQ, LK), bool)
    keep[2] = False
    output, lse, weights = qkv.attention(
        *arrays, keep=keep, return_lse=True, return_weights=True
    )
    assert (output[:, :, 2] == 0).all() and (weights[:, :, 2] == 0).all()
    assert (lse[:, :, 2] == -numpy.inf).all() and numpy.isfinite(lse[:, :, 1]).all()


def test_fewer_axes(arrays):
    q, k, v = arrays
    whole = qkv.attention(q, k, v)
    three = qkv.attention(q[1], k[1], v[1], return_lse=True, return_weights=True)
    assert [a.shape for a in three] == [(H, LQ, DV), (H, LQ), (H, LQ, LK)]
    assert (three[0] == whole[1]).all()
    two = qkv.attention(q[1, 4], k[1, 2], v[1, 2], return_lse=True, return_weights=True)
    assert [a.shape for a in two] == [(LQ, DV), (LQ,), (LQ, LK)]
    assert (two[0] == whole[1, 4]).all()


def test_layout(arrays):
    moved = [a.transpose(0, 2, 1, 3).copy() for a in arrays]
    whole = qkv.attention(*arrays, return_lse=True)
    found = qkv.attention(*moved, layout="blhd", return_lse=True)
    assert (found[0].transpose(0, 2, 1, 3) == whole[0]).all()
    assert (found[1] == whole[1]).all()
    three = qkv.attention(*(a[0] for a in moved), layout="blhd")
    assert (three == found[0][0]).all()
    two = qkv.attention(*(a[0, :, 0] for a in moved), layout="blhd")
    assert (two == found[0][0, :, 0]).all()
    with pytest.raises(ValueError, match="bhld"):
        qkv.attention(*arrays, layout="bldh")


def test_nothing():
    q, k = numpy.zeros((1, 2, 0, 4)), numpy.zeros((1, 2, 3, 4))
    assert qkv.attention(q, k, k).shape == (1, 2, 0, 4)
    output, lse = qkv.attention(k, q, q, return_lse=True)
    assert (output == 0).all() and (lse == -numpy.inf).all()


REFUSED = [
    (dict(causal="left"), ValueError, "top-left"),
    (dict(causal=1.5), TypeError, "int"),
    (dict(window=3), TypeError, "back, forward"),
    (dict(window=(-1, 0)), ValueError, "at least 0"),
    (dict(scale="1"), TypeError, "number"),
    (dict(scale=numpy.nan), ValueError, "finite"),
    (dict(softcap=0.0), ValueError, "softcap"),
    (dict(keep=numpy.ones((LQ, LK))), TypeError, "bias="),
    (dict(keep=numpy.ones((LK, LQ), bool)), ValueError, "transposed"),
    (dict(bias=numpy.ones((LQ, LK), bool)), TypeError, "keep="),
    (dict(kv_lengths=[1]), ValueError, "kv_lengths"),
    (dict(kv_lengths=[1, LK + 1]), ValueError, "kv_lengths"),
    (dict(kv_lengths=[1.0, 2.0]), TypeError, "ints"),
    (dict(documents=[2, 2]), ValueError, "documents"),
    (dict(sinks=[1.0]), ValueError, "sinks"),
    (dict(alibi=[[1.0]]), TypeError, "number"),
    (dict(dropout=1.0, seed=1), ValueError, "dropout"),
    (dict(dropout=0.5, seed=1.5), TypeError, "seed"),
]


@pytest.mark.parametrize("options, error, words", REFUSED)
def test_refused_options(arrays, options, error, words):
    with pytest.raises(error, match=words):
        qkv.attention(*arrays, **options)


def test_refused_arrays(arrays):
    q, k, v = arrays
    with pytest.raises(ValueError, match="head_dim"):
        qkv.attention(q, v, v)
    with pytest.raises(ValueError, match="5 axes"):
        qkv.attention(q[None], k, v)
    with pytest.raises(ValueError, match="2 axes"):
        qkv.attention(q[0, 0, 0], k, v)
    with pytest.raises(TypeError, match="int64.*astype"):
        qkv.attention(q.astype(numpy.int64), k, v)
    with pytest.raises(TypeError, match="complex"):
        qkv.attention(q.astype(complex), k, v)
    with pytest.raises(TypeError, match="list"):
        qkv.attention(q.tolist(), k, v)
    with pytest.raises(TypeError, match="float64"):
        qkv.attention(q.astype(numpy.float32), k.astype(numpy.float64), v)
    with pytest.raises(TypeError, match="keyword"):
        qkv.attention(q, k, v, mask=None)


def test_b030_causal_holds_with_weights_and_with_padding(rng):
    """2 batch entries, 3 tokens, 8 columns: with and without weights, with and without padding."""
    q, k, v = (numbers(rng, 2, 1, 3, 8) for _ in range(3))
    padding = numpy.array([[True, True, True], [True, True, False]])[:, None, None, :]
    for keep in (None, padding):
        alone = qkv.attention(q, k, v, causal=True, keep=keep)
        output, weights = qkv.attention(q, k, v, causal=True, keep=keep, return_weights=True)
        assert numpy.array_equal(output, alone)
        above = ~numpy.tri(3, dtype=bool) | (False if keep is None else ~keep)
        assert (weights[numpy.broadcast_to(above, weights.shape)] == 0).all()
        assert (weights[~numpy.broadcast_to(above, weights.shape)] > 0).all()


def test_b034_weights_are_made_only_if_asked_for(rng):
    """8 heads of 32 columns, 300 tokens: 2.88 MB of weights, which the result does not need."""
    q, k, v = (numbers(rng, 1, 8, 300, 32, dtype=numpy.float32) for _ in range(3))
    alone = qkv.attention(q, k, v)
    assert isinstance(alone, numpy.ndarray)
    output, weights = qkv.attention(q, k, v, return_weights=True)
    assert weights.nbytes == 2_880_000
    assert numpy.array_equal(output, alone)
