"""Real models and weights from elsewhere, and what their heads look at."""

import json
import shutil
import struct
from pathlib import Path

import numpy
import pytest

import qkv

DATA = Path(__file__).parents[3] / "crates" / "qkv-models" / "tests" / "data"
needs_models = pytest.mark.skipif(
    not DATA.exists(), reason="the package's folder alone, without the repository"
)
TEXT = "The cat sat on the mat because it was tired."


@pytest.fixture
def folder(tmp_path):
    def made(name):
        for file in ("config.json", "model.safetensors"):
            shutil.copy(DATA / name / file, tmp_path / file)
        shutil.copy(DATA / "tokenizer.json", tmp_path / "tokenizer.json")
        return tmp_path

    return made


def arrays(path):
    """Of a safetensors file, read by hand."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header.pop("__metadata__", None)
    dtypes = {"F32": "<f4", "I64": "<i8", "BOOL": "?", "F64": "<f8", "I32": "<i4", "U8": "u1"}
    return {
        name: numpy.frombuffer(
            content[8 + size + entry["data_offsets"][0] : 8 + size + entry["data_offsets"][1]],
            dtypes[entry["dtype"]],
        ).reshape(entry["shape"])
        for name, entry in header.items()
    }


@needs_models
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_a_model(folder, name, tmp_path):
    """Its weights are those of its queries and keys, and what z is made with."""
    trace = qkv.trace(folder(name), TEXT)
    assert "".join(trace.tokens[0]).replace("##", "").lower().count("cat") == 1
    layer, head = trace.layers[-1], trace.heads[-1]
    weights = trace.weights(layer, head)
    keys = len(trace.tokens[0])
    assert weights.dtype == numpy.float32 and weights.shape == (keys, keys)
    assert numpy.abs(weights.sum(1) - 1).max() < 1e-5
    kv_head = head * len({h * 2 // len(trace.heads) for h in trace.heads}) // len(trace.heads)
    kv_head = kv_head if name == "llama" else head
    v, z = trace.get("v", layer, kv_head), trace.get("z", layer, head)
    # Values are below 10, weights sum to one: f32 sums of as many products as there are keys.
    bound = (keys + 4) * 2.0**-23 * numpy.abs(v).max()
    assert numpy.abs(weights.astype(float) @ v - z).max() <= bound
    scores = trace.get("scores", layer, head).astype(float)
    shares = numpy.exp(scores - scores.max(1, keepdims=True))
    assert numpy.abs(shares / shares.sum(1, keepdims=True) - weights).max() < 1e-5
    assert (weights == qkv.trace(str(tmp_path), [TEXT]).weights(layer, head)).all()
    assert trace.conventions and "layers" in repr(trace)
    if name != "bert":
        assert (numpy.triu(weights, 1) == 0).all()
        share = trace.next_tokens(most=3)
        assert len(share) == 3 and share[0][1] >= share[1][1] > 0


@needs_models
def test_generation_and_files(folder, tmp_path):
    path = tmp_path / "trace.safetensors"
    trace = qkv.trace(folder("gpt2"), TEXT, generate=3)
    assert len(trace.tokens[0]) == len(qkv.trace(tmp_path, TEXT).tokens[0]) + 3
    trace.save(path, keep="q,weights")
    again = qkv.trace(path)
    assert again.tokens == trace.tokens and again.model == trace.model
    assert (again.weights(1, 2) == trace.weights(1, 2)).all()
    assert (arrays(path)["blocks.1.attn.hook_pattern"][0, 2] == trace.weights(1, 2)).all()
    with pytest.raises(ValueError, match="not kept"):
        again.get("v", 0, 0)
    with pytest.raises(ValueError, match="there is no model"):
        again.next_tokens()


def test_weights_from_elsewhere():
    first = numpy.array([[1.0, 0.0, 0.0], [0.2, 0.8, 0.0], [0.3, 0.6, 0.1]])
    second = numpy.array([[1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.1, 0.1, 0.8]])
    layers = tuple(numpy.stack([first, second])[None] for _ in range(2))
    trace = qkv.trace_weights(layers, ["it", " <b>", " animal"], kv_heads=1)
    assert (trace.layers, trace.heads) == ([0, 1], [0, 1])
    assert (trace.weights(1, 1) == second.astype(numpy.float32)).all()
    best = trace.heads_by("previous")[0]
    assert (best["layer"], best["head"]) == (0, 1) or best["head"] == 1
    assert best["mean"] == pytest.approx((0.9 + 0.1) / 2, abs=1e-6)
    (pair,) = trace.heads_by("animal>it", most=1)
    assert pair["head"] == 0 and pair["mean"] == pytest.approx(0.3, abs=1e-6)
    page = trace.html()
    assert "<b>" not in page.split("</style>", 1)[1].split("<script", 1)[0]
    assert trace._repr_html_().startswith("<iframe")
    assert trace.svg(0, 1).lstrip().startswith("<svg") and "animal" in trace.text(layer=0, head=0)
    chinese = qkv.trace_weights(layers, lang="zh").text()
    assert any("\u4e00" <= letter <= "\u9fff" for letter in chinese)


def test_refusals(tmp_path):
    weights = numpy.array([[1.0, 0.0], [0.5, 0.5]])
    endless = numpy.lib.stride_tricks.as_strided(weights, (1, 8, 1 << 25, 1 << 25), (0, 0, 0, 0))
    refused = [
        (lambda: qkv.trace_weights(weights, ["one"]), ValueError, "tokens|token"),
        (lambda: qkv.trace_weights([]), ValueError, "no layer"),
        (lambda: qkv.trace_weights([weights, weights[:1]]), ValueError, "all alike"),
        (lambda: qkv.trace_weights(weights > 0), TypeError, "bool"),
        (lambda: qkv.trace_weights(endless), MemoryError, "GiB"),
        (lambda: qkv.trace_weights(numpy.ma.masked_less(weights, 0.1)), TypeError, "masked"),
        (lambda: qkv.trace_weights(numpy.zeros((1, 2, 0, 0))), ValueError, "."),
        (lambda: qkv.trace_weights(weights).weights(0, 1), ValueError, "head 1"),
        (lambda: qkv.trace_weights(weights).weights(3, 0), ValueError, "layer 3"),
        (lambda: qkv.trace_weights(weights).html(entry=2), ValueError, "entry"),
        (lambda: qkv.trace_weights(weights).get("w", 0, 0), ValueError, "kind"),
        (
            lambda: qkv.trace_weights(weights).get("k", 0, 0),
            ValueError,
            r"^k: not kept of layer 0; name it in keep= of Trace\.save when the trace is made$",
        ),
        (
            lambda: qkv.trace_weights([numpy.stack([weights, weights])], kv_heads=1).get("k", 0, 1),
            ValueError,
            "^key and value head 1 is not there; there are only 0$",
        ),
        (lambda: qkv.trace_weights(weights).heads_by("next"), ValueError, "statistic"),
        (lambda: qkv.trace(tmp_path / "absent", "text"), ValueError, "absent"),
        (lambda: qkv.trace(tmp_path, "text"), ValueError, "config.json"),
        (lambda: qkv.trace(tmp_path), TypeError, "text"),
        (lambda: qkv.trace(tmp_path, 3), TypeError, "text"),
        (lambda: qkv.trace(tmp_path, "a", pad="up"), ValueError, "pad"),
    ]
    for call, error, words in refused:
        with pytest.raises(error, match=words):
            call()
