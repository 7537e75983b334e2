"""Several algorithms under the same seeds: the same initial weights, the same batches, one table with its spread.

    <folder>/comparison.json .md .csv     the table
    <folder>/<algorithm>-<seed>/          a whole run folder each

Runs that are finished are not run again; one that was interrupted goes on. A run that diverges is a result, too: it is
named in the table, and the others go on.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeppc.errors import ConfigError, DivergedError, Interrupted, RunError
from deeppc.files import read_json, replacing, unused, write_json
from deeppc.runs.folder import MANIFEST
from deeppc.training.config import TrainConfig, for_algorithm, from_table, to_table
from deeppc.training.events import Listener, Note, nobody

COMPARISON = "comparison.json"


@dataclass
class Row:
    """One algorithm's finished runs, by seed, and what became of the others."""

    algorithm: str
    runs: list[str] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)
    test_top5: list[float] = field(default_factory=list)
    validation_accuracy: list[float | None] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    diverged: list[str] = field(default_factory=list)

    def add(self, run: str, result: dict[str, Any]) -> None:
        self.runs.append(run)
        self.test_accuracy.append(result["test_accuracy"])
        self.test_top5.append(result["test_top5"])
        self.validation_accuracy.append(result["validation_accuracy"])
        self.seconds.append(result["seconds"])


@dataclass(frozen=True)
class Comparison:
    folder: Path
    config: TrainConfig
    seeds: tuple[int, ...]
    rows: list[Row]

    def table(self) -> dict[str, Any]:
        """What ``comparison.json`` holds. ``runs`` are folders inside the comparison's own."""
        return {
            "rows": [vars(row) for row in self.rows],
            "algorithms": [row.algorithm for row in self.rows],
            "seeds": list(self.seeds),
            "config": to_table(self.config),
        }


def compare(
    config: TrainConfig, algorithms: Sequence[str], seeds: Sequence[int], on_event: Listener = nobody
) -> Comparison:
    """Train each algorithm with each seed; ``config`` says the rest. Written down after every run."""
    _check(algorithms, seeds)
    folder = config.run_dir or unused(Path("runs") / f"compare-{config.dataset}-{config.model}")
    if (folder / COMPARISON).exists() and not config.resume:
        raise RunError(f"{folder} already holds a comparison: go on with it by --resume, or choose another --run-dir.")
    comparison = Comparison(folder, config, tuple(seeds), [Row(a) for a in algorithms])
    _create(folder)
    _write(comparison)
    total = len(algorithms) * len(seeds)
    for number, (seed, row) in enumerate(((s, r) for s in seeds for r in comparison.rows), start=1):
        name = f"{row.algorithm}-{seed}"
        on_event(Note(f"{number} of {total}: {row.algorithm}, seed {seed}"))
        try:
            row.add(name, _run(for_algorithm(config, row.algorithm, seed=seed, run_dir=folder / name), on_event))
        except DivergedError as error:
            row.diverged.append(name)
            on_event(Note(str(error)))
        except Interrupted as stop:
            raise Interrupted(f"in {name}", "compare", folder, stop.signal) from None
        _write(comparison)
    return comparison


def saved_comparison(folder: Path) -> tuple[TrainConfig, list[str], list[int]]:
    """Settings, algorithms and seeds of the comparison in ``folder``, ready to go on with it."""
    if not (folder / COMPARISON).exists():
        raise RunError(f"There is no comparison to resume in {folder}: start one without --resume.")
    table = read_json(folder / COMPARISON)
    try:
        config = from_table({**table["config"], "run_dir": folder, "resume": True}, str(folder / COMPARISON))
        return config, [str(a) for a in table["algorithms"]], [int(s) for s in table["seeds"]]
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder / COMPARISON} is damaged: {error!r}.") from error


def spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and the sample standard deviation (of n - 1); a single value has none."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


HEADINGS = ("algorithm", "test accuracy, %", "top-5, %", "validation, %", "seconds", "runs")


def cells(row: Row) -> tuple[str, ...]:
    """The row as text: mean ± standard deviation."""
    validation = [v for v in row.validation_accuracy if v is not None]
    columns = [_cell(row.test_accuracy, 100), _cell(row.test_top5, 100), _cell(validation, 100), _cell(row.seconds, 1)]
    runs = str(len(row.runs)) + (f", {len(row.diverged)} diverged" if row.diverged else "")
    return row.algorithm, *columns, runs


def markdown(comparison: Comparison) -> str:
    c = comparison.config
    lines = [
        f"{c.dataset}, {c.model} at width {c.width:g}, at most {c.epochs} epochs, seeds "
        f"{', '.join(map(str, comparison.seeds))}; epoch selected by {c.select}; mean ± standard deviation over seeds.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + " --- |" * len(HEADINGS),
        *("| " + " | ".join(cells(row)) + " |" for row in comparison.rows),
    ]
    return "\n".join(lines) + "\n"


def as_csv(comparison: Comparison) -> str:
    """One line per run, for a spreadsheet to add up."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["algorithm", "run", "test_accuracy", "test_top5", "validation_accuracy", "seconds"])
    for r in comparison.rows:
        columns = zip(r.runs, r.test_accuracy, r.test_top5, r.validation_accuracy, r.seconds, strict=True)
        writer.writerows([r.algorithm, *values] for values in columns)
        writer.writerows([r.algorithm, run, "diverged", "", "", ""] for run in r.diverged)
    return text.getvalue()


def _check(algorithms: Sequence[str], seeds: Sequence[int]) -> None:
    from deeppc.core.algorithms import Algorithm

    if not algorithms or not seeds:
        raise ConfigError("Say what to compare, e.g. --algorithms bp,pc+s+f --seeds 0,1,2.")
    for values in (algorithms, seeds):
        if len(set(values)) < len(values):
            raise ConfigError(f"Named twice: {', '.join(map(str, values))}. Name each algorithm and seed once.")
    for name in algorithms:
        try:
            Algorithm.parse(name)
        except ValueError as error:
            raise ConfigError(str(error)) from error


def _create(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"The folder {folder} cannot be written: {error.strerror or error}.") from error


def _run(config: TrainConfig, on_event: Listener) -> dict[str, Any]:
    """The result of one run: from the start, or of what is left of it (of a finished one: nothing)."""
    from deeppc.training.fit import train

    assert config.run_dir is not None
    begun = (config.run_dir / MANIFEST).exists()
    return train(dataclasses.replace(config, resume=begun), on_event).table()


def _write(comparison: Comparison) -> None:
    write_json(comparison.folder / COMPARISON, comparison.table())
    for name, text in (("comparison.md", markdown(comparison)), ("comparison.csv", as_csv(comparison))):
        with replacing(comparison.folder / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def _cell(values: Sequence[float], scale: float) -> str:
    if not values:
        return "-"
    mean, deviation = spread([scale * v for v in values])
    return f"{mean:.2f}" if deviation is None else f"{mean:.2f} ± {deviation:.2f}"
