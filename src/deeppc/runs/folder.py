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
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deeppc.errors import RunError
from deeppc.files import Busy, Lock, read_json, replacing, write_json, write_text


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
        """As in the manifest: running, interrupted, diverged, stopped, failed, finished. Without one: missing.

        After a kill it still says running.
        """
        return str(self.manifest().get("status", "failed")) if self.holds_run else "missing"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes out of the folder, which is made if need be."""
        lock = Lock(self.lock)
        try:
            lock.__enter__()
        except Busy:
            raise Busy(f"Another process is training in {self.path}: wait for it, or choose another folder.") from None
        except RunError as error:
            raise RunError(f"The run folder {error} Choose another with --run-dir.") from error
        try:
            yield
        finally:
            lock.__exit__()

    def require_unused(self) -> None:
        if self.holds_run:
            raise RunError(
                f"{self.path} already holds a run: resume it with --resume, or choose another folder with --run-dir."
            )

    def require_run(self) -> None:
        if not self.holds_run:
            runs = sorted(self.path.parent.glob(f"*/{self.manifest_path.name}"), key=lambda m: m.stat().st_mtime)
            newest = f" The newest run in {self.path.parent} is {runs[-1].parent}." if runs else ""
            raise RunError(f"There is no run to resume in {self.path}: start one without --resume.{newest}")

    def require_space(self, size: int) -> None:
        """Four checkpoints' worth: the old and the new one side by side, the best weights, and the report."""
        free, wanted = shutil.disk_usage(self.path).free, 4 * size
        if free < wanted:
            raise RunError(
                f"The disk of {self.path} has {free / 1e6:,.1f} MB free, but checkpoints of this network want "
                f"{wanted / 1e6:,.1f} MB: make room, or choose another disk with --run-dir."
            )

    def manifest(self) -> dict[str, Any]:
        return read_json(self.manifest_path)

    def config(self) -> dict[str, Any]:
        """The settings of the run as a flat table, as its manifest has them."""
        config = self.manifest().get("config")
        if not isinstance(config, dict):
            raise RunError(f"{self.manifest_path} is damaged: it holds no config.")
        return config

    def result(self) -> dict[str, Any]:
        return read_json(self.result_path)

    def metrics(self) -> list[dict[str, Any]]:
        """One table per epoch, without a last line that a kill tore apart."""
        lines = []
        if self.metrics_path.exists():
            for text in self.metrics_path.read_text(encoding="utf-8").splitlines():
                try:
                    lines.append(json.loads(text))
                except ValueError:
                    break
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
        try:
            with self.metrics_path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"{self.metrics_path} could not be written: {error.strerror or error}.") from error

    def cut_metrics(self, epochs: int) -> None:
        """Keep the first ``epochs`` lines only: the checkpoint does not count the others."""
        kept = self.metrics()[:epochs]
        with replacing(self.metrics_path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")


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


def now() -> str:
    """The time, as manifests have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
