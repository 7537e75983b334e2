"""The architecture: packages in layers, and each imports only those before it.

Imports inside functions count too: they are there for speed, not to get around the order.
"""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "deeppc"
LAYERS = (
    *("errors", "files", "core", "models", "data", "diagnostics", "runs", "report"),
    *("training", "presets", "bench", "search", "paper", "cli"),
)
MODULES = sorted(SOURCE.rglob("*.py"))


def package(path: Path) -> str:
    """The layer that a file belongs to; "" for the package's own __init__ and __main__, which see everything."""
    first = path.relative_to(SOURCE).parts[0]
    return "" if first in ("__init__.py", "__main__.py") else first.removesuffix(".py")


def imports(path: Path) -> list[tuple[int, str]]:
    """(line, dotted name) of every import, wherever it stands. ``from a import b`` may mean the module ``a.b``."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def edges() -> set[tuple[str, str]]:
    """(package, package that it imports), where the two differ."""
    pairs = {
        (package(path), name.split(".")[1])
        for path in MODULES
        for _, name in imports(path)
        if name.startswith("deeppc.") and package(path)
    }
    return {(a, b) for a, b in pairs if a != b and not b.startswith("__")}


def test_every_package_has_its_place():
    assert {package(path) for path in MODULES} - {""} == set(LAYERS)


def test_no_package_imports_one_that_comes_after_it():
    upward = {(a, b) for a, b in edges() if LAYERS.index(b) > LAYERS.index(a)}
    assert not upward, f"these look upward: {sorted(upward)}"


def test_the_core_imports_torch_and_nothing_else():
    allowed = {*sys.stdlib_module_names, "torch", "deeppc"}
    for path in (SOURCE / "core").rglob("*.py"):
        for line, name in imports(path):
            assert name.split(".")[0] in allowed, f"{path.name}:{line} imports {name}"
    assert not {b for a, b in edges() if a == "core"}


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["search", "--help"], ["paper", "run", "--help"]])
def test_help_is_quick_because_it_imports_nothing_heavy(words):
    code = (
        "import sys\nfrom deeppc.cli.main import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'matplotlib', 'optuna', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout
