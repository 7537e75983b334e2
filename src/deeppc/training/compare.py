"""Several algorithms under the same seeds: the same initial weights, the same batches, one table with its spread.

Runs that are finished are not run again; one that was interrupted is resumed. A run that diverges is a result, too: it
is named in the table, and the others are still run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeppc.core.algorithms import options_for
from deeppc.errors import ConfigError, DivergedError, Interrupted, RunError
from deeppc.files import unused, write_json, write_text
from deeppc.report.tables import Table, mean_and_deviation
from deeppc.runs.folder import ComparisonFolder
from deeppc.training.config import TrainConfig, flag, from_table, meaningful, replace, task_name, to_table
from deeppc.training.events import Callback, Note, ignore
from deeppc.training.result import RunResult


@dataclass
class Row:
    """One algorithm's finished runs, by seed: their scores by name (``test_accuracy``), and those that diverged."""

    algorithm: str
    runs: list[str] = field(default_factory=list)
    scores: dict[str, list[float | None]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    diverged: list[str] = field(default_factory=list)

    def add(self, run: str, result: Mapping[str, Any]) -> None:
        """Take in the table of a run's result."""
        self.runs.append(run)
        self.seconds.append(result["seconds"])
        for name, value in result.items():
            if name.startswith(("test_", "validation_")):
                self.scores.setdefault(name, []).append(value)

    def table(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "runs": self.runs,
            **self.scores,
            "seconds": self.seconds,
            "diverged": self.diverged,
        }


@dataclass(frozen=True)
class Comparison:
    """``options`` of algorithms, besides those of ``config``: each algorithm takes the ones it has."""

    folder: Path
    config: TrainConfig
    seeds: tuple[int, ...]
    rows: list[Row]
    options: Mapping[str, Any] = field(default_factory=dict)

    def table(self) -> dict[str, Any]:
        """Return what ``comparison.json`` holds. ``runs`` are folders inside the comparison's own."""
        return {
            "rows": [row.table() for row in self.rows],
            "algorithms": [row.algorithm for row in self.rows],
            "seeds": list(self.seeds),
            "config": to_table(self.config),
            "options": dict(self.options),
        }

    def summary(self) -> Table:
        """Return one row for each algorithm: mean ± standard deviation over seeds."""
        names, c = self._scores(), self.config
        note = (
            f"{c.dataset}, {c.model} at width {c.width:g}, at most {c.epochs} epochs, seeds "
            f"{', '.join(map(str, self.seeds))}; epoch selected by {c.select}; mean ± standard deviation over seeds."
        )
        return Table(
            ["algorithm", *map(_heading, names), "seconds", "runs"],
            [
                [row.algorithm, *(_cell(row, name) for name in names), mean_and_deviation(row.seconds), _count(row)]
                for row in self.rows
            ],
            note=note,
        )

    def _scores(self) -> list[str]:
        """The names of all scores, those of the test first."""
        names = dict.fromkeys(name for row in self.rows for name in row.scores)
        return sorted(names, key=lambda name: name.startswith("validation"))

    def runs(self) -> Table:
        """Return one row for each run, for a spreadsheet to add up."""
        names = self._scores()
        lines: list[list[object]] = []
        for row in self.rows:
            for i, run in enumerate(row.runs):
                scores = [row.scores[name][i] if name in row.scores else None for name in names]
                lines.append([row.algorithm, run, *scores, row.seconds[i], "finished"])
            lines += [[row.algorithm, run, *[None] * len(names), None, "diverged"] for run in row.diverged]
        return Table(["algorithm", "run", *names, "seconds", "status"], lines)


def compare(
    config: TrainConfig,
    algorithms: Sequence[str],
    seeds: Sequence[int],
    callback: Callback = ignore,
    *,
    options: Mapping[str, Any] | None = None,
    report: bool = True,
) -> Comparison:
    """Train each algorithm with each seed; ``config`` says the rest. Written down after every run.

    ``options`` of algorithms, and those of ``config``, are given to each algorithm that has them.
    """
    options = dict(options or {})
    _check(algorithms, seeds, options)
    folder = ComparisonFolder(config.run_dir or unused(Path("runs") / f"compare-{task_name(config)}"))
    if folder.holds_comparison and not config.resume:
        raise RunError(
            f"{folder.path} already holds a comparison: resume it with --resume, or choose another --run-dir."
        )
    comparison = Comparison(folder.path, config, tuple(seeds), [Row(a) for a in algorithms], options)
    _write(comparison)
    total = len(algorithms) * len(seeds)
    for number, (seed, row) in enumerate(((s, r) for s in seeds for r in comparison.rows), start=1):
        name = f"{row.algorithm}-{seed}"
        callback(Note(f"{number} of {total}: {row.algorithm}, seed {seed}"))
        try:
            row.add(name, _run(comparison, row.algorithm, seed, callback, report).table())
        except DivergedError as error:
            row.diverged.append(name)
            callback(Note(str(error)))
        except Interrupted as stop:
            raise Interrupted(f"in {name}", "compare", folder.path, stop.signal) from None
        _write(comparison)
    if report:
        from deeppc.training.loop import write_report

        write_report("write_comparison", folder, callback)
    return comparison


def saved_comparison(path: Path) -> tuple[TrainConfig, list[str], list[int], dict[str, Any]]:
    """Return settings, algorithms, seeds and options of the comparison in a folder, ready to resume it."""
    folder = ComparisonFolder(path)
    if not folder.holds_comparison:
        raise RunError(f"There is no comparison to resume in {path}: start one without --resume.")
    table = folder.table()
    try:
        config = from_table(meaningful(table["config"]), str(folder.table_path))
        config = replace(config, run_dir=path, resume=True)
        return config, [str(a) for a in table["algorithms"]], [int(s) for s in table["seeds"]], dict(table["options"])
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder.table_path} is damaged: {error!r}.") from error


