"""Random runs of ONNX Runtime's operators beside qkv's; called by conformance/onnxruntime.

Only what means the same on both sides: no row without a key (ONNX Runtime then gives other numbers),
causal masks without a cache only where there are as many keys as queries.
"""

import sys

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper

import qkv
import qkv.onnx

CASES = int(sys.argv[1]) if len(sys.argv) > 1 else 120
FLOAT = TensorProto.FLOAT
MICROSOFT = "com.microsoft"


def bound(q, k, v, extra=0.0):
    """How far two float32 results may be apart: twice the error of one.

    Scores are sums of head_dim products, off by (head_dim + 3)·u·largest (and of what is added to
    them), which moves a weight by twice that share; sums over keys add (keys + 8)·u; exponentials of a
    few units besides.
    """
    unit = numpy.finfo(numpy.float32).eps / 2
    d, keys = q.shape[-1], k.shape[-2]
    largest = d * numpy.abs(q).max() * numpy.abs(k).max() + abs(extra) + 1
    return 2 * unit * (2 * (d + 3) * largest + 2 * (keys + 8)) * max(numpy.abs(v).max(), 1.0)


def session(operator, domain, inputs, attributes, outputs=("Y",)):
    """One operator; inputs is a dict whose Nones are left out."""
    names = [name if array is not None else "" for name, array in inputs.items()]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(operator, names, list(outputs), domain=domain, **attributes)
    given = {name: array for name, array in inputs.items() if array is not None}
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in given.items()
        ],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    run = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return run.run(list(outputs), given)


def flat(x):
    """[batch, heads, length, width] as [batch, length, heads·width]."""
    return numpy.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)


def kept(rng, shape):
    """A mask that keeps something in each row."""
    mask = rng.random(shape) < 0.6
    mask[..., 0] = True
    return mask


class Draw:
    """Sizes that differ, and q, k, v."""

    def __init__(self, rng, square=False, value_dim=True, past=False):
        self.batch = int(rng.integers(1, 4))
        self.kv_heads = int(rng.integers(1, 4))
        self.heads = self.kv_heads * int(rng.integers(1, 4))
        self.queries = int(rng.integers(1, 20))
        self.keys = self.queries if square else int(rng.integers(1, 40))
        self.d = 8 * int(rng.integers(1, 5))
        self.dv = self.d + (8 if value_dim and rng.random() < 0.5 else 0)

        def numbers(*shape):
            return rng.standard_normal(shape).astype(numpy.float32)

        self.numbers = numbers
        self.q = numbers(self.batch, self.heads, self.queries, self.d)
        self.k = numbers(self.batch, self.kv_heads, self.keys, self.d)
        self.v = numbers(self.batch, self.kv_heads, self.keys, self.dv)


def attention(rng):
    """ai.onnx Attention 23."""
    causal = rng.random() < 0.3
    draw = Draw(rng, square=causal)
    attributes = {}
    if causal:
        attributes["is_causal"] = 1
    if rng.random() < 0.5:
        attributes["scale"] = float(rng.uniform(0.05, 0.5))
    mask, extra = None, 0.0
    choice = rng.integers(3)
    shape = [(draw.queries, draw.keys), (draw.batch, 1, draw.queries, draw.keys),
             (draw.batch, draw.heads, draw.queries, draw.keys)][rng.integers(3)]
    if choice == 1 and not causal:
        mask = kept(rng, shape)
    elif choice == 2:
        mask = draw.numbers(*shape)
        extra = numpy.abs(mask).max()
    inputs = dict(Q=draw.q, K=draw.k, V=draw.v, attn_mask=mask)
    three = rng.random() < 0.5
    if three:
        inputs.update(Q=flat(draw.q), K=flat(draw.k), V=flat(draw.v))
        attributes.update(q_num_heads=draw.heads, kv_num_heads=draw.kv_heads)
    if mask is None:
        inputs.pop("attn_mask")
    right = session("Attention", "", inputs, attributes)[0]
    found = qkv.onnx.attention(*inputs.values(), want_scores=False, **attributes)[0]
    return found, right, bound(draw.q, draw.k, draw.v, extra)


