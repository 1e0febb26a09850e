"""The stubs say what there is, and code that uses them is checked."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

USE = """
import numpy, qkv
from numpy.typing import NDArray
q = numpy.zeros((2, 3))
output: NDArray[numpy.float64] = qkv.attention(q, q, q, causal="top-left", window=(1, None))
output, lse = qkv.attention(q, q, q, return_lse=True)
"""
WRONG = USE + 'qkv.attention(q, q, q, causal="left")\n'


def check(arguments, cwd):
    ended = subprocess.run(
        [sys.executable, "-m", *arguments], capture_output=True, text=True, cwd=cwd
    )
    return ended.returncode, ended.stdout + ended.stderr


def test_stubs_match_the_module(tmp_path):
    status, text = check(["mypy.stubtest", "qkv._qkv"], tmp_path)
    assert status == 0, text


@pytest.mark.parametrize("program, status", [(USE, 0), (WRONG, 1)])
def test_use(tmp_path, program, status):
    (tmp_path / "use.py").write_text(program)
    found, text = check(["mypy", "--strict", "use.py"], tmp_path)
    assert found == status, text
    assert ("error" in text) == (status != 0), text


def test_marked_as_typed():
    import qkv

    assert (Path(qkv.__file__).parent / "py.typed").exists()
