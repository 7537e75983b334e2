"""The store of cells: one run for each training that any recipe wants, shared by all recipes and found by its settings.

    <out>/cells/<dataset>-<model>-<algorithm>-<hash>-<seed>/   a whole run folder, and
        outcome.json                  why it has no result: diverged, or failed
        measured-<recipe>.json        what a recipe measured on the trained network
    <records>/...                     the same without weights: small, to be kept in a repository

Every manifest states all settings in full. A cell is looked up by those of them that decide the outcome
(:func:`deeppc.training.config.canonical`), never by its folder's name, so that a changed default or a renamed folder
neither orphans a finished run nor mistakes it for another; what is finished, as a run or as a record, is not trained
again. A finished run drops its checkpoint, and its weights if they are large.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from deeppc.errors import DivergedError, RunError
from deeppc.files import Busy, Lock, read_json, write_json, write_lines
from deeppc.runs.folder import RunFolder
from deeppc.training.config import TrainConfig, canonical, replace, to_table
from deeppc.training.events import Callback
from deeppc.training.pool import Retry

if TYPE_CHECKING:
    from deeppc.training.builder import Parts

CELLS, EXTRA = "cells", "extra.json"
OUTCOME, MEASURED = "outcome.json", "measured-"
KEPT_WEIGHTS = 20_000_000  # bytes: larger weights are removed once everything asked for is measured
Status = Literal["missing", "unfinished", "finished", "diverged", "failed"]
Measure = Callable[[Path], dict[str, Any]]
Key = frozenset[tuple[str, Any]]  # the settings that decide the outcome


@dataclass(frozen=True)
class Record:
    """What is known of one training. ``measured`` is by recipe; ``reason`` says why there is no result."""

    folder: Path
    status: Status = "missing"
    result: Mapping[str, Any] = field(default_factory=dict)
    measured: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    manifest: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""

    @property
    def over(self) -> bool:
        """Whether the training is over: a run that diverged is a result, too."""
        return self.status in ("finished", "diverged")

    def metrics(self) -> list[dict[str, Any]]:
        return RunFolder(self.folder).metrics()


class Store:
    """All runs in ``out`` and records in ``records``, read once; :meth:`update` reads one of them again."""

    def __init__(self, out: Path, records: Path | None = None) -> None:
        self.cells = out / CELLS
        self._folders = [out] if records is None else [out, records]
        self._recorded = _index(records) if records is not None else {}
        self._runs = _index(self.cells)

    def find(self, config: TrainConfig) -> Record:
        """Return what there is of the run of ``config``: of its run folder and its record, what is further."""
        key = _key(to_table(config))
        run = self._runs.get(key) or read(self.folder(config))
        if (recorded := self._recorded.get(key)) is None:
            return run
        return dataclasses.replace(run if run.over else recorded, measured={**recorded.measured, **run.measured})

    def folder(self, config: TrainConfig) -> Path:
        """Return the folder to train ``config`` in: that of the run begun, or a new one."""
        settings = canonical(to_table(config))
        if (run := self._runs.get(frozenset(settings.items()))) is not None:
            return run.folder
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]
        return self.cells / f"{config.dataset}-{config.model}-{config.algorithm}-{digest}-{config.seed}"

    def extra(self, name: str) -> dict[str, Any]:
        """Return what a recipe left beside its trainings in the folder called ``name``."""
        found = [path for folder in self._folders if (path := folder / name / EXTRA).exists()]
        return read_json(found[0]) if found else {}

    def update(self, config: TrainConfig) -> None:
        """Read the run folder of ``config`` again."""
        self._runs[_key(to_table(config))] = read(self.folder(config))

    def fail(self, config: TrainConfig, reason: str, traceback: str) -> None:
        """Note that a run came to no end. It is tried again when a recipe is run again."""
        _note(self.folder(config), "failed", reason, traceback)


def read(folder: Path) -> Record:
    """Return what a run folder, or a record, says."""
    run = RunFolder(folder)
    manifest = run.manifest() if run.holds_run else {}
    outcome = read_json(folder / OUTCOME) if (folder / OUTCOME).exists() else {}
    status: Status = "unfinished" if manifest else "missing"
    if manifest.get("status") == "finished" and run.result_path.exists():
        status = "finished"
    elif manifest.get("status") == "diverged":
        status = "diverged"
    elif outcome.get("status") == "failed":
        status = "failed"
    result = run.result() if status == "finished" else {}
    measured = {p.stem.removeprefix(MEASURED): read_json(p) for p in sorted(folder.glob(f"{MEASURED}*.json"))}
    return Record(folder, status, result, measured, manifest, str(outcome.get("reason", "")))


def _index(folder: Path) -> dict[Key, Record]:
    found: dict[Key, Record] = {}
    for path in sorted(folder.glob("*/manifest.json")):
        record = read(path.parent)
        key = _key(record.manifest.get("config", {}))
        if key not in found or record.over:
            found[key] = record
    return found


def _key(table: Mapping[str, Any]) -> Key:
    return frozenset(canonical(table).items())


def complete(config: TrainConfig, folder: Path, measures: Mapping[str, Measure], callback: Callback) -> None:
    """Train what is left of a run in ``folder`` and take the measurements that it lacks.

    Raises :class:`Retry` while another process works on it. Divergence is noted, other errors are raised.
    """
    try:
        with Lock(folder.parent / f".{folder.name}.lock"):
            _complete(config, folder, measures, callback)
    except Busy:
        raise Retry from None
    except DivergedError as error:
        _note(folder, "diverged", str(error))


def _complete(config: TrainConfig, folder: Path, measures: Mapping[str, Measure], callback: Callback) -> None:
    from deeppc.training.builder import train

    found, run = read(folder), RunFolder(folder)
    missing = {name: measure for name, measure in measures.items() if name not in found.measured}
    if found.status == "diverged" or (found.status == "finished" and not missing):
        return
    if found.status == "finished" and not run.best.exists():
        # The weights to measure were removed: the same training gives the same again. Measurements stay.
        run.set_status("starting")
        for path in (run.checkpoint, run.metrics_path, run.result_path):
            path.unlink(missing_ok=True)
    train(replace(config, run_dir=folder, resume=run.holds_run), callback, report=False)
    for name, measure in missing.items():
        write_json(folder / f"{MEASURED}{name}.json", measure(folder))
    run.checkpoint.unlink(missing_ok=True)
    if run.best.stat().st_size > KEPT_WEIGHTS:
        run.best.unlink()
    (folder / OUTCOME).unlink(missing_ok=True)


def trained(folder: Path) -> Parts:
    """Return network, algorithm and data of a finished run, with the weights of the selected epoch."""
    from deeppc.training.builder import build, saved_config

    parts = build(saved_config(folder))
    parts.net.load_state_dict(RunFolder(folder).best_weights())
    return parts


def _note(folder: Path, status: Status, reason: str, traceback: str = "") -> None:
    write_json(folder / OUTCOME, {"status": status, "reason": reason, "traceback": traceback})


def keep_records(out: Path, to: Path) -> tuple[int, int]:
    """Copy every run in ``out`` that is over to ``to``, without weights and without what names this machine.

    Returns how many records were written, and how many are there. Measurements of earlier records are kept. Raises
    RunError where there are no runs.
    """
    written = 0
    there, runs, extras = _index(to), _index(out / CELLS), sorted(out.glob(f"*/{EXTRA}"))
    if not runs and not extras:
        raise RunError(f"There are no runs in {out}: make some by deeppc paper run NAME --out {out}.")
    for key, run in runs.items():
        old = there.get(key)
        if run.over and (old is None or run.measured.keys() - old.measured.keys()):
            there[key] = _copy(run, to / run.folder.name if old is None else old.folder)
            written += 1
    for extra in extras:
        write_json(to / extra.parent.name / extra.name, read_json(extra))
    return written, len(there)


def _copy(run: Record, to: Path) -> Record:
    source, kept = RunFolder(run.folder), RunFolder(to)
    if source.metrics_path.exists():
        write_lines(kept.metrics_path, source.metrics())
    for path in (source.result_path, run.folder / OUTCOME):
        if path.exists():
            write_json(to / path.name, _without_path(read_json(path), run.folder))
    for name, content in run.measured.items():
        write_json(to / f"{MEASURED}{name}.json", content)
    if source.config_path.exists():
        lines = source.config_path.read_text(encoding="utf-8").splitlines()
        kept.write_config("".join(f"{line}\n" for line in lines if not line.startswith("data_dir")))
    settings = {key: value for key, value in run.manifest["config"].items() if key != "data_dir"}
    resumed = [_nameless(again) for again in run.manifest.get("resumed", [])]
    kept.write_manifest({**_nameless(run.manifest), "config": settings, "resumed": resumed})
    return read(to)


def _without_path(content: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Leave out where ``folder`` lies: messages name it."""
    forms = (str(folder.resolve()), str(folder))

    def cut(value: Any) -> Any:
        for form in forms if isinstance(value, str) else ():
            value = value.replace(form, folder.name)
        return value

    return {key: cut(value) for key, value in content.items()}


def _nameless(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what names this machine: its host name and absolute paths."""
    machine = {key: value for key, value in manifest["machine"].items() if key != "host"}
    command = [Path(word).name if word.startswith("/") else word for word in manifest["command"]]
    return {**manifest, "machine": machine, "command": command}
