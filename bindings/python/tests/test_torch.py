"""torch: its tensors in and out, and qkv.torch against its own function."""

import numpy
import pytest

torch = pytest.importorskip("torch")

import qkv
import qkv.torch
from qkv.torch import scaled_dot_product_attention as ours

F = torch.nn.functional
theirs = F.scaled_dot_product_attention
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def arrays(dtype=torch.float64, q=(2, 4, 5, 8), k=(2, 4, 7, 8), v=(2, 4, 7, 6), grad=False):
    torch.manual_seed(5)
    made = [torch.randn(shape, dtype=torch.float64).to(dtype) for shape in (q, k, v)]
    return [x.requires_grad_(grad) for x in made]


def close(found, right, dtype=None):
    """Sums of at most 16 numbers below 4, rounded once: a few units of the dtype, and of what torch
    computed in."""
    dtype = dtype or right.dtype
    assert found.shape == right.shape and found.dtype == right.dtype
    room = 64 * torch.finfo(dtype).eps
    assert (found.double() - right.double()).abs().max().item() <= room * max(
        1.0, right.double().abs().max().item()
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_tensors_in_and_out(dtype):
    q, k, v = arrays(dtype)
    output, lse, weights = qkv.attention(q, k, v, return_lse=True, return_weights=True)
    assert output.dtype == weights.dtype == dtype and lse.dtype == torch.float64
    close(output, theirs(q, k, v))
    moved = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    assert torch.equal(qkv.attention(*moved, layout="blhd").transpose(1, 2), output)
    strided = [x.transpose(1, 2) for x in moved]
    assert not strided[0].is_contiguous()
    assert torch.equal(qkv.attention(*strided), output)
    out = torch.full((2, 5, 4, 6), float("nan"), dtype=dtype).transpose(1, 2)
    assert qkv.attention(q, k, v, out=out) is out and torch.equal(out, output)
    if dtype != torch.bfloat16:
        same = qkv.attention(*(x.numpy() for x in (q, k, v)))
        assert (same == output.numpy()).all()


def test_tensors_without_memory():
    """Those that only stand for one, and those whose memory was given up."""
    freed = torch.ones(3, 4)
    freed.untyped_storage().resize_(0)
    with pytest.raises(TypeError, match="memory is not there"):
        qkv.attention(freed, freed, freed)
    with pytest.raises(TypeError, match="memory is not there"):
        torch.func.functionalize(lambda x: qkv.attention(x, x, x))(torch.ones(3, 4))
    q = torch.ones(3, 4)
    with pytest.raises(TypeError, match="sinks: it requires a gradient"):
        qkv.attention(q, q, q, sinks=torch.ones(1, requires_grad=True))


def test_memory_is_shared():
    q, k, v = arrays()
    output = qkv.attention(q, k, v)
    copy = output.clone()
    address = output.data_ptr()
    del q, k, v
    output.add_(1)
    assert output.data_ptr() == address and torch.equal(output, copy + 1)
    assert output.is_contiguous() and output._version == 1


def test_odd_tensors():
    q, k, v = arrays()
    negative = torch.complex(q, -q).conj().imag
    assert negative.is_neg() and torch.equal(negative, q)
    assert torch.equal(qkv.attention(negative, k, v), qkv.attention(q, k, v))
    one = k[:1].expand(2, -1, -1, -1)
    assert torch.equal(qkv.attention(q, one, v), qkv.attention(q, one.contiguous(), v))
    with pytest.raises(TypeError, match="gradient"):
        qkv.attention(q.clone().requires_grad_(), k, v)
    with torch.no_grad():
        qkv.attention(q.clone().requires_grad_(), k, v)
    parameter = torch.nn.Parameter(q)
    assert torch.equal(qkv.attention(parameter.detach(), k, v), qkv.attention(q, k, v))
    with pytest.raises(TypeError):
        qkv.attention(q.to("meta"), k, v)
    with pytest.raises(TypeError, match="int64"):
        qkv.attention(q.long(), k, v)


MASKS = [
    None,
    lambda: torch.rand(5, 7) < 0.7,
    lambda: torch.rand(2, 1, 5, 7) < 0.7,
    lambda: torch.rand(4, 1, 7) < 0.7,
    lambda: torch.randn(5, 7, dtype=torch.float64),
    lambda: torch.randn(2, 4, 5, 7, dtype=torch.float64).masked_fill(
        torch.rand(2, 4, 5, 7) < 0.2, -torch.inf
    ),
    lambda: torch.zeros(5, 7, dtype=torch.bool),
    lambda: torch.full((5, 7), -torch.inf, dtype=torch.float64),
    lambda: torch.full((5, 7), torch.finfo(torch.float64).min, dtype=torch.float64),
]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scale", [None, 0.3])
def test_masks(mask, scale):
    q, k, v = arrays()
    mask = mask and mask()
    close(ours(q, k, v, mask, scale=scale), theirs(q, k, v, mask, scale=scale))


@pytest.mark.parametrize("shape", [(5, 7), (7, 5), (1, 7), (6, 6)])
def test_causal(shape):
    queries, keys = shape
    q, k, v = arrays(q=(2, 4, queries, 8), k=(2, 4, keys, 8), v=(2, 4, keys, 6))
    close(ours(q, k, v, is_causal=True), theirs(q, k, v, is_causal=True))
    with pytest.raises(ValueError, match="attn_mask"):
        ours(q, k, v, torch.ones(shape, dtype=torch.bool), is_causal=True)
    with pytest.raises(TypeError, match="attn_mask"):
        ours(q, k, v, torch.ones(shape, dtype=torch.int64))


@pytest.mark.parametrize("shape", [(5, 7), (6, 6)])
def test_causal_biases_of_torch(shape):
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    queries, keys = shape
    q, k, v = arrays(q=(2, 4, queries, 8), k=(2, 4, keys, 8), v=(2, 4, keys, 6))
    for bias, offset in [(causal_upper_left, 0), (causal_lower_right, keys - queries)]:
        mask = torch.ones(shape, dtype=torch.bool).tril(offset)
        close(ours(q, k, v, bias(*shape)), theirs(q, k, v, mask))


SHAPES = [
    ((5, 8), (7, 8), (7, 6)),
    ((3, 5, 8), (3, 7, 8), (3, 7, 6)),
    ((2, 3, 5, 8), (2, 1, 7, 8), (2, 1, 7, 6)),
    ((2, 3, 5, 8), (1, 3, 7, 8), (3, 7, 6)),
    ((2, 1, 5, 8), (1, 3, 7, 8), (3, 7, 6)),
    ((2, 2, 3, 5, 8), (2, 2, 3, 7, 8), (1, 2, 3, 7, 6)),
]


@pytest.mark.parametrize("shapes", SHAPES)
def test_leading_axes(shapes):
    q, k, v = arrays(q=shapes[0], k=shapes[1], v=shapes[2])
    close(ours(q, k, v), theirs(q, k, v))
    mask = torch.rand(*torch.broadcast_shapes(*(s[:-2] for s in shapes)), 5, 7) < 0.7
    close(ours(q, k, v, mask), theirs(q, k, v, mask))
    mask = torch.rand(5, 7) < 0.7
    close(ours(q, k, v, mask), theirs(q, k, v, mask))


def test_grouped_heads():
    q, k, v = arrays(q=(2, 6, 5, 8), k=(2, 3, 7, 8), v=(2, 3, 7, 6))
    close(ours(q, k, v, enable_gqa=True), theirs(q, k, v, enable_gqa=True))
    close(ours(q[0], k[0], v[0], enable_gqa=True), theirs(q[0], k[0], v[0], enable_gqa=True))
    with pytest.raises(RuntimeError):
        ours(q, k, v)


@pytest.mark.parametrize("mask", MASKS[:6])
@pytest.mark.parametrize("gqa", [False, True])
def test_gradients_are_torchs(mask, gqa):
    heads = 2 if gqa else 4
    mask = mask and mask()
    found = []
    for function in (ours, theirs):
        given = arrays(k=(2, heads, 7, 8), v=(2, heads, 7, 6), grad=True)
        own = mask
        if mask is not None and mask.is_floating_point():
            own = mask.clone().requires_grad_()
        output = function(*given, own, enable_gqa=gqa)
        (output * torch.arange(output.numel(), dtype=output.dtype).reshape(output.shape).sin()).sum().backward()
        leaves = given + ([own] if own is not None and own.requires_grad else [])
        found.append([x.grad for x in leaves])
    for mine, other in zip(*found):
        close(mine, other)


def test_gradcheck():
    q, k, v = arrays(q=(1, 2, 3, 4), k=(1, 2, 4, 4), v=(1, 2, 4, 3), grad=True)
    bias = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def call(*given):
        torch.manual_seed(1)
        return ours(*given, dropout_p=0.3, scale=0.7)

    assert torch.autograd.gradcheck(call, (q, k, v, bias))
    assert torch.autograd.gradcheck(lambda *x: ours(*x, is_causal=True), (q, k, v))
    assert torch.autograd.gradcheck(lambda q: ours(q, k, v), (q,))
    with pytest.raises(RuntimeError):  # once
        torch.autograd.gradgradcheck(lambda q: ours(q, k, v), (q,))


def test_dropout():
    q, k, _ = arrays(q=(1, 1, 400, 8), k=(1, 1, 400, 8))
    v = torch.eye(400, dtype=torch.float64)[None, None]
    torch.manual_seed(3)
    weights = ours(q, k, v, dropout_p=0.25)
    torch.manual_seed(3)
    assert torch.equal(weights, ours(q, k, v, dropout_p=0.25))
    assert not torch.equal(weights, ours(q, k, v, dropout_p=0.25))
    plain = ours(q, k, v)
    kept = weights != 0
    close(weights[kept], plain[kept] / 0.75)
    # A share of 160,000 draws: six standard deviations.
    assert abs(kept.double().mean().item() - 0.75) < 6 * (0.25 * 0.75 / 160_000) ** 0.5


def test_patch():
    before = F.scaled_dot_product_attention
    q, k, v = arrays()
    leak = v.clone()
    leak[:, :, 3] = torch.nan
    mask = torch.arange(7) != 3
    with qkv.torch.patch():
        inside = F.scaled_dot_product_attention(q, k, leak, mask)
        assert torch.isfinite(inside).all()  # only qkv leaves masked values alone
        with qkv.torch.patch():
            F.scaled_dot_product_attention(q, k, v)
        assert torch.isfinite(F.scaled_dot_product_attention(q, k, leak, mask)).all()
        meta = F.scaled_dot_product_attention(*(x.to("meta") for x in (q, k, v)))
        assert meta.device.type == "meta"
    assert F.scaled_dot_product_attention is before
    with pytest.raises(KeyError):
        with qkv.torch.patch():
            raise KeyError
    assert F.scaled_dot_product_attention is before


def test_patch_leaves_the_rest_to_torch():
    nested = torch.nested.nested_tensor(
        [torch.randn(4, 5, 8), torch.randn(4, 3, 8)], layout=torch.strided
    )
    with qkv.torch.patch():
        found = F.scaled_dot_product_attention(nested, nested, nested)
        assert found.is_nested
        for x in (nested[0], nested[1]):
            assert F.scaled_dot_product_attention(x, x, x).shape == x.shape
        whole = torch.ones(1, 1, 2, 2, dtype=torch.complex64)
        with pytest.raises(Exception) as ours_says:
            F.scaled_dot_product_attention(whole, whole, whole)
    with pytest.raises(type(ours_says.value)) as theirs_says:
        theirs(whole, whole, whole)
    assert str(ours_says.value) == str(theirs_says.value)


def test_the_generator_is_asked_only_for_dropout():
    q, k, v = arrays()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    ours(q, k, v)
    assert torch.equal(torch.get_rng_state(), before)
    ours(q, k, v, dropout_p=0.5)
    assert not torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_multihead_attention_under_patch(padding, mask):
    torch.manual_seed(2)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    x = torch.randn(3, 5, 8, dtype=torch.float64)
    options = dict(
        key_padding_mask=torch.arange(5).repeat(3, 1) > 2 if padding else None,
        attn_mask=torch.ones(5, 5, dtype=torch.bool).triu(1) if mask else None,
        need_weights=False,
    )
    right = layer(x, x, x, **options)[0]
    with qkv.torch.patch():
        found = layer(x, x, x, **options)[0]
    close(found, right)


def test_compile():
    torch._dynamo.reset()
    function = torch.compile(
        lambda q, k, v, m: ours(q * 2, k, v, m).sin(), backend="aot_eager", fullgraph=True
    )
    for mask in (None, torch.randn(5, 7, dtype=torch.float64)):
        given = arrays(grad=True)
        again = arrays(grad=True)
        own = mask.clone().requires_grad_() if mask is not None else None
        other = mask.clone().requires_grad_() if mask is not None else None
        found, right = function(*given, own), theirs(again[0] * 2, *again[1:], other).sin()
        close(found, right)
        found.sum().backward()
        right.sum().backward()
        for a, b in zip(given, again):
            close(a.grad, b.grad)
        if mask is not None:
            close(own.grad, other.grad)


def test_opcheck():
    q, k, v = arrays(grad=True)
    mask = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)
    torch.library.opcheck(torch.ops.qkv.attention, (q, k, v, mask, None, False, 0.0, 0))
    torch.library.opcheck(torch.ops.qkv.attention, (q, k, v, None, 0.5, True, 0.0, 0))


