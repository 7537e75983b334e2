"""The notebooks run from top to bottom, show something, and are small enough for a repository."""

import ast
import io
import json
from pathlib import Path

import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))
names = [path.stem for path in NOTEBOOKS]


def cells(path, kind):
    book = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in book["cells"] if cell["cell_type"] == kind]


def run(source, where, space):
    """Run a cell as Jupyter does: the value of a last line that is an expression is shown."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), space)
    value = None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), space)
    if isinstance(value, Figure):
        value.savefig(io.BytesIO())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=names)
def test_runs_from_top_to_bottom(path, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    shown = []
    space = {"__name__": "__main__", "display": lambda bundle, raw: shown.append(bundle)}
    for i, cell in enumerate(cells(path, "code")):
        run("".join(cell["source"]), f"{path.name}, code cell {i + 1}", space)
    plt.close("all")
    assert all(bundle["text/html"].startswith("<img alt=") for bundle in shown)
    assert not list(tmp_path.iterdir()), "a notebook leaves files behind"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=names)
def test_is_committed_with_outputs_of_a_clean_run(path):
    code = cells(path, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), "run it from top to bottom"
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert all(output["output_type"] != "error" and output.get("name") != "stderr" for output in outputs)
    assert path.stat().st_size < 300_000
