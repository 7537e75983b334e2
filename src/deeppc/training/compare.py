"""Several algorithms under the same seeds: the same initial weights, the same batches, one table with its spread.

Runs that are finished are not run again; one that was interrupted is resumed. A run that diverges is a result, too: it
is named in the table, and the others are still run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeppc.core.arguments import checked
from deeppc.errors import ConfigError, DivergedError, Interrupted, RunError
from deeppc.files import unused, write_json, write_text
from deeppc.models import described
from deeppc.report.tables import Table, mean_and_deviation
from deeppc.runs.folder import ComparisonFolder, RunFolder
from deeppc.training.config import (
    FIELDS,
    RAISED,
    TrainConfig,
    flag,
    from_table,
    meaningful,
    replace,
    require_resumable,
    task_name,
    to_table,
)
from deeppc.training.events import Callback, Note, ignore
from deeppc.training.result import RunResult, read_result


@dataclass
class Row:
    """One algorithm's runs: the results of those that finished (flat tables, by name), and those that diverged."""

    algorithm: str
    results: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    diverged: list[str] = field(default_factory=list)

    @property
    def runs(self) -> list[str]:
        return list(self.results)

    @property
    def scores(self) -> dict[str, list[float | None]]:
        """The values of the runs by name, such as ``test_accuracy``."""
        names = dict.fromkeys(name for result in self.results.values() for name in result)
        return {name: self._all(name) for name in names if name.startswith(("test_", "validation_"))}

    @property
    def seconds(self) -> list[Any]:
        return self._all("seconds")

    def _all(self, name: str) -> list[Any]:
        return [result.get(name) for result in self.results.values()]

    def table(self) -> dict[str, Any]:
        found = {"algorithm": self.algorithm, "runs": self.runs, **self.scores}
        return {**found, "seconds": self.seconds, "diverged": self.diverged}


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
            f"{c.dataset}, {described(c.model, c.width)}, at most {c.epochs} epochs, seeds "
            f"{', '.join(map(str, self.seeds))}; epoch selected by {c.select}; mean ± standard deviation over seeds."
        )
        lines = []
        for row in self.rows:
            scores = [_mean(name, row.scores.get(name, [])) for name in names]
            count = str(len(row.runs)) + (f", {len(row.diverged)} diverged" if row.diverged else "")
            lines.append([row.algorithm, *scores, mean_and_deviation(row.seconds), count])
        return Table(["algorithm", *map(_heading, names), "seconds", "runs"], lines, note=note)

    def runs(self) -> Table:
        """Return one row for each run, for a spreadsheet to add up."""
        columns = [*self._scores(), "seconds"]
        lines: list[list[object]] = []
        for row in self.rows:
            for run, result in row.results.items():
                lines.append([row.algorithm, run, *map(result.get, columns), "finished"])
            lines += [[row.algorithm, run, *[None] * len(columns), "diverged"] for run in row.diverged]
        return Table(["algorithm", "run", *columns, "status"], lines)

    def _scores(self) -> list[str]:
        """The names of all scores, those of the test first."""
        names = dict.fromkeys(name for row in self.rows for name in row.scores)
        return sorted(names, key=lambda name: name.startswith("validation"))

    def write(self) -> None:
        folder = ComparisonFolder(self.folder)
        write_json(folder.table_path, self.table())
        write_text(folder.markdown_path, self.summary().markdown())
        write_text(folder.csv_path, self.runs().csv())


@checked
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
    from deeppc.training.builder import build

    options = dict(options or {})
    _check(algorithms, seeds, options)
    folder = ComparisonFolder(config.run_dir or unused(Path("runs") / f"compare-{task_name(config)}"))
    if folder.holds_comparison:
        if not config.resume:
            raise RunError(
                f"{folder.path} already holds a comparison: resume it with --resume, or choose another --run-dir."
            )
        require_resumable(_shared(folder.table()["config"]), _shared(to_table(config)))
    comparison = Comparison(folder.path, config, tuple(seeds), [Row(a) for a in algorithms], options)
    places = [(seed, row) for seed in seeds for row in comparison.rows]
    for seed, row in places:
        _require_startable(_config(comparison, row.algorithm, seed), row)
    build(_config(comparison, algorithms[0], seeds[0]))  # whatever all have in common is refused here
    comparison.write()
    total = len(places)
    for number, (seed, row) in enumerate(places, start=1):
        name = f"{row.algorithm}-{seed}"
        callback(Note(f"{number} of {total}: {row.algorithm}, seed {seed}"))
        try:
            row.results[name] = _run(comparison, row.algorithm, seed, callback, report).table()
        except DivergedError as error:
            row.diverged.append(name)
            callback(Note(str(error)))
        except Interrupted as stop:
            raise Interrupted(f"in {name}", "compare", folder.path, stop.signal) from None
        comparison.write()
    if report:
        from deeppc.training import loop

        loop.write_report("write_comparison", folder, callback)
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
    means = {name for algorithm in algorithms for name in meaningful({"algorithm": algorithm, **options})}
    for name in options:
        if name not in means:
            raise ConfigError(f"{flag(name)} means nothing to any of {', '.join(algorithms)}: leave it out.")


def _shared(table: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that all runs have in common."""
    return {name: value for name, value in table.items() if name in FIELDS and name not in ("algorithm", "seed")}


def _run(comparison: Comparison, algorithm: str, seed: int, callback: Callback, report: bool) -> RunResult:
    """Run one: from the start, or what is left of it (of a finished one: nothing)."""
    from deeppc.training.builder import train

    return train(_config(comparison, algorithm, seed), callback, report=report)


def _require_startable(config: TrainConfig, row: Row) -> None:
    """Refuse a run that cannot be started or resumed before anything is written; put what is finished into its row."""
    from deeppc.training.checkpoint import resumable

    assert config.run_dir is not None
    folder = RunFolder(config.run_dir)
    if not config.resume:
        folder.require_unused()
        return
    table = require_resumable(folder.config(), to_table(config))
    if (result := read_result(folder)) is None or any(folder.config()[name] != table[name] for name in RAISED):
        resumable(folder)
    else:
        row.results[folder.path.name] = result.table()


def _config(comparison: Comparison, algorithm: str, seed: int) -> TrainConfig:
    folder = ComparisonFolder(comparison.folder).run(f"{algorithm}-{seed}")
    own = meaningful({"algorithm": algorithm, **comparison.config.options, **comparison.options})
    return replace(comparison.config, **own, seed=seed, run_dir=folder.path, resume=folder.holds_run)


def _heading(name: str) -> str:
    known = {"test_accuracy": "test accuracy, %", "test_top5": "top-5, %", "validation_accuracy": "validation, %"}
    return known.get(name, name.replace("_", " "))


def _mean(name: str, values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    in_percent = name.endswith(("_accuracy", "_top5"))
    return mean_and_deviation(known, scale=100) if in_percent else mean_and_deviation(known, digits=4)
