"""The run folder: who wrote it and how (manifest), what happened (metrics), what came out (result).

    manifest.json            config, versions, git commit, machine, seed, status
    config.toml              the config again, to start other runs from
    metrics.jsonl            one line per epoch, with the mean energy of each node (and its diagnostics, if asked for)
    checkpoint.safetensors   where to go on (see checkpoint.py)
    best.safetensors         the weights of the selected epoch
    result.json              the selected epoch, on the whole test set

Every file but ``metrics.jsonl`` is replaced as a whole: a reader, or a kill at any moment, finds the old or the new.
``metrics.jsonl`` grows line by line *before* the checkpoint that knows the line; a run that goes on first cuts it
back to what its checkpoint knows.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import deeppc
from deeppc.errors import RunError
from deeppc.files import read_json, replacing, unused, write_json
from deeppc.training.config import TrainConfig, from_table, to_table, to_toml

if sys.platform != "win32":
    import fcntl

MANIFEST, METRICS, RESULT, CHECKPOINT, BEST = (
    "manifest.json",
    "metrics.jsonl",
    "result.json",
    "checkpoint.safetensors",
    "best.safetensors",
)
CONFIG, LOCK = "config.toml", ".lock"


def default_run_dir(config: TrainConfig) -> Path:
    return unused(Path("runs") / f"{config.dataset}-{config.model}-{config.algorithm}-{config.seed}")


def saved_config(run_dir: Path) -> TrainConfig:
    """The settings of the run in ``run_dir``, ready to go on with it."""
    if not (run_dir / MANIFEST).exists():
        raise RunError(f"There is no run to resume in {run_dir}: start one without --resume.{_newest(run_dir.parent)}")
    manifest = read_json(run_dir / MANIFEST)
    if not isinstance(manifest.get("config"), dict):
        raise RunError(f"{run_dir / MANIFEST} is damaged: it holds no config.")
    return from_table({**manifest["config"], "run_dir": run_dir, "resume": True}, str(run_dir / MANIFEST))


def _newest(parent: Path) -> str:
    runs = sorted(parent.glob(f"*/{MANIFEST}"), key=lambda m: m.stat().st_mtime)
    return f" The newest run in {parent} is {runs[-1].parent}." if runs else ""


class RunDir:
    """A run folder that this process holds. Use it as a context: nobody else may write there meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None

    def __enter__(self) -> RunDir:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / LOCK).open("w")
        except OSError as error:
            raise RunError(
                f"The run folder {self.path} cannot be written: {error.strerror or error}. "
                "Choose another with --run-dir."
            ) from error
        if sys.platform != "win32":
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # given back by the system even on a kill
            except BlockingIOError:
                self._lock.close()
                raise RunError(f"Another process is training in {self.path}: wait for it, or choose another.") from None
        return self

    def __exit__(self, *_: object) -> None:
        assert self._lock is not None
        self._lock.close()

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def best(self) -> Path:
        return self.path / BEST

    @property
    def holds_run(self) -> bool:
        return (self.path / MANIFEST).exists()

    def require_unused(self) -> None:
        if self.holds_run:
            raise RunError(
                f"{self.path} already holds a run: go on with it by --resume, or choose another folder with --run-dir."
            )

    def require_space(self, size: int) -> None:
        """Four checkpoints' worth: the old and the new one side by side, the best weights, and the report."""
        free, wanted = shutil.disk_usage(self.path).free, 4 * size
        if free < wanted:
            raise RunError(
                f"The disk of {self.path} has {_megabytes(free)} free, but checkpoints of this network want "
                f"{_megabytes(wanted)}: make room, or choose another disk with --run-dir."
            )

    def read_manifest(self) -> dict[str, Any]:
        return read_json(self.path / MANIFEST)

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        write_json(self.path / MANIFEST, manifest)

    def set_status(self, status: str) -> None:
        """running, interrupted, diverged, stopped, failed or finished. After a kill it still says running."""
        self.write_manifest({**self.read_manifest(), "status": status, "updated": _now()})

    def write_config(self, config: TrainConfig) -> None:
        """The settings once more, as a file to start other runs from: ``--config``."""
        with replacing(self.path / CONFIG) as temporary:
            temporary.write_text(to_toml(config), encoding="utf-8")

    def append_metrics(self, line: dict[str, Any]) -> None:
        try:
            with (self.path / METRICS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"{self.path / METRICS} could not be written: {error.strerror or error}.") from error

    def metrics(self) -> list[dict[str, Any]]:
        """The lines, without a last one that a kill tore apart."""
        path = self.path / METRICS
        lines = []
        for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                lines.append(json.loads(text))
            except ValueError:
                break
        return lines

    def cut_metrics(self, epochs: int) -> None:
        """Forget what lies after the first ``epochs`` epochs: the checkpoint does not know of it."""
        kept = self.metrics()[:epochs]
        with replacing(self.path / METRICS) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    def read_result(self) -> dict[str, Any]:
        return read_json(self.path / RESULT)

    def write_result(self, result: dict[str, Any]) -> None:
        write_json(self.path / RESULT, result)


def provenance(config: TrainConfig, device: str) -> dict[str, Any]:
    """What someone needs to know to get the same numbers again."""
    import numpy
    import safetensors
    import torch

    return {
        "format": 1,
        "status": "running",
        "started": _now(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "seed": config.seed,
        "config": to_table(config),
        "versions": {
            "deeppc": deeppc.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "safetensors": safetensors.__version__,
        },
        "git": _git(),
        "machine": {
            "host": platform.node(),
            "system": platform.platform(),
            "processor": _processor(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "device": device,
            "accelerator": torch.cuda.get_device_name() if device == "cuda" else None,
        },
        "resumed": [],
    }


def _git() -> dict[str, Any] | None:
    """The commit that this source is at; None where it is not tracked (installed within another repository, say)."""

    def ask(*words: str) -> str:
        where = str(Path(__file__).parent)
        done = subprocess.run(["git", "-C", where, *words], capture_output=True, text=True, timeout=10, check=True)
        return done.stdout.strip()

    try:
        ask("ls-files", "--error-unmatch", Path(__file__).name)
        return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
