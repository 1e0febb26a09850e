"""Attention by somebody else, timed on request. `qkv bench` starts this, once for each library and
number of threads, and talks to it in lines of JSON.

    {"do": "load", "folder": …, "arrays": ["q", "k", "v"], "bf16": …, "causal": …, "back": …}
        reads the arrays, builds each operator of the library that may compute this, and saves what
        it gives; with an array "grad", the gradients of q, k and v, one after the other:
        {"operators": [{"name", "file"} or {"name", "error"}]}
    {"do": "time", "operator": n, "seconds": s}
        {"cpu": [seconds of each call's busiest thread]}
    {"do": "free"}
        gives the memory back: {}
"""
import importlib
import json
import math
import os
import sys
import time

LIBRARY, THREADS = sys.argv[1], int(sys.argv[2])


class Case:
    """The arrays, and what is hidden in the scores."""

    def __init__(self, ask):
        at = lambda name: os.path.join(ask["folder"], name + ".npy")
        self.arrays = {name: np.load(at(name)) for name in ask["arrays"]}
        self.q, self.k, self.v = (self.arrays[name] for name in "qkv")
        self.grad = self.arrays.get("grad")
        self.causal, self.back = ask["causal"], ask["back"]
        self.bf16 = ask["bf16"]  # its numbers are in arrays of float32
        self.batch, self.heads, self.queries, self.d_k = self.q.shape
        _, self.kv_heads, self.keys, self.d_v = self.v.shape
        self.mask = self.whole_mask()

    def whole_mask(self):
        """One mask with all that is hidden or added; None if causality says it all."""
        keep, bias = self.arrays.get("keep"), self.arrays.get("bias")
        if not self.causal or (keep is None and bias is None and self.back is None):
            return keep if keep is not None else bias
        place = np.arange(self.queries)[:, None] + self.keys - self.queries
        key = np.arange(self.keys)[None]
        seen = key <= place
        if self.back is not None:
            seen &= key >= place - self.back
        if keep is not None:
            return seen & keep
        if bias is not None:
            return np.where(seen, bias, -np.inf).astype(bias.dtype)
        return seen

    def additive(self):
        """The mask as numbers to add."""
        if self.mask is None or self.mask.dtype != bool:
            return self.mask
        return np.where(self.mask, 0, -np.inf).astype(self.q.dtype)

    def side_by_side(self, x):
        """[B, H, L, d] as [B, L, H·d]."""
        return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(x.shape[0], x.shape[2], -1)

    def of_side_by_side(self, x):
        return x.reshape(self.batch, self.queries, self.heads, -1).swapaxes(1, 2)


def torch_operators(case):
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    torch.set_num_threads(THREADS)

    def tensor(array):
        given = torch.from_numpy(array)
        return given.bfloat16() if case.bf16 and array.dtype != bool else given

    def array(tensor):
        return (tensor.float() if case.bf16 else tensor).numpy()

    q, k, v = (tensor(x) for x in (case.q, case.k, case.v))
    options = {"enable_gqa": case.heads != case.kv_heads}
    if case.mask is not None:
        options["attn_mask"] = tensor(case.mask)
    elif case.causal:
        options["is_causal"] = True

    if case.grad is not None:
        inputs = [x.requires_grad_() for x in (q, k, v)]
        grad = tensor(case.grad)

        def backward():
            output = scaled_dot_product_attention(*inputs, **options)
            # Kept for the next call, so that the forward pass is outside the clock.
            run = lambda: torch.autograd.grad(output, inputs, grad, retain_graph=True)
            return run, lambda grads: np.concatenate([array(x).ravel() for x in grads])

        yield "scaled_dot_product_attention", backward
        return

    def run():
        with torch.inference_mode():
            return scaled_dot_product_attention(q, k, v, **options)

    yield "scaled_dot_product_attention", lambda: (run, array)


