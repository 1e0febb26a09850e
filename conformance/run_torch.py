"""PyTorch's sample inputs through qkv.torch; called by conformance/torch."""

import itertools
import sys
import warnings

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.testing._internal.common_methods_invocations import op_db

import qkv
import qkv.torch
from qkv.torch import scaled_dot_product_attention as ours

theirs = F.scaled_dot_product_attention
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


class Counts:
    def __init__(self):
        self.groups = {}

    def case(self, group, name, check, *arguments, **keywords):
        row = self.groups.setdefault(group, [0, 0, 0])
        try:
            check(*arguments, **keywords)
            row[0] += 1
        except Exception as error:
            row[1] += 1
            print(f"failed: {group}: {name}: {type(error).__name__}: {str(error).splitlines()[0]}")

    def skip(self, group, name, reason):
        self.groups.setdefault(group, [0, 0, 0])[2] += 1
        print(f"skipped: {group}: {name}: {reason}")


def close(found, exact, theirs_found, times=2):
    """Against the same in float64: within a few units of the dtype, or as near as PyTorch's own result
    is, doubled (for gradients, which are longer sums, tripled: FlashAttention's measures)."""
    assert found.shape == theirs_found.shape, f"{found.shape} and {theirs_found.shape}"
    assert found.dtype == theirs_found.dtype, f"{found.dtype} and {theirs_found.dtype}"
    assert torch.equal(found.isnan(), exact.isnan()), "NaN in other places"
    apart = (found.double() - exact).abs().nan_to_num(0).max().item() if found.numel() else 0.0
    other = (theirs_found.double() - exact).abs().nan_to_num(0).max().item() if found.numel() else 0.0
    size = max(1.0, exact.abs().nan_to_num(0).max().item() if found.numel() else 0.0)
    most = max(16 * torch.finfo(found.dtype).eps * size, times * other)
    assert apart <= most, f"{apart:.2e} from float64, PyTorch {other:.2e}"


def wide(x):
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def compare(q, k, v, *rest, **keywords):
    with torch.no_grad():
        right = theirs(q, k, v, *rest, **keywords)
        exact = theirs(*map(wide, (q, k, v, *rest)), **{n: wide(x) for n, x in keywords.items()})
        close(ours(q, k, v, *rest, **keywords), exact, right)


