"""The pool of cells: one run folder for each training that any recipe wants, shared by all recipes.

    <out>/cells/<dataset>-<model>-<algorithm>-<hash>-<seed>/   a whole run folder, and
        outcome.json                  why it has no result: diverged, or failed
        measured-<recipe>.json        what a recipe measured on the trained network

The name is a hash of all settings that decide the outcome, so two recipes that want the same training share it, and
one that is finished is never run again. The checkpoint is removed when a run is finished, and weights that are large.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deeppc.errors import DivergedError, Interrupted
from deeppc.files import read_json, write_json
from deeppc.paper.recipe import find
from deeppc.paper.scales import Scale
from deeppc.runs.folder import BEST, CHECKPOINT, MANIFEST, RESULT
from deeppc.training.config import TrainConfig, to_table
from deeppc.training.events import Listener

if sys.platform != "win32":
    import fcntl

OUTCOME = "outcome.json"
KEPT_WEIGHTS = 20_000_000  # bytes: larger weights are removed once everything asked for is measured
Status = Literal["missing", "unfinished", "busy", "finished", "diverged", "failed"]
_ELSEWHERE = frozenset({"data_dir", "device", "checkpoint_every", "diagnostics"})  # not part of what is computed


@dataclass(frozen=True)
class Run:
    """One seed of a cell, as it is found. ``result`` is that of the run folder; ``measured`` of the recipe."""

    seed: int
    folder: Path
    status: Status
    result: dict[str, Any]
    reason: str = ""
    measured: dict[str, Any] | None = None

    @property
    def finished(self) -> bool:
        return self.status == "finished"

    @property
    def over(self) -> bool:
        """Is there nothing left to do? A run that diverged is a result, too."""
        return self.status in ("finished", "diverged")


def folder_of(out: Path, config: TrainConfig) -> Path:
    """Where the run of this config (seed included) is kept.

    Only settings that differ from their defaults are hashed: a new setting in a later version moves nothing.
    """
    plain = to_table(TrainConfig())
    own = {k: v for k, v in to_table(config).items() if k not in _ELSEWHERE and (v != plain[k] or k == "seed")}
    digest = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:10]
    return out / "cells" / f"{config.dataset}-{config.model}-{config.algorithm}-{digest}-{config.seed}"


def look(folder: Path, seed: int, recipe: str) -> Run:
    """The state of a run, as ``recipe`` sees it: finished once the recipe's own measurements are there, too."""
    status = _status(folder)
    if status == "finished":
        result, measured = read_json(folder / RESULT), _measured(folder, recipe)
        if find(recipe).measure is None:
            return Run(seed, folder, "finished", result)
        if measured.exists():
            return Run(seed, folder, "finished", result, measured=read_json(measured))
        status = "unfinished"
    outcome = read_json(folder / OUTCOME) if (folder / OUTCOME).exists() else {}
    if status != "diverged" and outcome.get("status") == "failed":
        status = "failed"
    return Run(seed, folder, status, {}, str(outcome.get("reason", "")))


def perform(config: TrainConfig, recipe: str, scale: Scale, on_event: Listener) -> Run:
    """Train what is left of a run and measure what the recipe wants, unless that is done.

    Whatever goes wrong is part of the answer, but for an interruption, which is raised. ``busy``: another process is
    at it.
    """
    folder = config.run_dir
    assert folder is not None, "a cell has a folder"
    with _held(folder) as ours:
        if not ours:
            return Run(config.seed, folder, "busy", {})
        if (found := look(folder, config.seed, recipe)).over:
            return found
        try:
            _complete(config, folder, recipe, scale, on_event)
        except Interrupted:
            raise
        except DivergedError as error:
            _note(folder, "diverged", str(error))
        except Exception as error:
            _note(folder, "failed", f"{type(error).__name__}: {error}", traceback.format_exc())
        else:
            (folder / OUTCOME).unlink(missing_ok=True)
        return look(folder, config.seed, recipe)


def failed(config: TrainConfig, recipe: str, reason: str) -> Run:
    """Note that a run came to no end. It is tried again when the recipe is run again."""
    assert config.run_dir is not None, "a cell has a folder"
    _note(config.run_dir, "failed", reason)
    return look(config.run_dir, config.seed, recipe)


def _complete(config: TrainConfig, folder: Path, recipe: str, scale: Scale, on_event: Listener) -> None:
    from deeppc.training.fit import train

    measure = find(recipe).measure
    if measure is not None and _status(folder) == "finished" and not (folder / BEST).exists():
        shutil.rmtree(folder)  # the weights to measure were removed: the same training gives the same again
    train(dataclasses.replace(config, resume=(folder / MANIFEST).exists()), on_event)
    if measure is not None:
        write_json(_measured(folder, recipe), measure(folder, scale))
    (folder / CHECKPOINT).unlink(missing_ok=True)
    if (folder / BEST).stat().st_size > KEPT_WEIGHTS:
        (folder / BEST).unlink()


def _status(folder: Path) -> Status:
    if not (folder / MANIFEST).exists():
        return "missing"
    status = read_json(folder / MANIFEST).get("status")
    if status == "finished" and (folder / RESULT).exists():
        return "finished"
    return "diverged" if status == "diverged" else "unfinished"


def _measured(folder: Path, recipe: str) -> Path:
    return folder / f"measured-{recipe}.json"


def _note(folder: Path, status: str, reason: str, trace: str = "") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / OUTCOME, {"status": status, "reason": reason, "traceback": trace})


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Whether this process may work on the cell. The system gives the lock back even on a kill."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        if sys.platform != "win32":
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
        yield True