def onnxruntime_operators(case):
    import onnxruntime
    from onnx import TensorProto, helper

    numbers = {"float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT,
               "float64": TensorProto.DOUBLE}
    number = numbers[case.q.dtype.name]
    kinds = {"bool": TensorProto.BOOL, "int32": TensorProto.INT32}
    contrib = "com.microsoft"

    def session(node, inputs, opset):
        kind = lambda array: kinds.get(array.dtype.name, number)
        declared = [
            helper.make_tensor_value_info(name, kind(array), array.shape)
            for name, array in inputs.items()
        ]
        results = [helper.make_tensor_value_info(name, number, None) for name in node.output]
        graph = helper.make_graph([node], "attention", declared, results)
        versions = [helper.make_opsetid("", opset), helper.make_opsetid(contrib, 1)]
        model = helper.make_model(graph, opset_imports=versions, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        model = model.SerializeToString()
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def bound(node, inputs, opset, outputs, shared=()):
        """A call whose arrays stay where they are; `shared` outputs are written over inputs."""
        if case.bf16:
            raise TypeError("no bf16 through numpy")
        ready = session(node, inputs, opset)
        binding = ready.io_binding()
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        arrays = [*inputs.values(), *outputs.values()]
        given = {name: value(array) for name, array in inputs.items()}
        taken = {name: value(array) for name, array in outputs.items()}
        for name, array in given.items():
            binding.bind_ortvalue_input(name, array)
        for name in node.output:
            over = dict(shared).get(name)
            binding.bind_ortvalue_output(name, given[over] if over else taken[name])

        def run(keep=(given, taken, arrays)):  # the values borrow from the arrays
            ready.run_with_iobinding(binding)

        return run, lambda _: taken["o"].numpy()

    def attention():
        inputs = {"q": case.q, "k": case.k, "v": case.v}
        if case.mask is not None:
            inputs["mask"] = case.mask
        hides = int(case.causal and case.mask is None)
        node = helper.make_node("Attention", list(inputs), ["o"], is_causal=hides)
        shape = (case.batch, case.heads, case.queries, case.d_v)
        return bound(node, inputs, 24, {"o": np.zeros(shape, case.q.dtype)})

    def flat_output():
        return np.zeros((case.batch, case.queries, case.heads * case.d_v), case.q.dtype)

    def multi_head():
        inputs = {name: case.side_by_side(x) for name, x in zip("qkv", (case.q, case.k, case.v))}
        names = list(inputs)
        if case.mask is not None:
            inputs["mask"] = case.additive()[None, None]
            names += ["", "", "mask"]
        hides = int(case.causal and case.mask is None)
        node = helper.make_node("MultiHeadAttention", names, ["o"], domain=contrib,
                                num_heads=case.heads, unidirectional=hides)
        run, result = bound(node, inputs, 21, {"o": flat_output()})
        return run, lambda given: case.of_side_by_side(result(given))

    def grouped(window):
        past = case.keys - case.queries
        inputs = {
            "q": case.side_by_side(case.q),
            "k": case.side_by_side(case.k[:, :, past:]),
            "v": case.side_by_side(case.v[:, :, past:]),
            # A cache has room for the new keys, which are written into it.
            "past_k": case.k.copy() if past else case.k[:, :, :0].copy(),
            "past_v": case.v.copy() if past else case.v[:, :, :0].copy(),
            "lengths": np.full(case.batch, case.keys - 1, np.int32),
            "total": np.array(case.keys, np.int32),
        }
        outputs = {"o": flat_output()}
        if not past:
            outputs |= {"new_k": np.zeros_like(case.k), "new_v": np.zeros_like(case.v)}
        options = {"local_window_size": window} if window else {}
        node = helper.make_node("GroupQueryAttention", list(inputs), ["o", "new_k", "new_v"],
                                domain=contrib, num_heads=case.heads,
                                kv_num_heads=case.kv_heads, **options)
        shared = {"new_k": "past_k", "new_v": "past_v"} if past else {}
        run, result = bound(node, inputs, 21, outputs, shared.items())
        return run, lambda given: case.of_side_by_side(result(given))

    yield "Attention", attention
    if case.heads == case.kv_heads:
        yield "MultiHeadAttention", multi_head
    masked = "keep" in case.arrays or "bias" in case.arrays
    if (case.causal or case.queries == 1) and not masked and case.d_k == case.d_v:
        window = None if case.back is None else case.back + 1
        yield "GroupQueryAttention", lambda: grouped(window)


def openvino_operators(case):
    import openvino
    from openvino import opset13

    def attention():
        if case.q.dtype != np.float32:
            raise TypeError("float32 only")
        arrays = [case.q, case.k, case.v]
        if case.mask is not None:
            arrays.append(case.mask)
        inputs = [opset13.parameter(list(array.shape), array.dtype) for array in arrays]
        q, k, v, *mask = inputs

        def for_each_query_head(x, width):
            """The key and value heads, each as often as query heads use it."""
            group = case.heads // case.kv_heads
            if group == 1:
                return x
            whole = lambda *sizes: opset13.constant(np.array(sizes, np.int64))
            x = opset13.unsqueeze(x, whole(2))
            shape = whole(case.batch, case.kv_heads, group, case.keys, width)
            x = opset13.broadcast(x, shape)
            return opset13.reshape(x, whole(case.batch, case.heads, case.keys, width), False)

        result = opset13.scaled_dot_product_attention(
            q, for_each_query_head(k, case.d_k), for_each_query_head(v, case.d_v), *mask,
            causal=case.causal and case.mask is None)
        settings = {"INFERENCE_NUM_THREADS": THREADS, "NUM_STREAMS": 1,
                    "INFERENCE_PRECISION_HINT": "bf16" if case.bf16 else "f32",
                    "PERFORMANCE_HINT": "LATENCY"}
        model = openvino.Model([result], inputs, "attention")
        request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
        for at, array in enumerate(arrays):
            request.set_input_tensor(at, openvino.Tensor(array))
        return request.infer, lambda _: request.get_output_tensor(0).data

    yield "scaled_dot_product_attention", attention


OPERATORS = {"torch": torch_operators, "onnxruntime": onnxruntime_operators,
             "openvino": openvino_operators}
REQUIRED = {"torch": ["numpy", "torch"], "onnxruntime": ["numpy", "onnx", "onnxruntime"],
            "openvino": ["numpy", "openvino"]}


def thread_seconds():
    """CPU seconds of each thread of this process."""
    seconds = {}
    for thread in os.listdir("/proc/self/task"):
        try:
            # The system's name for the CPU clock of a thread.
            seconds[thread] = time.clock_gettime((~int(thread) << 3) | 6)
        except OSError:  # it has ended
            pass
    return seconds


def busiest(run, times):
    if THREADS == 1 or not os.path.isdir("/proc/self/task"):
        begin = time.process_time()
        for _ in range(times):
            run()
        return (time.process_time() - begin) / times
    before = thread_seconds()
    for _ in range(times):
        run()
    after = thread_seconds()
    return max(after[thread] - before.get(thread, 0) for thread in after) / times


class Operator:
    def __init__(self, build):
        self.run, self.result = build()
        begin = time.perf_counter()
        self.value = np.array(self.result(self.run()))
        once = time.perf_counter() - begin
        if once < 0.1:  # short calls are slower at first
            self.run()
            begin = time.perf_counter()
            self.run()
            once = time.perf_counter() - begin
        # A clock is read every two milliseconds at most.
        self.times = max(1, math.ceil(2e-3 / max(1e-7, once)))

    def timed(self, seconds):
        costs, end = [], time.perf_counter() + seconds
        while not costs or time.perf_counter() < end:
            costs.append(busiest(self.run, self.times))
        return costs


def load(ask):
    case, said, ready = Case(ask), [], []
    for name, build in OPERATORS[LIBRARY](case):
        try:
            operator = Operator(build)
            file = os.path.join(ask["folder"], f"{LIBRARY}-{len(ready)}.npy")
            np.save(file, np.ascontiguousarray(operator.value))
            operator.value = None
            ready.append(operator)
            said.append({"name": name, "file": file})
        except Exception as error:
            says = str(error).strip().splitlines() or [type(error).__name__]
            ready.append(None)
            said.append({"name": name, "error": says[0][:200]})
    return {"operators": said}, ready


def main():
    global np
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def say(answer):
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    for name in REQUIRED[LIBRARY]:
        try:
            found = importlib.import_module(name)
        except ImportError as error:
            return say({"missing": name, "says": str(error)})
        if name == "numpy":
            np = found
    say({"version": getattr(found, "__version__", "unknown")})
    ready = []
    for line in sys.stdin:
        ask = json.loads(line)
        if ask["do"] == "load":
            answer, ready = load(ask)
            say(answer)
        elif ask["do"] == "free":
            ready = []
            say({})
        elif ask["do"] == "time":
            say({"cpu": ready[ask["operator"]].timed(ask["seconds"])})


main()