def samples(counts):
    """OpInfo: what PyTorch's own tests feed the function."""
    info = next(op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention")
    for dtype in DTYPES:
        group = f"OpInfo samples, {str(dtype)[6:]}"
        for number, sample in enumerate(info.sample_inputs("cpu", dtype)):
            if sample.kwargs.get("dropout_p", 0.0) > 0.0:
                counts.skip(group, number, "dropout: which weights are dropped is drawn otherwise")
                continue
            counts.case(group, number, compare, sample.input, *sample.args, **sample.kwargs)


def gradients(counts):
    info = next(op for op in op_db if op.name == "nn.functional.scaled_dot_product_attention")

    def of(function, sample, dtype):
        """The gradients of everything that is a float."""
        leaves = []

        def leaf(x):
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                x = x.detach().to(dtype).requires_grad_()
                leaves.append(x)
            return x

        arguments = [leaf(x) for x in (sample.input, *sample.args)]
        keywords = {name: leaf(x) for name, x in sample.kwargs.items()}
        output = function(*arguments, **keywords)
        output.backward(torch.linspace(-1, 1, output.numel(), dtype=dtype).view_as(output))
        return [x.grad for x in leaves]

    def check(sample):
        found, right = (of(function, sample, torch.float32) for function in (ours, theirs))
        for triple in zip(found, of(theirs, sample, torch.float64), right, strict=True):
            close(*triple, times=3)

    for number, sample in enumerate(info.sample_inputs("cpu", torch.float32, requires_grad=True)):
        if sample.kwargs.get("dropout_p", 0.0) == 0.0:
            counts.case("gradients of OpInfo samples, float32", number, check, sample)

    def gradcheck(causal, gqa):
        torch.manual_seed(1)
        q = torch.randn(1, 4, 3, 4, dtype=torch.float64, requires_grad=True)
        k, v = (
            torch.randn(1, 2 if gqa else 4, 5, 4, dtype=torch.float64, requires_grad=True)
            for _ in range(2)
        )
        assert torch.autograd.gradcheck(
            lambda *x: ours(*x, is_causal=causal, enable_gqa=gqa), (q, k, v)
        )

    for causal, gqa in itertools.product([False, True], repeat=2):
        counts.case("gradcheck", f"causal {causal}, grouped {gqa}", gradcheck, causal, gqa)


def masks(counts):
    """The mask shapes of PyTorch's TestSDPA, and rows without a key."""
    torch.manual_seed(2)
    B, H, L, S, E = 2, 3, 5, 7, 8
    shapes = [(L, S), (1, S), (L, 1), (B, 1, L, S), (1, H, L, S), (B, H, L, S), (B, H, 1, S), (1, 1, L, S)]
    for dtype in DTYPES:
        q, k, v = (torch.randn(B, H, n, E).to(dtype) for n in (L, S, S))
        for shape in shapes:
            truths = torch.rand(shape) < 0.7
            truths[..., 0] = True
            empty = truths.clone()
            empty[..., 0, :] = False
            for name, mask in [
                ("bool", truths),
                ("bool, a row without a key", empty),
                ("float", torch.randn(shape).to(dtype)),
                ("float with -inf", torch.zeros(shape, dtype=dtype).masked_fill(~truths, -torch.inf)),
                ("all -inf", torch.full(shape, -torch.inf, dtype=dtype)),
                ("finfo.min", torch.zeros(shape, dtype=dtype).masked_fill(
                    ~truths, torch.finfo(dtype).min)),
            ]:
                counts.case("masks", f"{name} {shape} {dtype}", compare, q, k, v, mask)


def alignments(counts):
    """TestAttnBias: upper left and lower right."""
    torch.manual_seed(3)
    for L, S in [(128, 128), (128, 256), (256, 128), (23, 56)]:
        q, k, v = torch.randn(2, 3, L, 16), torch.randn(2, 3, S, 16), torch.randn(2, 3, S, 16)
        counts.case("alignments", f"is_causal {L, S}", compare, q, k, v, is_causal=True)
        for name, made in [("upper left", causal_upper_left), ("lower right", causal_lower_right)]:

            def check():
                kept = torch.ones(L, S, dtype=torch.bool)
                kept = kept.tril(0 if name == "upper left" else S - L)
                right = theirs(q, k, v, kept)
                exact = theirs(q.double(), k.double(), v.double(), kept)
                close(ours(q, k, v, made(L, S)), exact, right)
                with qkv.torch.patch():
                    close(F.scaled_dot_product_attention(q, k, v, made(L, S)), exact, right)

            counts.case("alignments", f"{name} {L, S}", check)
        both = dict(attn_mask=torch.ones(L, S, dtype=torch.bool), is_causal=True)

        def refused():
            try:
                ours(q, k, v, **both)
            except ValueError:
                return
            raise AssertionError("a mask and is_causal together were taken")

        counts.case("alignments", f"refuses both {L, S}", refused)


def layers(counts):
    """nn.MultiheadAttention in all four mask combinations."""
    torch.manual_seed(4)
    layer = torch.nn.MultiheadAttention(12, 3, batch_first=True).eval()
    x = torch.randn(2, 5, 12)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    causal = torch.ones(5, 5, dtype=torch.bool).triu(1)
    own = qkv.MultiHeadAttention.from_torch(layer.state_dict(), 3)
    exact_layer = torch.nn.MultiheadAttention(12, 3, batch_first=True).double().eval()
    exact_layer.load_state_dict(layer.state_dict())
    for with_padding, with_mask in itertools.product([False, True], repeat=2):
        options = dict(
            key_padding_mask=padding if with_padding else None, attn_mask=causal if with_mask else None
        )

        def check(need_weights):
            with torch.no_grad():
                exact, exact_weights = exact_layer(x.double(), x.double(), x.double(), **options,
                                                   average_attn_weights=False)
                right = layer(x, x, x, need_weights=need_weights, **options)[0]
                with qkv.torch.patch():
                    close(layer(x, x, x, need_weights=need_weights, **options)[0], exact, right)
                drop = torch.zeros(2, 1, 5, 5, dtype=torch.bool)
                if with_padding:
                    drop = drop | padding[:, None, None]
                if with_mask:
                    drop = drop | causal
                close(own(x, drop=drop), exact, right)
                weights = torch.from_numpy(own.steps(x, drop=drop)["weights"])
                close(weights.float(), exact_weights, exact_weights.float())

        for need_weights in (False, True):
            name = f"padding {with_padding}, mask {with_mask}, weights asked for {need_weights}"
            counts.case("nn.MultiheadAttention", name, check, need_weights)


def main():
    # Of lower right biases with more queries than keys: that they give NaN, which they do not.
    warnings.filterwarnings("ignore", message="Lower right causal bias")
    counts = Counts()
    for group in (samples, masks, alignments, layers, gradients):
        group(counts)
    for name, (passed, failed, skipped) in counts.groups.items():
        print(f"{name}: {passed} passed, {failed} failed, {skipped} skipped")
    passed, failed, skipped = map(sum, zip(*counts.groups.values()))
    print(f"torch {torch.__version__.split('+')[0]}: {passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