def _check(algorithms: Sequence[str], seeds: Sequence[int], options: Mapping[str, Any]) -> None:
    if not algorithms or not seeds:
        raise ConfigError("Say what to compare, e.g. --algorithms bp,pc+s+f --seeds 0,1,2.")
    for values in (algorithms, seeds):
        if len(set(values)) < len(values):
            raise ConfigError(f"Named twice: {', '.join(map(str, values))}. Name each algorithm and seed once.")
    try:
        means = {name for algorithm in algorithms for name in options_for(algorithm)}
    except ValueError as error:
        raise ConfigError(str(error)) from error
    for name in options:
        if name not in means:
            raise ConfigError(f"{flag(name)} means nothing to any of {', '.join(algorithms)}: leave it out.")


def _run(comparison: Comparison, algorithm: str, seed: int, callback: Callback, report: bool) -> RunResult:
    """Run one: from the start, or what is left of it (of a finished one: nothing)."""
    from deeppc.training.builder import train

    folder = ComparisonFolder(comparison.folder).run(f"{algorithm}-{seed}")
    given = {**comparison.config.options, **comparison.options}
    own = {name: value for name, value in given.items() if name in options_for(algorithm)}
    place = {"seed": seed, "run_dir": folder.path, "resume": folder.holds_run}
    return train(replace(comparison.config, algorithm=algorithm, **place, **own), callback, report=report)


def _write(comparison: Comparison) -> None:
    folder = ComparisonFolder(comparison.folder)
    write_json(folder.table_path, comparison.table())
    write_text(folder.markdown_path, comparison.summary().markdown())
    write_text(folder.csv_path, comparison.runs().csv())


def _in_percent(name: str) -> bool:
    return name.endswith(("_accuracy", "_top5"))


def _heading(name: str) -> str:
    known = {"test_accuracy": "test accuracy", "test_top5": "top-5", "validation_accuracy": "validation"}
    return known.get(name, name.replace("_", " ")) + (", %" if _in_percent(name) else "")


def _cell(row: Row, name: str) -> str:
    values = [value for value in row.scores.get(name, []) if value is not None]
    return mean_and_deviation(values, scale=100) if _in_percent(name) else mean_and_deviation(values, digits=4)


def _count(row: Row) -> str:
    return str(len(row.runs)) + (f", {len(row.diverged)} diverged" if row.diverged else "")
