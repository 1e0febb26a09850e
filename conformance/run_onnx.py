"""Runs ONNX's cases through qkv.onnx.Backend; called by conformance/onnx."""

import re
import sys
import unittest
import warnings

import onnx
import onnx.backend.test

import qkv.onnx

OPERATORS = {"Attention": r"^test_attention_", "RotaryEmbedding": r"^test_rotary_embedding"}


class Result(unittest.TestResult):
    """Counts, and says what did not pass and why."""

    def __init__(self):
        super().__init__()
        self.passed = 0

    def addSuccess(self, test):
        self.passed += 1

    def addFailure(self, test, err):
        super().addFailure(test, err)
        print(f"failed: {test.id().split('.')[-1]}: {str(err[1]).strip()}")

    addError = addFailure

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"skipped: {test.id().split('.')[-1]}: {reason}")


def main():
    with warnings.catch_warnings():
        # ONNX makes the cases of all operators, and divides by zero in some.
        warnings.simplefilter("ignore", RuntimeWarning)
        runner = onnx.backend.test.BackendTest(qkv.onnx.Backend, __name__)
    cases = runner.test_cases["OnnxBackendNodeModelTest"]
    every = sorted(name for name in vars(cases) if name.endswith("_cpu"))
    total = Result()
    twins = 0
    for operator, pattern in OPERATORS.items():
        names = [name for name in every if re.search(pattern, name)]
        # Their bodies in other operators, with the same data.
        expanded = [name for name in names if "_expanded" in name]
        twins += len(expanded)
        before = total.passed
        own = [name for name in names if name not in expanded]
        for name in own:
            cases(name).run(total)
        print(f"{operator}: {total.passed - before} of {len(own)}")
    print(f"{twins} cases named _expanded hold neither operator, but its body: they are not run")
    failed = len(total.failures)
    print(f"onnx {onnx.__version__}: {total.passed} passed, {failed} failed, {len(total.skipped)} skipped")
    return 1 if failed or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
