"""The commands of the paper's recipes: ``deeppc paper list``, ``run``, ``record`` and ``claims``.

torch and matplotlib are imported when a command runs, never for ``--help``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

from deeppc.cli.common import Command, Given, seeds_of, words
from deeppc.errors import ConfigError

if TYPE_CHECKING:
    from deeppc.paper.run import Plan
    from deeppc.report.tables import Table

OUT, RECORDS = Path("paper"), Path("records")
ScaleName = Literal["paper", "workstation", "laptop", "smoke"]
WIDEST = 8  # columns that a terminal has room for: a wider table is printed on its side


@dataclass(frozen=True)
class PaperList:
    """List the paper's tables and figures, the recipe that makes each, and the results at hand."""

    out: Path = OUT
    """Folder that holds the results."""

    def run(self, given: Given) -> None:
        from deeppc.paper.run import ELSEWHERE, listed
        from deeppc.report.tables import Table

        _print_words(listed(self.out))
        _print_words(Table(["command", "of the paper"], [*ELSEWHERE.items()], title="by other commands"))
        print("Make one by, e.g.:  deeppc paper run depth --scale laptop")


@dataclass(frozen=True)
class PaperRun:
    """Make tables and figures of the paper again. The same command resumes where it was stopped."""

    names: Positional[tuple[str, ...]]
    """Recipes, as deeppc paper list names them; all: every one."""
    scale: ScaleName = "laptop"
    """How large: paper (its protocol, for GPUs), workstation (2 cores, nights), laptop (2 cores, under an hour a
    recipe), smoke (seconds)."""
    jobs: int = 1
    """Runs at a time, each in a process of its own with its part of the cores."""
    only: str | None = None
    """Train only the cells whose name fits this pattern, e.g. "*PC+S+F VGG10*", and measure no times beside that."""
    render: bool = False
    """Train nothing: make tables and figures from what is there."""
    plan: bool = False
    """Train nothing: say what is left to do, and what it will cost, roughly."""
    out: Path = OUT
    """Folder for the results, and for the runs that recipes share."""
    records: Path = RECORDS
    """Folder of finished cells that deeppc paper record left; they are not trained again."""
    data_dir: Path = Path("data")
    """Folder that holds the data sets."""
    seeds: str = ""
    """Seeds instead of the scale's, with commas between them."""
    epochs: int | None = None
    """Epochs instead of the scale's."""
    limit: int | None = None
    """Training images instead of the scale's."""
    width: float | None = None
    """Width of the networks instead of the scale's."""
    models: str = ""
    """Networks of the recipe to train, instead of the scale's, with commas between them."""
    datasets: str = ""
    """Data sets of the recipe to train on, instead of the scale's, with commas between them."""

    def run(self, given: Given) -> None:
        from deeppc.paper.progress import display
        from deeppc.paper.run import jobs, render, run
        from deeppc.report.tables import duration

        if self.jobs < 1:
            raise ConfigError(f"--jobs is {self.jobs}, but must be 1 or more.")
        plans = self._plans()
        if self.render:
            _print_results([render(planned) for planned in plans])
            return
        todo = jobs(plans, self.only)
        for planned in plans:
            left, runs = len(planned.todo(self.only)), sum(len(cell.seeds) for cell in planned.cells)
            print(f"{planned.recipe.name}, scale {planned.scale.name}: {left} of {runs} runs to do")
        cost = duration(sum(job.cost for job in todo) / self.jobs)
        print(f"{len(todo)} different runs, roughly {cost} with {self.jobs} at a time")
        if not self.plan:
            with display(todo) as show:
                reports = run(plans, todo, self.jobs, show, tell=print, work=self.only is None)
            _print_results(reports)

    def _plans(self) -> list[Plan]:
        from deeppc.paper.recipe import NAMES
        from deeppc.paper.run import plan
        from deeppc.paper.store import Store

        if not self.names:
            raise ConfigError(f"Say which recipe to run: {', '.join(NAMES)}, or all.")
        overrides: dict[str, Any] = {
            "seeds": tuple(seeds_of(self.seeds)) or None,
            "models": tuple(words("--models", self.models)) or None,
            "datasets": {name: name for name in words("--datasets", self.datasets)} or None,
            **{name: getattr(self, name) for name in ("epochs", "limit", "width")},
        }
        store, names = Store(self.out, self.records), NAMES if self.names == ("all",) else dict.fromkeys(self.names)
        return [plan(name, self.scale, self.out, self.data_dir, store=store, **overrides) for name in names]


@dataclass(frozen=True)
class PaperRecord:
    """Copy what is finished, without weights, to a folder small enough to be kept in a repository."""

    out: Path = OUT
    """Folder that holds the runs."""
    to: Path = RECORDS
    """Folder for the records."""

    def run(self, given: Given) -> None:
        from deeppc.paper.store import keep_records

        written, there = keep_records(self.out, self.to)
        print(f"{written} records written, {there} in {self.to}")


@dataclass(frozen=True)
class PaperClaims:
    """Check the paper's statements against the results at hand: holds, does not hold, or not enough data."""

    results: Path = OUT
    """Folder that holds the results."""
    scale: ScaleName | None = None
    """Results of this scale only. None: of each recipe those of the largest scale, but never smoke."""
    markdown: Path | None = None
    """Write the table to this file, too."""

    def run(self, given: Given) -> None:
        from deeppc.files import write_text
        from deeppc.paper.claims import as_table, check, gather

        table = as_table(check(gather(self.results, self.scale)))
        if self.markdown is not None:
            write_text(self.markdown, table.markdown())
        _print_words(table)
        if self.markdown is not None:
            print(self.markdown)


def _print_words(table: Table) -> None:
    """Print a table of sentences: lines between them, nothing to the right."""
    from rich.box import ROUNDED
    from rich.console import Console

    shown = table.rich()
    shown.show_lines, shown.box = True, ROUNDED
    for column in shown.columns:
        column.justify = "left"
    Console().print(shown)


def _print_results(reports: list[Path]) -> None:
    from rich.console import Console

    from deeppc.paper.results import read
    from deeppc.report.tables import Table

    for report in reports:
        found = read(report.parent)
        assert found is not None, "it has just been written"
        for matrix in found.tables.values():
            table = matrix.table()
            lines = [table.columns, *table.rows]
            if len(table.columns) > WIDEST:
                lines = list(zip(*lines, strict=True))
            note = "in parentheses: the paper's value"
            Console().print(Table([str(name) for name in lines[0]], lines[1:], matrix.title, note).rich())
        print(f"saved: {report}")


COMMANDS: dict[str, type[Command]] = {
    "paper list": PaperList,
    "paper run": PaperRun,
    "paper record": PaperRecord,
    "paper claims": PaperClaims,
}
