"""Outputs of a system beside what its preset says; called by conformance/presets.

Each case is an input, the options that say what was asked for, and what the system made of it. The
preset has to agree, with the version that runs here; where a case says so, another has to differ.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy

BATCH, HEADS, KV_HEADS, WIDTH = 2, 4, 2, 8


class Case:
    """An input and an output in [batch, heads, length, width], and options of qkv check."""

    def __init__(self, name, inputs, output, options=(), arrays=None, not_also=()):
        self.name, self.inputs, self.output = name, inputs, output
        self.options, self.arrays, self.not_also = list(options), arrays or {}, not_also


def draw(seed, queries, keys, kv_heads=KV_HEADS):
    """q, k and v of both signs."""
    rng = numpy.random.default_rng(seed)
    shapes = [(BATCH, HEADS, queries, WIDTH)] + 2 * [(BATCH, kv_heads, keys, WIDTH)]
    return [rng.standard_normal(shape).astype(numpy.float32) for shape in shapes]


def dead_row(queries, keys):
    """A mask that keeps two of three keys, and nothing for the first query of the second entry."""
    mask = numpy.arange(queries * keys).reshape(queries, keys) % 3 > 0
    mask = numpy.broadcast_to(mask, (BATCH, 1, queries, keys)).copy()
    mask[1, 0, 0] = False
    return mask


def tokens_first(x):
    """[batch, heads, length, width] to [batch, length, heads, width], and back."""
    return numpy.ascontiguousarray(numpy.swapaxes(numpy.asarray(x), 1, 2))


def usual(run, bottom_right, kv_heads=KV_HEADS, wider=True):
    """Grouped heads, causality with other numbers of keys, a row without a key.

    `run(q, k, v, causal=, mask=)` computes; the other alignment is another system's.
    """
    other = "torch-sdpa" if bottom_right else "flash-attn"
    inputs = draw(1, 3, 5, kv_heads)
    yield Case("plain", inputs, run(*inputs))
    for seed, queries, keys in [(2, 3, 5), (3, 6, 4)][: 2 if wider else 1]:
        inputs = draw(seed, queries, keys, kv_heads)
        output = run(*inputs, causal=True)
        yield Case(f"causal {queries}x{keys}", inputs, output, ["--causal"], not_also=[other])
    inputs, mask = draw(4, 3, 5, kv_heads), dead_row(3, 5)
    output = run(*inputs, mask=mask)
    yield Case("mask", inputs, output, arrays={"mask": mask}, not_also=["torch-mha"])


def jax():
    import jax

    def run(q, k, v, causal=False, mask=None, **more):
        q, k, v = (tokens_first(x) for x in (q, k, v))
        with jax.default_matmul_precision("float32"):
            out = jax.nn.dot_product_attention(q, k, v, is_causal=causal, mask=mask, **more)
        return tokens_first(out)

    cases = list(usual(run, bottom_right=False))
    inputs = draw(5, 6, 6)
    window = run(*inputs, local_window_size=(2, 1))
    cases.append(Case("window", inputs, window, ["--window", "2,1"]))
    return {"jax": (jax.__version__, cases)}


def keras():
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    def run(q, k, v, causal=False, mask=None):
        # The layer alone: its weights are the identity.
        width = HEADS * WIDTH
        layer = keras.layers.MultiHeadAttention(HEADS, WIDTH, use_bias=False)
        rows = [tokens_first(x).reshape(BATCH, -1, width) for x in (q, k, v)]
        layer.build(*(x.shape for x in (rows[0], rows[2], rows[1])))
        eye = numpy.eye(width, dtype=numpy.float32)
        into, back = eye.reshape(width, HEADS, WIDTH), eye.reshape(HEADS, WIDTH, width)
        layer.set_weights([into, into, into, back])
        mask = None if mask is None else mask[:, 0]
        out = layer(rows[0], rows[2], rows[1], attention_mask=mask, use_causal_mask=causal)
        return tokens_first(numpy.asarray(out).reshape(BATCH, -1, HEADS, WIDTH))

    return {"keras": (keras.__version__, list(usual(run, bottom_right=False, kv_heads=HEADS)))}


def mlx():
    import mlx.core as mx
    from importlib.metadata import version

    def run(q, k, v, causal=False, mask=None):
        q, k, v = (mx.array(x) for x in (q, k, v))
        mask = "causal" if causal else None if mask is None else mx.array(mask)
        with mx.stream(mx.cpu):
            out = mx.fast.scaled_dot_product_attention(q, k, v, scale=WIDTH**-0.5, mask=mask)
        return numpy.array(out)

    # More queries than keys leave rows without a key, which come out otherwise than masked ones.
    return {"mlx": (version("mlx"), list(usual(run, bottom_right=True, wider=False)))}


def model(domain, operator, names, inputs, attributes, opset, more=()):
    """An ONNX model of one operator, whose first output is Y."""
    from onnx import TensorProto, helper

    node = helper.make_node(operator, names, ["Y", *more], domain=domain, **attributes)
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in inputs.items()
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ["Y", *more]
    ]
    graph = helper.make_graph([node], "one", given, outputs)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=11 if opset < 25 else 13)


def operator_cases(evaluate, opset):
    """Cases of ai.onnx Attention: `evaluate(model, inputs)` gives its first output."""

    def run(q, k, v, causal=False, mask=None, **attributes):
        inputs = dict(Q=q, K=k, V=v)
        if mask is not None:
            inputs["M"] = mask
        if causal:
            attributes["is_causal"] = 1
        return evaluate(model("", "Attention", list(inputs), inputs, attributes, opset), inputs)

    cases = list(usual(run, bottom_right=False))
    inputs = draw(6, 3, 5)
    inputs[0] *= 4
    capped = run(*inputs, mask=dead_row(3, 5), softcap=1.5)
    arrays = {"mask": dead_row(3, 5)}
    cases.append(Case("softcap", inputs, capped, ["--softcap", "1.5"], arrays, ["onnx-1.18"]))
    # With a cache the causal mask counts from its end.
    inputs = draw(7, 3, 3)
    past = draw(8, 3, 2)[1:]
    given = dict(Q=inputs[0], K=inputs[1], V=inputs[2], PK=past[0], PV=past[1])
    names = ["Q", "K", "V", "", "PK", "PV"]
    present = ["present_key", "present_value"]
    one = model("", "Attention", names, given, {"is_causal": 1}, opset, present)
    cached = evaluate(one, given)
    arrays = {"past-k": past[0], "past-v": past[1]}
    cases.append(Case("cache", inputs, cached, ["--causal"], arrays, ["torch-sdpa"]))
    return cases


def onnx():
    import onnx
    from onnx.reference import ReferenceEvaluator

    def evaluate(model, inputs):
        return ReferenceEvaluator(model).run(None, inputs)[0]

    version = onnx.__version__
    return {f"onnx-{opset}": (version, operator_cases(evaluate, opset)) for opset in (23, 24, 25)}


def onnxruntime():
    import onnxruntime

    def evaluate(model, inputs):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, inputs)[0]

    def padded():
        # A row whose keys are all padding is as if there were no mask.
        q, k, v = draw(9, 3, 5, HEADS)
        mask = numpy.array([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], numpy.int32)
        rows = [tokens_first(x).reshape(BATCH, -1, HEADS * WIDTH) for x in (q, k, v)]
        inputs = dict(Q=rows[0], K=rows[1], V=rows[2], P=mask)
        names = ["Q", "K", "V", "", "P"]
        attributes = dict(num_heads=HEADS)
        one = model("com.microsoft", "MultiHeadAttention", names, inputs, attributes, 23)
        output = tokens_first(evaluate(one, inputs).reshape(BATCH, -1, HEADS, WIDTH))
        arrays = {"mask": mask.astype(bool)[:, None, None]}
        yield Case("padding", [q, k, v], output, arrays=arrays, not_also=["onnxruntime"])

    version = onnxruntime.__version__
    # Rows without a key have numbers of their own here.
    cases = [case for case in operator_cases(evaluate, 23) if case.name not in ("mask", "softcap")]
    return {"onnxruntime": (version, cases), "onnxruntime-mha": (version, list(padded()))}


def openvino():
    import openvino
    from openvino import opset13

    def run(q, k, v, causal=False, mask=None):
        # Shared heads are the caller's business.
        k, v = (x.repeat(HEADS // x.shape[1], axis=1) for x in (k, v))
        given = [q, k, v] + ([] if mask is None else [mask])
        parameters = [opset13.parameter(x.shape, x.dtype) for x in given]
        node = opset13.scaled_dot_product_attention(*parameters, causal=causal)
        model = openvino.Model([node], parameters)
        hint = {"INFERENCE_PRECISION_HINT": "f32"}
        return openvino.compile_model(model, "CPU", hint)(given)[0]

    version = openvino.__version__.split("-")[0]
    return {"openvino": (version, list(usual(run, bottom_right=False)))}


def torch():
    import torch

    def run(q, k, v, causal=False, mask=None):
        q, k, v = (torch.from_numpy(x) for x in (q, k, v))
        mask = None if mask is None else torch.from_numpy(mask)
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=True
        ).numpy()

    def layer():
        q, k, v = draw(10, 3, 5, HEADS)
        width = HEADS * WIDTH
        attention = torch.nn.MultiheadAttention(width, HEADS, bias=False, batch_first=True)
        with torch.no_grad():
            attention.in_proj_weight.copy_(torch.eye(width).repeat(3, 1))
            attention.out_proj.weight.copy_(torch.eye(width))
        rows = [torch.from_numpy(tokens_first(x).reshape(BATCH, -1, width)) for x in (q, k, v)]
        padding = numpy.array([[False, False, False, True, True], [True] * 5])
        with torch.no_grad():
            out, _ = attention(*rows, key_padding_mask=torch.from_numpy(padding))
        output = tokens_first(out.numpy().reshape(BATCH, -1, HEADS, WIDTH))
        arrays = {"mask": padding[:, None, None]}
        yield Case("padding", [q, k, v], output, arrays=arrays, not_also=["torch-sdpa"])

    version = torch.__version__.split("+")[0]
    cases = list(usual(run, bottom_right=False))
    return {"torch-sdpa": (version, cases), "torch-mha": (version, list(layer()))}


def transformers():
    import torch
    import transformers
    from transformers import masking_utils
    from transformers.models.llama import modeling_llama as llama

    def cases(name, attend):
        config = transformers.LlamaConfig(
            hidden_size=HEADS * WIDTH, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
            head_dim=WIDTH, num_hidden_layers=1, attn_implementation=name,
        )
        module = llama.LlamaAttention(config, 0)
        make = masking_utils.ALL_MASK_ATTENTION_FUNCTIONS[name]
        for queries, keys, padded in [(3, 5, None), (5, 5, None), (4, 4, 4)]:
            q, k, v = draw(11 + keys + queries, queries, keys)
            padding = None
            if padded:
                # The second entry is all padding.
                padding = torch.ones(BATCH, keys, dtype=torch.bool)
                padding[1] = False
            mask = make(
                batch_size=BATCH, q_length=queries, kv_length=keys, q_offset=keys - queries,
                kv_offset=0, mask_function=masking_utils.causal_mask_function,
                attention_mask=padding, allow_is_causal_skip=False, dtype=torch.float32,
                config=config,
            )
            tensors = [torch.from_numpy(x) for x in (q, k, v)]
            out, _ = attend(module, *tensors, mask, scaling=WIDTH**-0.5, dropout=0.0)
            arrays = {} if padding is None else {"keep": padding.numpy()[:, None, None]}
            other = ["torch-sdpa"] if queries != keys else []
            yield Case(f"causal {queries}x{keys}", [q, k, v], tokens_first(out.detach().numpy()),
                       ["--causal"], arrays, other)

    version = transformers.__version__
    sdpa = transformers.integrations.sdpa_attention.sdpa_attention_forward
    return {
        "hf-eager": (version, list(cases("eager", llama.eager_attention_forward))),
        "hf-sdpa": (version, list(cases("sdpa", sdpa))),
    }


def check(folder, case, preset):
    """What qkv check says of a case."""
    command = [os.environ["QKV"], "check", "--json", "--against", preset, *case.options]
    arrays = dict(zip("qkv", case.inputs), output=case.output, **case.arrays)
    for name, array in arrays.items():
        path = folder / f"{name}.npy"
        numpy.save(path, array)
        command += [f"--{name}", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stderr
    return json.loads(ran.stdout)


def main():
    systems = [jax, keras, mlx, onnx, onnxruntime, openvino, torch, transformers]
    system = {each.__name__: each for each in systems}[sys.argv[1]]
    passed, failed = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for preset, (version, cases) in system().items():
            for case in cases:
                found = check(Path(folder), case, preset)
                against = found["against"]
                faults = []
                if found["verdict"] not in ("equal", "rounding"):
                    causes = [cause["id"] for cause in found["causes"]]
                    faults.append(f"{found['verdict']}, {causes}")
                if against["verified"] != version:
                    faults.append(f"the table has seen {against['verified']}")
                faults += [f"so would {other}" for other in case.not_also
                           if other not in against["others"]]
                passed, failed = passed + (not faults), failed + bool(faults)
                if faults:
                    print(f"failed: {preset} {version}, {case.name}: {'; '.join(faults)}")
            print(f"{preset}: {version}, {len(cases)} cases")
    print(f"{system.__name__}: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
