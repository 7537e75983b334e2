"""Break the core on purpose, one way at a time, and show that the tests notice: ``make mutants``.

A mutant is one small change of the syntax tree of one file: another comparison or operator, a negated condition, a
number off by one, a statement left out, a step and an arrival exchanged. The core's tests run against it in a process
of their own, and must fail. Mutants are made from the source as it is, so that there is no list to keep.

    python tests/mutants.py                 a fixed sample of SAMPLE mutants, chosen by what they change, not where
    python tests/mutants.py --all           every one
    python tests/mutants.py state.py error  those whose description contains all of these words
    python tests/mutants.py --list [words]  only say what they are

Left out by principle: what an error says (its condition is negated as a whole), docstrings, annotations, ``del`` (which
only frees memory), the plain attributes that ``__init__`` sets (without them nothing runs), and SKIPPED: changes of
speed or memory, and others that change no number.
"""

import ast
import contextlib
import copy
import hashlib
import importlib.util
import io
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torch.export

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "src" / "deeppc" / "core"
SAMPLE = 32
SECONDS = 600  # after which a mutant hangs, and is caught

# First come the tests that notice most mutants of a file soonest: those of its own name, those given here, or oracle 5.
# After them all tests of the core.
ORACLE = ["tests/core/test_oracles.py", "-k", "test_5_equals_the_naive_engine_on_images or test_5_holds_where_pulls"]
NEAR = {"inputs.py": "batch", "algorithms/base.py": "algorithms", "algorithms/options.py": "algorithms"}
NEAR |= dict.fromkeys(("feedback.py", "spectrum.py"), "rivals")
NEAR |= {f"algorithms/{name}.py": "rivals" for name in ("bp", "epc", "hpc", "zil", "fa", "dfa", "tp")}
ALL = ["tests/core"]
OPTIONS = [
    "-x",
    "-q",
    "--hypothesis-profile=quick",  # it is enough to know that something fails
    "-m",
    "not slow",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:xdist",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
]
# By function, or function and text: why its mutants are none.
SKIPPED = {
    "generators": "which generators a device has cannot be seen on a CPU",
    "_require": "an accelerator is asked in another way, which cannot be seen on a CPU",
    "Option.expected": "what an error says",
    "Descent.push self._forces[p].insert(0, term)": "the order of a sum",
    "Descent.stop self._buffers.clear()": "saves moving activities that are not read any more",
    "Inferring.begin self.beta * self.sign(batch)": "to multiply by a sign is to divide by it",
    "ZIL.run False": "without momentum it changes nothing",
    "extremes between[-1] < 1e-05 * max(own)": "when there is nothing more to find",
    "largest 2 * size > most": "which graphs are kept is a matter of memory",
    "_is_whole 0": "copies where none is needed",
    "Strides.turns t < steps and self.send(v, t)": "a turn in which nothing is sent changes nothing",
    "Strides.turns t < steps": "the same",
    "Strides.turns.place 1": "a node that is later than it need be is only held for longer",
    "Strides._half 0.0": "a node that has no step left sends nothing",
    "Wave 1.0": "means nothing without amplitudes",
    "amplitudes": "an estimate, by which one of three ways to the same number is chosen",
    "_sizes": "the same",
    "Wave.difference": "the same",
    "State._small_change self._differences[v] == 'linear'": "which of two predictions with the same slope to take",
    "State._small_change length": "how long a step is that has the same slope",
    "State._extent": "the same",
    "State._small_change step": "the same",
}

COMPARISONS = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}


class Mutant(NamedTuple):
    file: str
    where: str  # the function
    line: int
    before: str
    after: str
    tree: ast.Module

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.where}: {self.before}  ->  {self.after}"

    @property
    def rank(self) -> str:
        """The order in which samples are taken: at random, but the same wherever the line stands."""
        return hashlib.sha256(f"{self.file} {self.where} {self.before} {self.after}".encode()).hexdigest()


def mutants() -> Iterator[Mutant]:
    for path in sorted(CORE.rglob("*.py")):
        if path.name not in ("__init__.py", "memory.py"):  # names only; and what the system does with freed memory
            yield from mutants_of(path.relative_to(CORE).as_posix())


def nearest_tests(file: str) -> list[str]:
    test = f"tests/core/test_{NEAR.get(file, Path(file).stem)}.py"
    return [test] if (ROOT / test).exists() else ORACLE


def mutants_of(file: str) -> Iterator[Mutant]:
    """Every mutant of one file of the core."""
    tree = ast.parse((CORE / file).read_text(encoding="utf-8"))
    for owner, field, index, where in places(tree):
        # a field of the syntax tree is a node, or a list of nodes
        holder, key = (vars(owner), field) if index is None else (getattr(owner, field), index)
        node = holder[key]
        for changed in changes(node, is_statement=index is not None and field in ("body", "orelse")):
            holder[key] = changed
            mutated = ast.fix_missing_locations(copy.deepcopy(tree))
            holder[key] = node
            before, after = (" ".join(ast.unparse(n).split())[:70] for n in (node, changed))
            yield Mutant(file, where, node.lineno, before, after, mutated)


