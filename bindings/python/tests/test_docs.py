"""The examples of the docstrings run."""

import doctest

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
