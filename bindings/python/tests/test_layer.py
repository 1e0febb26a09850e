"""The layer around attention, and checks of somebody else's numbers."""

import json

import numpy
import pytest
from conftest import by_hand, numbers

import qkv


@pytest.fixture
def weights(rng):
    return dict(
        wq=numbers(rng, 6, 4 * 3),
        wk=numbers(rng, 6, 2 * 3),
        wv=numbers(rng, 6, 2 * 5),
        wo=numbers(rng, 4 * 5, 7),
        heads=4,
        kv_heads=2,
        bq=numbers(rng, 12),
        bk=numbers(rng, 6),
        bv=numbers(rng, 10),
        bo=numbers(rng, 7),
    )


def split(x, heads):
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(0, 2, 1, 3)


def test_layer(rng, weights):
    x, context = numbers(rng, 2, 3, 6), numbers(rng, 2, 4, 6)
    w = weights
    q = split(x @ w["wq"] + w["bq"], 4)
    k = split(context @ w["wk"] + w["bk"], 2)
    v = split(context @ w["wv"] + w["bv"], 2)
    i, j = numpy.ogrid[:3, :4]
    heads = by_hand(q, k, v, kept=j <= i + 1)[0]
    right = heads.transpose(0, 2, 1, 3).reshape(2, 3, 20) @ w["wo"] + w["bo"]
    layer = qkv.MultiHeadAttention(**weights)
    found = layer(x, context, causal="bottom-right")
    # Sums of up to 20 products of numbers below 40, in float64 on both sides.
    assert found.shape == right.shape and numpy.abs(found - right).max() < 1e-12
    steps = layer.steps(x, context, causal="bottom-right")
    assert (steps["projected"] == found).all() and steps["q"].shape == (2, 4, 3, 3)
    single = layer(x[0].astype(numpy.float32))
    assert single.dtype == numpy.float32 and single.shape == (3, 7)
    text = layer.explain(x[:1], tokens=["a", "b", "c"], rows=0, causal=True, contrast=True).text()
    assert "W_Q" in text
    assert "4 query heads of 3" in repr(layer)


def test_refused_layers(rng, weights):
    with pytest.raises(ValueError, match="wo"):
        qkv.MultiHeadAttention(**dict(weights, wo=None))
    with pytest.raises(ValueError):
        qkv.MultiHeadAttention(**weights)(numbers(rng, 3, 5))
    with pytest.raises(ValueError, match="width"):
        qkv.MultiHeadAttention(**weights)(numbers(rng, 3))
    with pytest.raises(ValueError, match="in_proj_weight|q_proj_weight"):
        qkv.MultiHeadAttention.from_torch({}, 2)


def test_check_names_the_mistake(rng):
    q, k, v = numbers(rng, 1, 4, 5, 8), numbers(rng, 1, 2, 5, 8), numbers(rng, 1, 2, 5, 6)
    output = qkv.attention(q, k, v)
    report = qkv.check(q, k, v, output=output)
    assert report.verdict == "equal" and report.agrees and report.causes == []
    assert report.max_abs_error <= report.bound
    coarse = qkv.check(q, k, v, output=output.astype(numpy.float16))
    assert coarse.agrees
    wrong = qkv.check(q, k, v, output=qkv.attention(q, k, v, scale=1.0))
    assert wrong.verdict == "different" and wrong.causes[0] == "scale"
    assert "scale" in str(wrong) and "scale" in repr(wrong)
    assert json.loads(wrong.json()) == wrong.to_dict()
    assert wrong.to_dict()["verdict"] == "different"
    assert str(qkv.check(q, k, v, output=output, lang="zh")) != str(report)
    moved = [a.transpose(0, 2, 1, 3) for a in (q, k, v, output)]
    assert qkv.check(*moved[:3], output=moved[3], layout="blhd").agrees
    weights = qkv.attention(q, k, v, causal=True, return_weights=True)[1]
    assert qkv.check(q, k, v, weights=weights, causal=True).agrees
    assert not qkv.check(q, k, v, weights=weights).agrees
    with pytest.raises(ValueError, match="output"):
        qkv.check(q, k, v)
    with pytest.raises(ValueError, match="shape"):
        qkv.check(q, k, v, output=output[:, :, :, :1])
