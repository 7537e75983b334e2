"""Do tuned settings carry over? The paper's two tables, from finished searches, trained under several seeds.

Across data sets: the best settings found on A, trained on B, beside B's own. Across depths: the best settings of
shallower networks in the deepest one, with ``T = max(T*, L)``, because energy needs L steps to reach the first layer.

    <folder>/transfer.md .json                 the tables
    <folder>/<target>/<source>/                a comparison each, as deeppc compare writes it

Runs that are finished are not run again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeppc.errors import ConfigError, Interrupted, RunError
from deeppc.files import write_json, write_text
from deeppc.report.tables import UNKNOWN, Table, mean_and_deviation
from deeppc.runs.folder import ComparisonFolder
from deeppc.search import plan as plans
from deeppc.search.plan import Plan
from deeppc.search.space import levels
from deeppc.search.storage import open_study
from deeppc.search.trials import Progress, Trial
from deeppc.training.compare import Row, compare
from deeppc.training.config import TrainConfig, replace
from deeppc.training.events import Callback, Note, ignore


@dataclass(frozen=True)
class Source:
    """A finished search and its best trial."""

    plan: Plan
    best: Trial

    @property
    def config(self) -> TrainConfig:
        return self.plan.config

    @property
    def net(self) -> str:
        return self.config.model + ("" if self.config.norm == "none" else f"-{self.config.norm}")

    @property
    def name(self) -> str:
        return plans.task_name(self.config)


@dataclass(frozen=True)
class Transfer:
    """``source``'s settings on ``target``'s task. They are the same for the settings that are the target's own."""

    target: Source
    source: Source

    @property
    def config(self) -> TrainConfig:
        params = dict(self.source.best.params)
        steps = params.get("T")
        if isinstance(steps, int) and self.target.net != self.source.net:
            params["T"] = max(steps, levels(self.target.config))
        return replace(self.target.config, **params, resume=False)

    @property
    def place(self) -> Path:
        return Path(self.target.name) / self.source.name


@dataclass
class Grid:
    """One of the paper's tables: transfers by column (the task, and whose settings it was given) and algorithm."""

    title: str
    columns: dict[str, dict[str, Transfer]] = field(default_factory=lambda: defaultdict(dict))

    def put(self, column: str, target: Source, source: Source) -> None:
        self.columns[column][target.config.algorithm] = Transfer(target, source)

    def table(self, results: dict[Path, Row]) -> Table:
        algorithms = dict.fromkeys(a for column in self.columns.values() for a in column)
        rows = [[a, *(_words(column.get(a), results) for column in self.columns.values())] for a in algorithms]
        return Table(["algorithm", *self.columns], rows, title=self.title)

    def record(self, results: dict[Path, Row]) -> dict[str, dict[str, Any]]:
        """What was trained so far, by column and algorithm."""
        return {
            name: {
                a: {**results[t.place].table(), "T": t.config.options.get("T")}
                for a, t in column.items()
                if t.place in results
            }
            for name, column in self.columns.items()
        }


def read(folder: Path, storage: str | None = None) -> Source:
    """The search in ``folder``. Raises RunError if not all its trials have ended."""
    plan = plans.read(folder, storage)
    with open_study(plan) as session:
        progress = Progress(plan, session.trials())
    if progress.best is None or progress.ended < plan.trials:
        raise RunError(f"The search in {folder} is not finished: resume it with  {plan.resume_command}")
    return Source(plan, progress.best)


def grids(sources: Sequence[Source]) -> list[Grid]:
    """What these searches can tell. ConfigError if no two of them differ in data set alone, or in depth alone."""
    found = [grid for grid in (*_across_data_sets(sources), *_across_depths(sources)) if grid.columns]
    if not found:
        raise ConfigError(
            "There is nothing to transfer: name two searches of one algorithm that differ in the data set, or in the "
            "network, but not in both."
        )
    return found


def transfer(
    sources: Sequence[Source],
    folder: Path,
    seeds: Sequence[int],
    epochs: int | None = None,
    callback: Callback = ignore,
) -> str:
    """Train every transfer under ``seeds`` and write the tables. Returns them as Markdown. Resumes where it stopped."""
    found = grids(sources)
    wanted = {t.place: t for grid in found for column in grid.columns.values() for t in column.values()}
    results: dict[Path, Row] = {}
    for number, (place, cell) in enumerate(wanted.items(), start=1):
        callback(Note(f"{number} of {len(wanted)}: {cell.target.name} with the settings of {cell.source.name}"))
        config = replace(cell.config, epochs=epochs or cell.config.epochs, run_dir=folder / place)
        config = replace(config, resume=ComparisonFolder(folder / place).holds_comparison)
        try:
            results[place] = compare(config, [config.algorithm], seeds, callback).rows[0]
        except Interrupted as stop:
            stop.args = (f"Stopped in {place}; everything is saved. Give the same command again to resume.",)
            raise
        text = _write(folder, found, results, seeds)
    return text


def _across_data_sets(sources: Sequence[Source]) -> Iterator[Grid]:
    for net, same in _grouped(sources, lambda s: s.net):
        grid = Grid(f"Across data sets, {net}")
        for _, rivals in _grouped(same, lambda s: s.config.algorithm):
            for target in rivals if len({s.config.dataset for s in rivals}) > 1 else []:
                for source in sorted(rivals, key=lambda s: s is not target):
                    grid.put(f"on {target.config.dataset}, settings of {source.config.dataset}", target, source)
        yield grid


def _across_depths(sources: Sequence[Source]) -> Iterator[Grid]:
    for dataset, same in _grouped(sources, lambda s: s.config.dataset):
        grid = Grid(f"Across depths, {dataset}")
        for _, rivals in _grouped(same, lambda s: s.config.algorithm):
            if len({s.net for s in rivals}) > 1:
                deepest, *others = sorted(rivals, key=lambda s: -levels(s.config))
                for source in (deepest, *others):
                    grid.put(f"{deepest.net}, settings of {source.net}", deepest, source)
        yield grid


def _grouped(sources: Sequence[Source], key: Callable[[Source], str]) -> list[tuple[str, list[Source]]]:
    return [(value, [s for s in sources if key(s) == value]) for value in sorted({key(s) for s in sources})]


def _write(folder: Path, found: Sequence[Grid], results: dict[Path, Row], seeds: Sequence[int]) -> str:
    tables = [{"title": grid.title, "columns": grid.record(results)} for grid in found]
    write_json(folder / "transfer.json", {"seeds": list(seeds), "tables": tables})
    head = f"Test accuracy, %: mean ± sample standard deviation over seeds {', '.join(map(str, seeds))}.\n"
    text = "\n".join([head, *(grid.table(results).markdown() for grid in found)])
    write_text(folder / "transfer.md", text)
    return text


def _words(cell: Transfer | None, results: dict[Path, Row]) -> str:
    if cell is None or cell.place not in results:
        return UNKNOWN
    row = results[cell.place]
    lost = f" ({len(row.diverged)} diverged)" if row.diverged else ""
    accuracies = [value for value in row.scores.get("test_accuracy", ()) if value is not None]
    return mean_and_deviation(accuracies, scale=100) + lost
