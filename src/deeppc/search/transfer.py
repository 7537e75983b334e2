"""Do tuned settings carry over? The paper's two tables, from finished searches, trained under several seeds.

Across data sets: the best settings found on A, trained on B, beside B's own. Across depths: the best settings of
shallower networks in the deepest one, with ``T = max(T*, L)``, because energy needs L steps to reach the first layer.

    <folder>/transfer.md .json                 the tables
    <folder>/<target>/<source>/                a comparison each, as deeppc compare writes it

Runs that are finished are not run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deeppc.errors import ConfigError, Interrupted, RunError
from deeppc.files import write_json, write_text
from deeppc.report.tables import UNKNOWN, Table, mean_and_deviation
from deeppc.runs.folder import ComparisonFolder
from deeppc.search.plan import task_name
from deeppc.search.space import levels
from deeppc.search.storage import read_study
from deeppc.search.trials import Progress, Trial
from deeppc.training.compare import Row, compare
from deeppc.training.config import TrainConfig, replace
from deeppc.training.events import Callback, Note, ignore


@dataclass(frozen=True)
class Source:
    """A finished search: the settings of its trials, and its best trial."""

    config: TrainConfig
    best: Trial

    @property
    def net(self) -> str:
        return self.config.model + ("" if self.config.norm == "none" else f"-{self.config.norm}")

    @property
    def name(self) -> str:
        return task_name(self.config)


@dataclass(frozen=True)
class Cell:
    """A cell of a table: ``source``'s settings on ``target``'s task, of which one is the target's own."""

    table: str
    column: str
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


Results = dict[Path, Row]  # by the place of the cell


def read(folder: Path, storage: str | None = None) -> Source:
    """Return the search in ``folder``. Raises RunError if not all its trials have ended."""
    plan, trials = read_study(folder, storage)
    progress = Progress(plan, trials)
    if progress.best is None or progress.ended < plan.trials:
        raise RunError(f"The search in {folder} is not finished: resume it with  {plan.resume_command}")
    return Source(plan.config, progress.best)


def cells(sources: Sequence[Source]) -> list[Cell]:
    """Return what these searches can tell. ConfigError if no two of them differ in data set or in depth alone."""
    found = [*_across_data_sets(sources), *_across_depths(sources)]
    if not found:
        raise ConfigError(
            "There is nothing to transfer: name two searches of one algorithm that differ in the data set, or in the "
            "network, but not in both."
        )
    return found


def _across_data_sets(sources: Sequence[Source]) -> Iterator[Cell]:
    for target in sorted(sources, key=lambda s: (s.net, s.config.algorithm)):
        same = [s for s in sources if (s.net, s.config.algorithm) == (target.net, target.config.algorithm)]
        for source in sorted(same, key=lambda s: s is not target) if len(same) > 1 else []:
            column = f"on {target.config.dataset}, settings of {source.config.dataset}"
            yield Cell(f"Across data sets, {target.net}", column, target, source)


def _across_depths(sources: Sequence[Source]) -> Iterator[Cell]:
    for dataset, algorithm in sorted({(s.config.dataset, s.config.algorithm) for s in sources}):
        same = [s for s in sources if (s.config.dataset, s.config.algorithm) == (dataset, algorithm)]
        deepest, *others = sorted(same, key=lambda s: -levels(s.config))
        for source in (deepest, *others) if others else ():
            yield Cell(f"Across depths, {dataset}", f"{deepest.net}, settings of {source.net}", deepest, source)


def transfer(
    sources: Sequence[Source],
    folder: Path,
    seeds: Sequence[int],
    epochs: int | None = None,
    callback: Callback = ignore,
) -> str:
    """Train every cell under ``seeds`` and write the tables. Returns them as Markdown. Resumes where it stopped."""
    found, results, text = cells(sources), Results(), ""
    wanted = {cell.place: cell for cell in found}
    for number, (place, cell) in enumerate(wanted.items(), start=1):
        callback(Note(f"{number} of {len(wanted)}: {cell.target.name} with the settings of {cell.source.name}"))
        begun = ComparisonFolder(folder / place).holds_comparison
        config = replace(
            cell.config, epochs=cell.config.epochs if epochs is None else epochs, run_dir=folder / place, resume=begun
        )
        try:
            results[place] = compare(config, [config.algorithm], seeds, callback, report=False).rows[0]
        except Interrupted as stop:
            stop.args = (f"Stopped in {place}; everything is saved. Give the same command again to resume.",)
            raise
        text = _write(folder, found, results, seeds)
    return text


def _write(folder: Path, found: Sequence[Cell], results: Results, seeds: Sequence[int]) -> str:
    record = [
        {"table": c.table, "column": c.column, "T": c.config.options.get("T"), **results[c.place].table()}
        for c in found
        if c.place in results
    ]
    write_json(folder / "transfer.json", {"seeds": list(seeds), "cells": record})
    head = f"Test accuracy, %: mean ± sample standard deviation over seeds {', '.join(map(str, seeds))}.\n"
    text = "\n".join([head, *(table.markdown() for table in tables(found, results))])
    write_text(folder / "transfer.md", text)
    return text


def tables(found: Sequence[Cell], results: Results) -> list[Table]:
    """Return the tables, a row for each algorithm, as far as they are known."""
    made = []
    for title in dict.fromkeys(cell.table for cell in found):
        words = {(c.target.config.algorithm, c.column): _words(results.get(c.place)) for c in found if c.table == title}
        columns = list(dict.fromkeys(column for _, column in words))
        rows = [[a, *(words.get((a, c), UNKNOWN) for c in columns)] for a in dict.fromkeys(a for a, _ in words)]
        made.append(Table(["algorithm", *columns], rows, title=title))
    return made


def _words(row: Row | None) -> str:
    if row is None:
        return UNKNOWN
    accuracies = [value for value in row.scores.get("test_accuracy", ()) if value is not None]
    return mean_and_deviation(accuracies, scale=100) + (f" ({len(row.diverged)} diverged)" if row.diverged else "")
