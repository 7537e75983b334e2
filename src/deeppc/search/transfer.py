"""Do tuned settings carry over? The paper's two tables, from finished searches, trained under several seeds.

Across data sets: the best settings found on A, trained on B, beside B's own. Across depths: the best settings of
shallower networks in the deepest one, with ``T = max(T*, L)``, because energy needs L steps to reach the first layer.

    <folder>/transfer.md .json                 the tables
    <folder>/<target>/<source>/                a comparison each, as deeppc compare writes it

Runs that are finished are not run again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from deeppc.errors import ConfigError, Interrupted, RunError, UserError
from deeppc.files import replacing, write_json
from deeppc.search import plan as plans
from deeppc.search import storage as storages
from deeppc.search.plan import Plan
from deeppc.search.records import Trial, best_of, trials_of
from deeppc.training.compare import COMPARISON, Row, compare, spread
from deeppc.training.config import TrainConfig
from deeppc.training.events import Listener, Note, nobody


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
        return f"{self.config.dataset}-{self.net}-{self.config.algorithm}"


@dataclass(frozen=True)
class Cell:
    """``source``'s settings on ``target``'s task. They are the same for the settings that are the target's own."""

    target: Source
    source: Source

    @property
    def config(self) -> TrainConfig:
        params = dict(self.source.best.params)
        steps = params.get("T")
        if isinstance(steps, int) and self.target.net != self.source.net:
            params["T"] = max(steps, levels(self.target.config))
        return dataclasses.replace(self.target.config, **params, resume=False)  # type: ignore[arg-type]


@dataclass
class Table:
    """One of the paper's tables. A line is an algorithm; a column names the task and whose settings it was given."""

    title: str
    columns: list[str] = field(default_factory=list)
    lines: dict[str, dict[str, Cell]] = field(default_factory=dict)

    def put(self, column: str, cell: Cell) -> None:
        if column not in self.columns:
            self.columns.append(column)
        self.lines.setdefault(cell.target.config.algorithm, {})[column] = cell


class Stopped(Interrupted):
    """Ctrl-C between two runs or within one."""

    def __init__(self, where: str, signal: int) -> None:
        UserError.__init__(self, f"Stopped in {where}; everything is saved. The same command again goes on.")
        self.signal, self.exit_code = signal, 128 + signal


def read(folder: Path, storage: str | None = None) -> Source:
    """The search in ``folder``. Raises RunError if it has not settled all its trials."""
    from deeppc.search import ledger

    plan = plans.read(folder, storage)
    with storages.open_study(plan) as session:
        best, finished = best_of(trials_of(session)), ledger.all_settled(session)
    if best is None or not finished:
        raise RunError(f"The search in {folder} is not finished: go on with  deeppc search --resume --run-dir {folder}")
    return Source(plan, best)


def tables(sources: Sequence[Source]) -> list[Table]:
    """What these searches can tell. ConfigError if no two of them differ in data set alone, or in depth alone."""
    found = [t for t in (*_across_data_sets(sources), *_across_depths(sources)) if t.lines]
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
    on_event: Listener = nobody,
) -> str:
    """Train every cell under ``seeds`` and write the tables. Returns them as markdown. Goes on where it stopped."""
    found = tables(sources)
    folder.mkdir(parents=True, exist_ok=True)
    cells = {(c.target.name, c.source.name): c for t in found for line in t.lines.values() for c in line.values()}
    results: dict[tuple[str, str], Row] = {}
    for number, (key, cell) in enumerate(cells.items(), start=1):
        on_event(Note(f"{number} of {len(cells)}: {key[0]} with the settings of {key[1]}"))
        results[key] = _train(cell, folder / key[0] / key[1], seeds, epochs, folder, on_event)
        _write(folder, found, results, seeds)
    return _markdown(found, results, seeds)


def levels(config: TrainConfig) -> int:
    """L, the number of steps that the wave needs."""
    from deeppc.models import build

    return build(config.model, width=0.01, aux=config.aux).L


def _across_data_sets(sources: Sequence[Source]) -> Iterator[Table]:
    for net, same in _grouped(sources, lambda s: s.net):
        table = Table(f"Across data sets, {net}")
        for _, rivals in _grouped(same, lambda s: s.config.algorithm):
            for target in rivals if len({s.config.dataset for s in rivals}) > 1 else []:
                for source in sorted(rivals, key=lambda s: s is not target):
                    table.put(f"on {target.config.dataset}, settings of {source.config.dataset}", Cell(target, source))
        yield table


def _across_depths(sources: Sequence[Source]) -> Iterator[Table]:
    for dataset, same in _grouped(sources, lambda s: s.config.dataset):
        table = Table(f"Across depths, {dataset}")
        for _, rivals in _grouped(same, lambda s: s.config.algorithm):
            if len({s.net for s in rivals}) > 1:
                deepest, *others = sorted(rivals, key=lambda s: -levels(s.config))
                for source in (deepest, *others):
                    table.put(f"{deepest.net}, settings of {source.net}", Cell(deepest, source))
        yield table


def _grouped(sources: Sequence[Source], key: Callable[[Source], str]) -> Iterator[tuple[str, list[Source]]]:
    for value, members in groupby(sorted(sources, key=key), key=key):
        yield value, list(members)


def _train(cell: Cell, place: Path, seeds: Sequence[int], epochs: int | None, folder: Path, on_event: Listener) -> Row:
    config = dataclasses.replace(cell.config, run_dir=place, resume=(place / COMPARISON).exists())
    if epochs is not None:
        config = dataclasses.replace(config, epochs=epochs)
    try:
        return compare(config, [config.algorithm], seeds, on_event).rows[0]
    except Interrupted as stop:
        raise Stopped(str(place.relative_to(folder)), stop.signal) from None


def _write(folder: Path, found: Sequence[Table], results: dict[tuple[str, str], Row], seeds: Sequence[int]) -> None:
    content = [
        {
            "title": table.title,
            "rows": {
                algorithm: {column: _entry(cell, results) for column, cell in line.items()}
                for algorithm, line in table.lines.items()
            },
        }
        for table in found
    ]
    write_json(folder / "transfer.json", {"seeds": list(seeds), "tables": content})
    with replacing(folder / "transfer.md") as temporary:
        temporary.write_text(_markdown(found, results, seeds), encoding="utf-8")


def _entry(cell: Cell, results: dict[tuple[str, str], Row]) -> dict[str, Any] | None:
    row = results.get((cell.target.name, cell.source.name))
    if row is None:
        return None
    return {"test_accuracy": row.test_accuracy, "diverged": row.diverged, "T": cell.config.T, "runs": row.runs}


def _markdown(found: Sequence[Table], results: dict[tuple[str, str], Row], seeds: Sequence[int]) -> str:
    text = [f"Test accuracy, %: mean ± sample standard deviation over seeds {', '.join(map(str, seeds))}."]
    for table in found:
        text += ["", f"## {table.title}", "", f"| algorithm | {' | '.join(table.columns)} |"]
        text.append("|" + " --- |" * (1 + len(table.columns)))
        for algorithm, line in table.lines.items():
            cells = [_words(line.get(column), results) for column in table.columns]
            text.append(f"| {algorithm} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def _words(cell: Cell | None, results: dict[tuple[str, str], Row]) -> str:
    row = results.get((cell.target.name, cell.source.name)) if cell is not None else None
    if row is None:
        return "–"
    lost = f" ({len(row.diverged)} diverged)" if row.diverged else ""
    if not row.test_accuracy:
        return f"–{lost}"
    mean, deviation = spread([100 * a for a in row.test_accuracy])
    return f"{mean:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}") + lost
