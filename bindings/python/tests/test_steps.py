"""Steps, explanations and rotary positions."""

import numpy
import pytest
from conftest import bound, by_hand, numbers

import qkv


@pytest.fixture
def arrays(rng):
    return numbers(rng, 2, 4, 3, 5), numbers(rng, 2, 2, 4, 5), numbers(rng, 2, 2, 4, 6)


def test_steps(arrays):
    steps = qkv.steps(*arrays, causal="bottom-right", softcap=2.0)
    i, j = numpy.ogrid[:3, :4]
    output, lse, weights = by_hand(*arrays, kept=j <= i + 1, softcap=2.0)
    for name, right in [("output", output), ("lse", lse), ("weights", weights)]:
        assert numpy.abs(steps[name] - right).max() <= bound(*arrays)
    assert list(steps) == (
        "q k v scores scaled capped masked max exp sum weights output lse".split()
    )
    assert (numpy.isinf(steps["masked"]) == (j > i + 1)).all()
    assert all(step.dtype == numpy.float64 for step in steps.values())
    moved = qkv.steps(*(a.transpose(0, 2, 1, 3) for a in arrays), layout="blhd")
    assert (moved["scores"] == steps["scores"]).all()


def test_explanation(arrays):
    q, k, v = (a[:1] for a in arrays)
    keep = numpy.ones((3, 4), bool)
    keep[1, 2] = False
    explanation = qkv.explain(q, k, v, keep=keep, rows=1, digits=3)
    before = str(explanation)
    keep[:] = False  # it keeps a copy of its own
    assert str(explanation) == before == explanation.text()
    weight = f"{qkv.steps(q, k, v)['scores'][0, 0, 1, 0]:.3f}".replace("-", "−")
    for rendered in (before, explanation.markdown(), explanation.html()):
        assert weight in rendered or weight.replace("−", "-") in rendered
    assert "\\documentclass" in explanation.latex()
    assert explanation.html().startswith("<!DOCTYPE html>") or "<html" in explanation.html()
    shown = explanation._repr_html_()
    assert shown.startswith("<iframe") and shown.count('"') < 20
    assert "Explanation" in repr(explanation)
    assert (explanation.steps["q"] == q).all()


def test_languages_tokens_contrast(arrays):
    q, k, v = (a[0, 0] for a in arrays)
    given = dict(tokens=["a", "b", "c", "d"])
    assert "得分" in str(qkv.explain(q, k, v, lang="zh", **given))
    plain, contrast = (str(qkv.explain(q, k, v, contrast=on)) for on in (False, True))
    assert len(contrast) > len(plain)
    with pytest.raises(ValueError, match="tokens"):
        qkv.explain(q, k, v, tokens=["a"])
    with pytest.raises(ValueError, match="lang"):
        qkv.explain(q, k, v, lang="de")
    with pytest.raises(ValueError, match="rows"):
        qkv.explain(q, k, v, rows=[0, 3])
    with pytest.raises(ValueError, match="digits"):
        qkv.explain(q, k, v, digits=99)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float64])
def test_rotary(rng, interleaved, dtype):
    x = numbers(rng, 2, 3, 4, 8, dtype=dtype)
    places = numpy.array([[0, 1, 2, 3], [5, 5, 0, 7]])
    found = qkv.rotary(x, places, base=100.0, interleaved=interleaved, dim=6)
    angle = places[:, None, :, None] * 100.0 ** (-numpy.arange(3) / 3)
    one, other = (slice(0, 6, 2), slice(1, 6, 2)) if interleaved else (slice(0, 3), slice(3, 6))
    right = x.astype(float)
    a, b = right[..., one].copy(), right[..., other].copy()
    right[..., one] = a * numpy.cos(angle) - b * numpy.sin(angle)
    right[..., other] = a * numpy.sin(angle) + b * numpy.cos(angle)
    assert found.dtype == dtype
    # Rounded once to the dtype; angles of at most 7 are off by a few units of float64.
    room = numpy.finfo(dtype).eps * numpy.abs(right) + 1e-14 * numpy.abs(x).max()
    assert (numpy.abs(found - right) <= room).all()
    moved = qkv.rotary(
        x.transpose(0, 2, 1, 3), places, base=100.0, interleaved=interleaved, dim=6, layout="blhd"
    )
    assert (moved.transpose(0, 2, 1, 3) == found).all()


def test_rotary_by_tables(rng):
    x = numbers(rng, 2, 3, 4, 8, dtype=numpy.float32)
    angle = numpy.arange(4)[:, None] * 10000.0 ** (-numpy.arange(4) / 4)
    cos, sin = numpy.cos(angle), numpy.sin(angle)
    # The engine's sines and NumPy's may differ in their last bit.
    room = 2 * numpy.finfo(numpy.float32).eps * numpy.abs(x).max()
    for tables in [(cos, sin), (cos[None].repeat(2, 0), sin[None].repeat(2, 0))]:
        found = qkv.rotary(x, cos=tables[0], sin=tables[1])
        assert numpy.abs(found - qkv.rotary(x)).max() <= room
    each = numpy.stack([cos, sin])
    found = qkv.rotary(x, cos=each, sin=each[::-1])
    assert numpy.abs(found[0] - qkv.rotary(x)[0]).max() <= room
    assert numpy.abs(found[1] - qkv.rotary(x)[1]).max() > room
    for wrong in [dict(cos=cos), dict(cos=cos[:3], sin=sin[:3]), dict(positions=1, cos=cos, sin=sin)]:
        with pytest.raises(ValueError, match="cos"):
            qkv.rotary(x, **wrong)


def test_rotary_positions_and_scaling(rng):
    x = numbers(rng, 1, 1, 3, 4)
    assert (qkv.rotary(x) == qkv.rotary(x, [0, 1, 2])).all()
    assert (qkv.rotary(x, 5) == qkv.rotary(x, [5, 6, 7])).all()
    assert (qkv.rotary(x, [0, 2, 4], scaling=2.0) != qkv.rotary(x, [0, 2, 4])).any()
    halved = qkv.rotary(x, [0, 2, 4], scaling={"rope_type": "linear", "factor": 2.0})
    assert numpy.abs(halved - qkv.rotary(x)).max() < 1e-15
    with pytest.raises(ValueError, match="longrope"):
        qkv.rotary(x, scaling={"rope_type": "longrope"})
    with pytest.raises(ValueError, match="positions"):
        qkv.rotary(x, [0, 1])
    with pytest.raises(TypeError, match="positions"):
        qkv.rotary(x, 1.5)
