"""Correct outputs of others, which qkv check must not find a cause for; called by conformance/correct."""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import jax
import ml_dtypes
import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper
from safetensors.numpy import save_file

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 20
BFLOAT16 = ml_dtypes.bfloat16


class Draw:
    """A problem: sizes that differ, options at random, numbers that the format holds."""

    def __init__(self, rng, dtype):
        self.rng, self.dtype = rng, dtype
        self.batch = int(rng.integers(1, 4))
        self.kv_heads = int(rng.integers(1, 4))
        self.heads = self.kv_heads * int(rng.integers(1, 4))
        self.queries = int(rng.integers(1, 24))
        self.keys = int(rng.integers(1, 40))
        self.width = int(rng.choice([4, 8, 16, 32, 64]))
        self.value_width = self.width
        self.size = float(rng.choice([0.3, 1.0, 2.0]))
        self.options, self.arrays = [], {}
        self.scale = self.width**-0.5
        if rng.random() < 0.3:
            self.scale = float(numpy.float32(rng.uniform(0.05, 0.5)))
            self.options += ["--scale", repr(self.scale)]
        self.mask = self.bias = self.softcap = None
        self.causal = rng.random() < 0.35
        if self.causal:
            self.options += ["--causal", "top-left"]

    def numbers(self, *shape, size=1.0):
        return (self.rng.standard_normal(shape) * size).astype(self.dtype)

    def inputs(self):
        self.q = self.numbers(self.batch, self.heads, self.queries, self.width, size=self.size)
        self.k = self.numbers(self.batch, self.kv_heads, self.keys, self.width, size=self.size)
        self.v = self.numbers(self.batch, self.kv_heads, self.keys, self.value_width)
        return self.q, self.k, self.v

    def with_mask(self):
        """Each row keeps something, also beside a causal mask."""
        shape = [(self.queries, self.keys), (self.batch, 1, self.queries, self.keys),
                 (self.batch, self.heads, self.queries, self.keys)][self.rng.integers(3)]
        self.mask = self.rng.random(shape) < 0.6
        self.mask[..., 0] = True
        self.arrays["keep"] = self.mask

    def with_bias(self):
        shape = (1, self.heads, self.queries, self.keys)
        self.bias = self.numbers(*shape)
        self.arrays["bias"] = self.bias


def numpy_attention(draw, work):
    """Every step stored in `work`, sums of products too."""
    q, k, v = (x.astype(work) for x in draw.inputs())
    group = draw.heads // draw.kv_heads
    k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)

    def times(a, b):
        return (a.astype(numpy.float32) @ b.astype(numpy.float32)).astype(work)

    s = (times(q, k.swapaxes(-1, -2)) * work(draw.scale)).astype(work)
    if draw.softcap:
        cap = work(draw.softcap)
        s = (cap * numpy.tanh((s / cap).astype(work))).astype(work)
    if draw.bias is not None:
        s = (s + draw.bias.astype(work)).astype(work)
    kept = numpy.ones(s.shape, bool) if draw.mask is None else draw.mask & numpy.ones(s.shape, bool)
    if draw.causal:
        kept = kept & numpy.tril(numpy.ones(s.shape[-2:], bool))
    s = numpy.where(kept, s, work(-numpy.inf))
    e = numpy.exp((s - s.max(-1, keepdims=True)).astype(work))
    total = e.astype(numpy.float32).sum(-1, keepdims=True).astype(work)
    return times((e / total).astype(work), v)


def by_numpy(dtype):
    def run(rng):
        draw = Draw(rng, dtype)
        draw.value_width = int(rng.choice([3, 8, 17]))
        choice = rng.integers(4)
        if choice == 1:
            draw.with_mask()
        elif choice == 2:
            draw.with_bias()
        elif choice == 3:
            draw.softcap = 2.5
            draw.options += ["--softcap", "2.5"]
        return draw, numpy_attention(draw, numpy.dtype(dtype).type)

    return run


def by_jax(dtype):
    def run(rng):
        draw = Draw(rng, dtype)
        choice = rng.integers(3)
        if choice == 1:
            draw.with_mask()
        elif choice == 2:
            draw.with_bias()
        q, k, v = (x.swapaxes(1, 2) for x in draw.inputs())
        mask = draw.mask
        if mask is not None:
            mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        with jax.default_matmul_precision("float32"):
            out = jax.nn.dot_product_attention(
                q, k, v, bias=draw.bias, mask=mask, scale=draw.scale, is_causal=draw.causal
            )
        return draw, numpy.asarray(out).swapaxes(1, 2)

    return run


def by_onnxruntime(dtype):
    def run(rng):
        draw = Draw(rng, dtype)
        if draw.causal:
            draw.keys = draw.queries
        choice = rng.integers(3)
        attributes = {"scale": draw.scale, "is_causal": int(draw.causal)}
        inputs = dict(zip("QKV", draw.inputs()))
        if choice == 1 and not draw.causal:
            draw.with_mask()
            inputs["M"] = draw.mask
        elif choice == 2:
            draw.with_bias()
            inputs["M"] = numpy.broadcast_to(draw.bias, (draw.batch,) + draw.bias.shape[1:]).copy()
        kind = helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
        node = helper.make_node("Attention", list(inputs), ["Y"], **attributes)
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
            for name, x in inputs.items()
        ]
        output = helper.make_tensor_value_info("Y", kind, None)
        graph = helper.make_graph([node], "one", given, [output])
        opsets = [helper.make_opsetid("", 23)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=11)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return draw, session.run(None, inputs)[0]

    return run


KINDS = {
    "numpy float32": by_numpy(numpy.float32),
    "numpy float16": by_numpy(numpy.float16),
    "jax float32": by_jax(numpy.float32),
    "jax bfloat16": by_jax(BFLOAT16),
    "onnxruntime float32": by_onnxruntime(numpy.float32),
    "onnxruntime float16": by_onnxruntime(numpy.float16),
}


def check(folder, draw, output):
    arrays = {"q": draw.q, "k": draw.k, "v": draw.v, "output": output, **draw.arrays}
    path = folder / "all.safetensors"
    save_file({name: numpy.ascontiguousarray(array) for name, array in arrays.items()}, path)
    command = [os.environ["QKV"], "check", "--json", *draw.options]
    for name in arrays:
        command += [f"--{name}", f"{path}:{name}"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode in (0, 1), ran.stderr
    return json.loads(ran.stdout)


def main():
    verdicts, failed = Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for place, (name, run) in enumerate(KINDS.items()):
            for number in range(COUNT):
                draw, output = run(numpy.random.default_rng([number, place]))
                found = check(Path(folder), draw, output)
                verdicts[name, found["verdict"]] += 1
                if found["causes"] or found["verdict"] not in ("equal", "rounding"):
                    failed += 1
                    causes = [cause["id"] for cause in found["causes"]]
                    print(f"failed: {name}, case {number}: {found['verdict']}, {causes}, "
                          f"{found['max_abs_error']} apart, allowed {found['bound']}, {draw.options}")
    for (name, verdict), count in sorted(verdicts.items()):
        print(f"{name}: {count} {verdict}")
    passed = COUNT * len(KINDS) - failed
    print(f"correct outputs: {passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