def test_autocast():
    q, k, v = arrays(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = ours(q, k, v)
    assert found.dtype == torch.bfloat16
    close(found, theirs(*(x.bfloat16() for x in (q, k, v))))


def test_every_option_has_gradients():
    q, k, v = arrays(q=(1, 4, 3, 4), k=(1, 2, 5, 4), v=(1, 2, 5, 3), grad=True)
    bias = torch.randn(4, 3, 5, dtype=torch.float64, requires_grad=True)
    sinks = torch.randn(4, dtype=torch.float64, requires_grad=True)

    def call(q, k, v, bias, sinks):
        options = dict(causal="bottom-right", window=(2, None), softcap=3.0)
        return qkv.torch.attention(q, k, v, bias=bias, sinks=sinks, **options)

    assert torch.autograd.gradcheck(call, (q, k, v, bias, sinks))
    assert torch.autograd.gradcheck(lambda s: call(*(x.detach() for x in (q, k, v, bias)), s), (sinks,))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("widths", [{}, dict(kdim=6, vdim=5)])
def test_layer_of_torch(bias, widths):
    torch.manual_seed(4)
    theirs = torch.nn.MultiheadAttention(
        8, 2, bias=bias, batch_first=True, dtype=torch.float64, **widths
    )
    if bias:
        torch.nn.init.normal_(theirs.in_proj_bias)
        torch.nn.init.normal_(theirs.out_proj.bias)
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    if widths:
        key, value = torch.randn(2, 4, 6).double(), torch.randn(2, 4, 5).double()
        layer = qkv.MultiHeadAttention.from_torch(theirs.state_dict(), 2)
        assert "2 query heads of 4" in repr(layer)
        return
    y = torch.randn(2, 4, 8, dtype=torch.float64)
    state = {f"layers.3.{name}": weight for name, weight in theirs.state_dict().items()}
    layer = qkv.MultiHeadAttention.from_torch(state, 2, prefix="layers.3.")
    with torch.no_grad():
        close(layer(x), theirs(x, x, x)[0])
        close(layer(x, y), theirs(x, y, y)[0])
    with pytest.raises(ValueError, match="add_bias_kv"):
        other = torch.nn.MultiheadAttention(8, 2, add_bias_kv=True)
        qkv.MultiHeadAttention.from_torch(other.state_dict(), 2)
