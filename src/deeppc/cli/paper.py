"""The commands of the paper's recipes: ``deeppc paper list``, ``run`` and ``claims``.

torch and matplotlib are imported when a command runs, never for ``--help``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tyro.conf import Positional

from deeppc.cli.common import Command, NoBase, parts, seeds_of
from deeppc.errors import ConfigError

if TYPE_CHECKING:
    from deeppc.paper.claims import Verdict
    from deeppc.paper.grid import Job
    from deeppc.paper.run import Plan

OUT = Path("paper")
WIDEST = 8  # columns that a terminal has room for: a wider table is printed on its side


@dataclass(frozen=True)
class PaperList(NoBase):
    """List the paper's tables and figures, the recipe that makes each, and the results at hand."""

    out: Path = OUT
    """Folder that holds the results."""

    def run(self) -> None:
        from rich.console import Console
        from rich.table import Table

        from deeppc.paper.run import ELSEWHERE, listed

        table = Table("recipe", "of the paper", "what it shows", "results", title=f"results in {self.out}")
        for recipe in listed(self.out):
            there = "\n".join(f"{scale}: {state}" for scale, state in recipe.at_hand.items())
            table.add_row(recipe.name, "\n".join(recipe.paper) or "not in it", recipe.shows, there or "none")
        others = Table("command", "of the paper", title="by other commands")
        for words, command in ELSEWHERE.items():
            others.add_row(command, words)
        Console().print(table, others, "Make one by, e.g.:  deeppc paper run depth --scale laptop")


@dataclass(frozen=True)
class PaperRun(NoBase):
    """Make tables and figures of the paper again. The same command goes on where it was stopped."""

    names: Positional[tuple[str, ...]]
    """Recipes, as deeppc paper list names them; all: every one."""
    scale: Literal["paper", "laptop", "smoke"] = "laptop"
    """How large: paper (its protocol, for GPUs), laptop (under an hour a recipe on 2 cores), smoke (seconds)."""
    jobs: int = 1
    """Runs at a time, each in a process of its own with its part of the cores."""
    only: str | None = None
    """Train only the cells whose name fits this pattern, e.g. "*PC+S+F VGG10*"."""
    render: bool = False
    """Train nothing: make tables and figures from what is there."""
    plan: bool = False
    """Train nothing: say what is left to do, and what it will cost, roughly."""
    out: Path = OUT
    """Folder for the results, and for the runs that recipes share."""
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

    def run(self) -> None:
        from deeppc.paper.recipe import NAMES
        from deeppc.paper.run import plan

        if self.jobs < 1:
            raise ConfigError(f"--jobs is {self.jobs}, but must be 1 or more.")
        names = NAMES if self.names == ("all",) else self.names
        if not names:
            raise ConfigError(f"Say which recipe to run: {', '.join(NAMES)}, or all.")
        plans = [plan(name, self.scale, self.out, self.data_dir, **self._overrides()) for name in names]
        for planned in plans:
            planned.jobs(self.only)  # a pattern that fits nothing is told before anything is trained
        for planned in plans:
            if self.plan:
                self._show_plan(planned)
            else:
                self._run(planned)

    def _overrides(self) -> dict[str, Any]:
        return {
            "seeds": tuple(seeds_of(self.seeds)) or None,
            "epochs": self.epochs,
            "limit": self.limit,
            "width": self.width,
            "models": tuple(parts(self.models)) or None,
            "datasets": {name: name for name in parts(self.datasets)} or None,
        }

    def _run(self, planned: Plan) -> None:
        from rich.console import Console
        from rich.text import Text

        from deeppc.paper.progress import display
        from deeppc.paper.run import render, run

        console = Console(highlight=False)
        if self.render:
            report = render(planned)
        elif planned.recipe.work is not None:
            with console.status("") as status:
                report = run(planned, [], tell=status.update)
        else:
            todo = self._show_plan(planned)
            with display(todo, console) as listener:
                report = run(planned, todo, self.jobs, listener)
        _print_result(planned.folder)
        console.print(Text(f"saved: {report}"), soft_wrap=True)

    def _show_plan(self, planned: Plan) -> list[Job]:
        from deeppc.paper.progress import duration
        from deeppc.paper.run import estimate

        todo = planned.jobs(self.only)
        whole = len(planned.cells) * len(planned.scale.seeds)
        words = f"{planned.recipe.name}, scale {planned.scale.name}: {len(todo)} of {whole} runs to do"
        if todo:
            words += f", roughly {duration(estimate(todo, self.jobs))} with {self.jobs} at a time"
        print(words)
        return todo


@dataclass(frozen=True)
class PaperClaims(NoBase):
    """Check the paper's statements against the results at hand: holds, does not hold, or not enough data."""

    results: Path = OUT
    """Folder that holds the results."""
    scale: Literal["paper", "laptop", "smoke"] | None = None
    """Results of this scale only. None: of each recipe those of the largest scale, but never smoke."""
    markdown: Path | None = None
    """Write the table to this file, too."""

    def run(self) -> None:
        from deeppc.files import replacing
        from deeppc.paper.claims import as_markdown, check, gather

        verdicts = check(gather(self.results, self.scale))
        _print_verdicts(verdicts)
        if self.markdown is not None:
            with replacing(self.markdown) as temporary:
                temporary.write_text(as_markdown(verdicts), encoding="utf-8")
            print(self.markdown)


def _print_result(folder: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    from deeppc.paper.results import read

    found = read(folder)
    assert found is not None, "it has just been written"
    for made in found.tables.values():
        rows = [["", *made.columns], *([row, *(made.text(row, c) for c in made.columns)] for row in made.rows)]
        if len(made.columns) > WIDEST:
            rows = [list(column) for column in zip(*rows, strict=True)]
        table = Table(*rows[0], title=made.title, caption="in parentheses: the paper's value")
        for line in rows[1:]:
            table.add_row(*line)
        Console().print(table)


def _print_verdicts(verdicts: Sequence[Verdict]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("claim", "", "numbers", show_lines=True)
    styles = {"holds": "green", "does not hold": "red", "not enough data": "dim"}
    for verdict in verdicts:
        table.add_row(verdict.claim, f"[{styles[verdict.answer]}]{verdict.answer}[/]", verdict.numbers)
    Console().print(table)


COMMANDS: dict[str, type[Command]] = {"paper list": PaperList, "paper run": PaperRun, "paper claims": PaperClaims}
