"""The notebook in examples/ runs from the first cell to the last, and what it shows can be shown."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[3] / "examples" / "attention.ipynb"


@pytest.mark.skipif(not NOTEBOOK.exists(), reason="the package's folder alone, without the repository")
def test_notebook(capsys):
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names = {}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [] and cell["execution_count"] is None
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), cell["id"], "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)
            if hasattr(value, "_repr_html_"):
                shown.append(value._repr_html_())
    assert len(shown) == 2 and all(page.startswith("<iframe") for page in shown)
    printed = capsys.readouterr().out
    assert "0.6698" in printed and "scale" in printed and "top-left" in printed