def places(node: ast.AST, where: str = "") -> Iterator[tuple[ast.AST, str, int | None, str]]:
    """Every expression and statement that computes something, as (owner, field, index, name of the function)."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "exc", "cause", "type_params"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            inside = where
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inside = f"{where}.{child.name}".lstrip(".")
            if not isinstance(child, ast.AST) or computes_nothing(child) or skipped(inside, child):
                continue
            if where and not (where.endswith("__init__") and is_attribute(child)):
                yield node, field, index, where
            if not only_raises(child):
                yield from places(child, inside)


def skipped(where: str, node: ast.AST) -> bool:
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return True
    text = ast.unparse(node) if isinstance(node, ast.expr | ast.stmt) else ""
    return where in SKIPPED or f"{where} {text}" in SKIPPED or f"{where} {text.split(' = ')[0]}" in SKIPPED


def computes_nothing(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)  # a docstring
    return isinstance(node, ast.Raise | ast.Delete | ast.Assert | ast.ImportFrom | ast.JoinedStr)


def is_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute)


def changes(node: ast.AST, *, is_statement: bool) -> Iterator[ast.AST]:
    """The nodes that may be put in the place of ``node``."""
    changed = copy.deepcopy(node)
    match changed:
        case ast.Compare(ops=[ast.Lt() | ast.Gt() as op], comparators=[ast.Constant(value=float())]):
            changed.ops = [ast.Gt() if isinstance(op, ast.Lt) else ast.Lt()]  # nothing meets the edge of a tolerance
            yield changed
        case ast.Compare(ops=[op]) if type(op) in COMPARISONS:
            changed.ops = [COMPARISONS[type(op)]()]
            yield changed
        case ast.BinOp(op=op) if type(op) in OPERATORS and not is_text(changed):
            changed.op = OPERATORS[type(op)]()
            yield changed
        case ast.BoolOp(op=op):
            changed.op = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield changed
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            yield operand
        case ast.If(test=test) | ast.IfExp(test=test) if only_raises(node) or not isinstance(
            test, ast.Compare | ast.BoolOp | ast.UnaryOp
        ):
            changed.test = ast.UnaryOp(ast.Not(), test)
            yield changed
        case ast.Constant(value=bool(value)):
            yield ast.copy_location(ast.Constant(not value), node)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.copy_location(ast.Constant(value + 1), node)
        case ast.Call(args=[first, second, *rest]) if is_step(first) and is_step(second):
            changed.args = [second, first, *rest]
            yield changed
        case ast.Expr(value=ast.Call()) | ast.AugAssign() if is_statement:
            yield ast.copy_location(ast.Pass(), node)
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if is_statement:
            yield ast.copy_location(ast.Pass(), node)


def is_text(node: ast.BinOp) -> bool:
    return any(isinstance(n, ast.JoinedStr | ast.Constant) and "'" in ast.unparse(n) for n in (node.left, node.right))


def is_step(node: ast.AST) -> bool:
    return ast.unparse(node).split("[")[0].split(" ")[0] in ("t", "T", "arrival", "net.arrival")


def only_raises(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)


class Loader(SourceFileLoader):
    """Finds and loads one module as a mutant; all others are found as ever."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__("deeppc.core." + mutant.file.removesuffix(".py").replace("/", "."), str(CORE / mutant.file))
        self.tree = mutant.tree

    def find_spec(self, name, path, target=None):
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname):
        return compile(self.tree, self.path, "exec")


def outcome(mutant: Mutant | None) -> tuple[Mutant | None, int, str]:
    """Run the core's tests against a mutant (None: the source as it is); return it, their exit code and output."""

    def hang(*args):
        raise RuntimeError("the mutant hangs")

    signal.signal(signal.SIGALRM, hang)
    signal.alarm(SECONDS)
    os.chdir(ROOT)
    if mutant is not None:
        sys.meta_path.insert(0, Loader(mutant))
    code = 0
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()):
        for tests in [nearest_tests(mutant.file), ALL] if mutant else [ALL]:
            code = pytest.main([*tests, *OPTIONS])
            if code != pytest.ExitCode.OK:
                break
    return mutant, int(code), output.getvalue()[-800:]


def chosen(words: list[str], *, everything: bool) -> list[Mutant]:
    fitting = [m for m in mutants() if all(word in str(m) for word in words)]
    if everything or words:
        return fitting
    return sorted(sorted(fitting, key=lambda m: m.rank)[:SAMPLE], key=str)


def main() -> int:
    """Each mutant in a fork of this process, which has imported torch once and deeppc never.

    First a control: against the source as it is the tests must pass, or they would "catch" anything.
    """
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    tried = chosen(words, everything="--all" in sys.argv)
    if "--list" in sys.argv:
        print("\n".join(map(str, tried)))
        return 0
    torch.set_num_threads(1)
    survivors = 0
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=1) as pool:
        for mutant, code, said in pool.imap_unordered(outcome, [None, *tried]):
            wanted = (1, 2, 4) if mutant else (0,)  # tests failed, or could not even be collected or started
            good, bad = ("caught  ", "SURVIVED") if mutant else ("passed  ", "FAILED  ")
            print(good if code in wanted else bad, mutant or "the source as it is", flush=True)
            if code not in wanted:
                survivors += 1
                print(f"exit code {code}\n{said}", flush=True)
    print(f"{len(tried)} mutants, {survivors} not as they should be")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