def multi_head(rng):
    """com.microsoft MultiHeadAttention."""
    causal = rng.random() < 0.3
    draw = Draw(rng, square=causal)
    k, v = (x[:, :1].repeat(draw.heads, 1) for x in (draw.k, draw.v))
    k = k + draw.numbers(*k.shape)
    attributes = dict(num_heads=draw.heads)
    options, bias, extra = {}, None, 0.0
    if causal:
        attributes["unidirectional"] = 1
        options["causal"] = True
    if rng.random() < 0.5:
        attributes["scale"] = options["scale"] = float(rng.uniform(0.05, 0.5))
    if rng.random() < 0.5:
        shape = (1 if rng.random() < 0.5 else draw.batch, draw.heads, draw.queries, draw.keys)
        bias = options["bias"] = draw.numbers(*shape)
        extra = numpy.abs(bias).max()
    padding = None
    if rng.random() < 0.4 and not causal:
        mask = kept(rng, (draw.batch, draw.keys))
        padding = mask.astype(numpy.int32)
        options["keep"] = mask[:, None, None]
    inputs = dict(query=flat(draw.q), key=flat(k), value=flat(v), bias=None,
                  key_padding_mask=padding, attention_bias=bias)
    right = session("MultiHeadAttention", MICROSOFT, inputs, attributes)[0]
    found = flat(qkv.attention(draw.q, k, v, **options))
    # Its padding adds -10000 in float32, which costs the scores digits of that size where kept: none.
    return found, right, bound(draw.q, k, v, extra)


def group_query(rng):
    """com.microsoft GroupQueryAttention: causal, with a cache, a window, softcap, sinks."""
    draw = Draw(rng, square=True, value_dim=False)
    past = 0 if rng.random() < 0.5 else int(rng.integers(1, 20))
    if past:
        # One new token to a full cache.
        draw.q, draw.k, draw.v = (x[:, :, :1].copy() for x in (draw.q, draw.k, draw.v))
    queries = draw.q.shape[2]
    cached = [draw.numbers(draw.batch, draw.kv_heads, past, draw.d) for _ in range(2)]
    attributes = dict(num_heads=draw.heads, kv_num_heads=draw.kv_heads)
    options = {"causal": "bottom-right"}
    if rng.random() < 0.5:
        attributes["scale"] = options["scale"] = float(rng.uniform(0.05, 0.5))
    if rng.random() < 0.4:
        width = int(rng.integers(1, 10))
        attributes["local_window_size"] = width
        options["window"] = (width - 1, 0)
    if rng.random() < 0.4:
        attributes["softcap"] = options["softcap"] = float(rng.uniform(0.5, 5.0))
    sinks = None
    if rng.random() < 0.4:
        sinks = options["sinks"] = draw.numbers(draw.heads)
    total = past + queries
    inputs = dict(
        query=flat(draw.q), key=flat(draw.k), value=flat(draw.v),
        past_key=cached[0] if past else None, past_value=cached[1] if past else None,
        seqlens_k=numpy.full(draw.batch, total - 1, numpy.int32),
        total_sequence_length=numpy.array(total, numpy.int32),
        cos=None, sin=None, position_ids=None, attention_bias=None, head_sink=sinks,
    )
    outputs = ("Y", "present_key", "present_value")
    right = session("GroupQueryAttention", MICROSOFT, inputs, attributes, outputs)[0]
    cache = qkv.Cache(draw.batch, draw.kv_heads, draw.d)
    cache.append(*cached)
    cache.append(draw.k, draw.v)
    found = flat(cache.attention(draw.q, **options))
    return found, right, bound(draw.q, cache.k, cache.v, 1.0)


def main():
    passed, failed = 0, 0
    for number in range(CASES):
        for name, run in [("Attention", attention), ("MultiHeadAttention", multi_head),
                          ("GroupQueryAttention", group_query)]:
            try:
                found, right, most = run(numpy.random.default_rng([number, len(name)]))
                assert found.shape == right.shape, f"shapes {found.shape} and {right.shape}"
                apart = numpy.abs(found - right).max()
                assert apart <= most, f"{apart:.2e} apart, at most {most:.2e} is rounding"
                passed += 1
            except Exception as error:
                failed += 1
                print(f"failed: {name}, case {number}: {type(error).__name__}: {error}")
    print(f"onnxruntime {onnxruntime.__version__}: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
