"""The run folder. The names of its files are typed here, and only here.

    manifest.json            settings, versions, git commit, machine, seed, status
    config.toml              the settings again, to start other runs from
    metrics.jsonl            one line per epoch, with the mean energy of each node (and its diagnostics, if asked for)
    checkpoint.safetensors   where to resume (see training/checkpoint.py)
    best.safetensors         the weights of the selected epoch
    result.json              the selected epoch, on the whole test set
    report.html              curves and tables (see report/)

A comparison's folder has a run folder for each run, and ``comparison.json``, ``.md``, ``.csv``.

Every file but ``metrics.jsonl`` is replaced as a whole: a reader, or a kill at any moment, finds the old or the new.
``metrics.jsonl`` grows line by line *before* the checkpoint that counts the line; a run that resumes first cuts it
back to what its checkpoint counts.

The files know that they belong together: the manifest has a random ``id``, which the best weights repeat, and
checkpoint and result have the ``history`` of the run, a digest of the id and of the lines of metrics so far.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeppc.errors import RunError
from deeppc.files import (
    Busy,
    BusyElsewhere,
    Lock,
    append_line,
    digest,
    read_json,
    read_lines,
    read_tensors,
    write_json,
    write_lines,
    write_text,
)

if TYPE_CHECKING:
    from torch import Tensor


class RunFolder:
    """The folder of one run, whether or not there is anything in it yet: named paths, readers and writers.

    Readers raise :class:`RunError` for a file that is missing or damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.manifest_path = self.path / "manifest.json"
        self.config_path = self.path / "config.toml"
        self.metrics_path = self.path / "metrics.jsonl"
        self.result_path = self.path / "result.json"
        self.checkpoint = self.path / "checkpoint.safetensors"
        self.best = self.path / "best.safetensors"
        self.report = self.path / "report.html"
        self.lock = self.path / ".lock"

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @property
    def holds_run(self) -> bool:
        return self.manifest_path.exists()

    @property
    def status(self) -> str:
        """As in the manifest: starting, running, interrupted, diverged, stopped, failed, finished. Or else: missing.

        It says starting until there is a first checkpoint, and after a kill it still says running.
        """
        return str(self.manifest().get("status", "failed")) if self.holds_run else "missing"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out of the folder, which is made if need be."""
        lock = Lock(self.lock)
        try:
            lock.__enter__()
        except BusyElsewhere:
            raise
        except Busy:
            raise Busy(f"Another process is training in {self.path}: wait for it, or choose another folder.") from None
        except RunError as error:
            raise RunError(f"The run folder {error} Choose another.") from error
        try:
            yield
        finally:
            lock.__exit__()

    def require_unused(self) -> None:
        self._require_no_remains()
        if self.holds_run:
            raise RunError(
                f"{self.path} already holds a run: resume it with --resume (resume=True), or choose another folder."
            )

    def require_run(self) -> None:
        self._require_no_remains()
        if not self.holds_run:
            runs = sorted(self.path.parent.glob(f"*/{self.manifest_path.name}"), key=lambda m: m.stat().st_mtime)
            newest = f" The newest run in {self.path.parent} is {runs[-1].parent}." if runs else ""
            raise RunError(f"There is no run to resume in {self.path}: start one first.{newest}")

    def _require_no_remains(self) -> None:
        """What is left of a run without its manifest is neither a run nor a place for another."""
        left = [p.name for p in (self.checkpoint, self.best, self.metrics_path, self.result_path) if p.exists()]
        if left and not self.holds_run:
            raise RunError(
                f"{self.path} holds {', '.join(left)} of a run, but no {self.manifest_path.name}: put it back from a "
                "copy, or choose another folder."
            )

    @property
    def way_forward(self) -> str:
        """What to do where a file is missing that resuming needs."""
        instead = f" from the weights in {self.best} with --weights" if self.best.exists() else ""
        return f"put it back from a copy, or start another run{instead}."

    def require_history(self, epochs: int, history: object) -> None:
        """Raise RunError unless the manifest and the first ``epochs`` lines of metrics are those of ``history``."""
        lines = self.metrics()
        if len(lines) < epochs:
            what = f"has {len(lines)} epochs instead of {epochs}" if self.metrics_path.exists() else "is missing"
            raise RunError(f"{self.metrics_path} {what}: {self.way_forward}")
        if history != reduce(chained, lines[:epochs], str(self.manifest().get("id"))):
            raise RunError(f"The files in {self.path} are not all of one run: put them back from one copy.")

    def best_weights(self) -> dict[str, Tensor]:
        """The weights of the selected epoch."""
        weights, header = read_tensors(self.best)
        if header.get("run") != self.manifest().get("id"):
            raise RunError(f"{self.best} is of another run: put the run's own back from a copy.")
        return weights

    def require_space(self, size: int) -> None:
        """Four checkpoints' worth: the old and the new one side by side, the best weights, and the report."""
        free, wanted = shutil.disk_usage(self.path).free, 4 * size
        if free < wanted:
            raise RunError(
                f"The disk of {self.path} has {free / 1e6:,.1f} MB free, but checkpoints of this network want "
                f"{wanted / 1e6:,.1f} MB: make room, or choose a folder on another disk."
            )

    def manifest(self) -> dict[str, Any]:
        return read_json(self.manifest_path)

    def config(self) -> dict[str, Any]:
        """The settings of the run as a flat table, as its manifest has them."""
        config = self.manifest().get("config")
        if not isinstance(config, dict):
            raise RunError(f"{self.manifest_path} is damaged: it holds no config.")
        return config

    def begun(self) -> dict[str, Any]:
        """The settings of the run to resume, which must be there."""
        self.require_run()
        return self.config()

    def result(self) -> dict[str, Any]:
        """What the run came to, without its history."""
        return {name: value for name, value in read_json(self.result_path).items() if name != "history"}

    def require_own_result(self) -> None:
        """Raise RunError unless the result is of this run."""
        result = read_json(self.result_path)
        self.require_history(result.get("epochs", 0), result.get("history"))

    def metrics(self) -> list[dict[str, Any]]:
        """One table per epoch, without a last line that a kill tore apart."""
        lines = read_lines(self.metrics_path)
        for number, line in enumerate(lines, start=1):
            if line.get("epoch") != number:
                raise RunError(
                    f"{self.metrics_path} is damaged: line {number} is of epoch {line.get('epoch')}. "
                    "Put it back from a copy."
                )
        return lines

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_json(self.manifest_path, manifest)

    def set_status(self, status: str) -> None:
        self.write_manifest({**self.manifest(), "status": status, "updated": now()})

    def write_config(self, toml: str) -> None:
        write_text(self.config_path, toml)

    def write_result(self, result: Mapping[str, Any]) -> None:
        write_json(self.result_path, result)

    def append_metrics(self, line: Mapping[str, Any]) -> None:
        append_line(self.metrics_path, line)

    def cut_metrics(self, epochs: int) -> None:
        """Keep the first ``epochs`` lines only: the checkpoint does not count the others."""
        write_lines(self.metrics_path, self.metrics()[:epochs])


class ComparisonFolder:
    """The folder of a comparison: the paths of its table, and its run folders by name."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.table_path = self.path / "comparison.json"
        self.markdown_path = self.path / "comparison.md"
        self.csv_path = self.path / "comparison.csv"
        self.report = self.path / "report.html"

    @property
    def holds_comparison(self) -> bool:
        return self.table_path.exists()

    def table(self) -> dict[str, Any]:
        return read_json(self.table_path)

    def run(self, name: str) -> RunFolder:
        return RunFolder(self.path / name)


def chained(history: str, line: Mapping[str, Any]) -> str:
    """Return the history of a run after another line of metrics. It begins with the run's id."""
    return digest({"history": history, "line": line})[:16]


def now() -> str:
    """The time, as manifests have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
