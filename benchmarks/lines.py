"""Count the lines of the core, file by file, at an earlier revision and now: python benchmarks/lines.py 2d59d06

All lines, and in brackets those of code: without blank lines, comments and docstrings.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT, CORE = Path(__file__).resolve().parents[1], "src/deeppc/core"
OTHERS = ("src/deeppc/models/from_torch.py", "src/deeppc/models/tracing.py")


def counted(text: str) -> tuple[int, int]:
    """Return how many lines there are, and how many of them are code."""
    lines = text.splitlines()
    blank = {i for i, line in enumerate(lines, 1) if not line.strip() or line.strip().startswith("#")}
    for part in ast.walk(ast.parse(text)):
        if isinstance(part, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(part, clean=False):
            blank |= set(range(part.body[0].lineno, (part.body[0].end_lineno or 0) + 1))
    return len(lines), len(lines) - len(blank)


def git(*words: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True).stdout


def main(revision: str) -> None:
    names = git("ls-tree", "-r", "--name-only", revision, CORE).split()
    before = {name: counted(git("show", f"{revision}:{name}")) for name in names}
    now = {str(p.relative_to(ROOT)): counted(p.read_text()) for p in sorted((ROOT / CORE).rglob("*.py"))}
    print(f"| file | {revision} | now |\n|---|---|---|")
    for name in sorted({*before, *now}):
        old, new = (table.get(name, (0, 0)) for table in (before, now))
        print(f"| {name.removeprefix(CORE + '/')} | {old[0]:,} ({old[1]:,}) | {new[0]:,} ({new[1]:,}) |")
    totals = [tuple(map(sum, zip(*table.values(), strict=True))) for table in (before, now)]
    print("| all | " + " | ".join(f"{lines:,} ({code:,})" for lines, code in totals) + " |")
    for name in OTHERS:
        print(f"| {name} | | {'{:,} ({:,})'.format(*counted((ROOT / name).read_text()))} |")


if __name__ == "__main__":
    main(sys.argv[1])
