"""qkv.transformers without a model: what the attention function takes, refuses and hands on."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import qkv
import qkv.transformers
from qkv.transformers import _forward


def arrays(queries=5):
    torch.manual_seed(4)
    return [torch.randn(2, heads, length, 8) for heads, length in ((4, queries), (2, 7), (2, 7))]


class Module(torch.nn.Module):
    layer_idx = 3


def test_unknown_tensors_are_refused():
    with pytest.raises(TypeError, match="relative"):
        _forward(Module(), *arrays(), None, relative=torch.zeros(1))
    # What is no tensor, or says nothing about attention, is not.
    found, weights = _forward(Module(), *arrays(), None, position_ids=torch.zeros(1), use_cache=True)
    assert found.shape == (2, 5, 4, 8) and weights is None


def test_masks_scale_softcap_and_sinks_are_handed_on():
    q, k, v = arrays()
    keep = torch.rand(2, 1, 5, 7) < 0.6
    keep[..., 0] = True
    sinks = torch.randn(4)
    found, _ = _forward(Module(), q, k, v, keep, scaling=0.3, softcap=2.0, s_aux=sinks)
    right = qkv.attention(q, k, v, keep=keep, scale=0.3, softcap=2.0, sinks=sinks)
    assert torch.equal(found.transpose(1, 2), right)
    bias = torch.randn(2, 1, 5, 7)
    found, _ = _forward(Module(), q, k, v, bias, position_bias=bias)
    assert torch.equal(found.transpose(1, 2), qkv.attention(q, k, v, bias=bias + bias))


def test_without_a_mask_several_queries_are_causal_and_one_is_not():
    for queries, causal in [(5, "top-left"), (1, None)]:
        q, k, v = arrays(queries)
        found, _ = _forward(Module(), q, k, v, None)
        assert torch.equal(found.transpose(1, 2), qkv.attention(q, k, v, causal=causal))
    q, k, v = arrays()
    found, _ = _forward(Module(), q, k, v, None, is_causal=False)
    assert torch.equal(found.transpose(1, 2), qkv.attention(q, k, v))


def test_b028_weights_are_recorded_of_the_layers_asked_for():
    q, k, v = arrays()
    with qkv.transformers.record(layers=[3]) as trace:
        _forward(Module(), q, k, v, None)
        other = Module()
        other.layer_idx = 4
        _forward(other, q, k, v, None)
    _forward(Module(), q, k, v, None)
    assert list(trace) == [3] and len(trace[3]) == 1
    right = qkv.attention(q, k, v, causal="top-left", return_weights=True)[1]
    assert torch.equal(trace[3][0].weights, right)


def test_both_functions_are_registered():
    from transformers import AttentionInterface, AttentionMaskInterface

    qkv.transformers.register("qkv-of-a-test")
    assert "qkv-of-a-test" in AttentionInterface() and "qkv-of-a-test" in AttentionMaskInterface()
