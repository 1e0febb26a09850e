"""The examples of the docstrings and of the READMEs run."""

import doctest
import re
from pathlib import Path

import pytest

import qkv


def examples():
    """Of everything public; doctest itself does not look into compiled functions."""
    for name in qkv.__all__:
        found = getattr(qkv, name)
        members = {"": found}
        if isinstance(found, type):
            members.update((f".{key}", member) for key, member in vars(found).items())
        for suffix, member in members.items():
            text = getattr(member, "__doc__", None)
            if isinstance(found, str) or not text or ">>>" not in text:
                continue
            where = name + suffix
            test = doctest.DocTestParser().get_doctest(text, {}, where, None, 0)
            yield pytest.param(test, id=where)


@pytest.mark.parametrize("example", list(examples()))
def test_example(example):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(example).failed == 0


FOLDER = Path(__file__).parents[1]
READMES = [
    readme
    for readme in (FOLDER / "README.md", *FOLDER.parents[1].glob("README*.md"))
    if readme.exists()
]


@pytest.mark.parametrize("readme", READMES, ids=lambda readme: f"{readme.parent.name}/{readme.name}")
def test_readme(readme):
    """Blocks run one after the other; those of an absent library are left out."""
    blocks = re.findall(r"^```python\n(.*?)^```$", readme.read_text(encoding="utf-8"), re.M | re.S)
    assert blocks, readme
    names = {}
    for block in blocks:
        for library in re.findall(r"^import (torch|transformers)\b", block, re.M):
            pytest.importorskip(library)
        exec(block, names)
