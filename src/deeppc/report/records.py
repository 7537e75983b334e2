"""Tolerant reading of run folders: finished, running, killed in mid-line, diverged, damaged.

Nothing here raises for odd content. What is missing or of another kind is left out, and the report does not show it;
of a file that is damaged, the report says so.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from deeppc.diagnostics.energy import FloatArray, shares
from deeppc.errors import RunError
from deeppc.report.tables import number
from deeppc.runs.folder import RunFolder

T = TypeVar("T")
Metrics = Sequence[Mapping[str, Any]]  # one record for each epoch, as in metrics.jsonl
SPLITS = ("train", "validation", "test")
ABSURD = 1e30  # no score, learning rate or time is as large, and squares of larger ones overflow in a picture
TINIEST = 1e-300  # the end of a logarithmic axis


@dataclass(frozen=True)
class Run:
    """The three files of a run folder; an empty ``result`` means that the run has not finished.

    ``damage`` says which of them cannot be read, and why.
    """

    manifest: dict[str, Any]
    metrics: list[dict[str, Any]]
    result: dict[str, Any]
    damage: list[str] = field(default_factory=list)

    @property
    def config(self) -> dict[str, Any]:
        return mapping(self.manifest.get("config"))

    @property
    def status(self) -> str:
        return str(self.manifest.get("status", ""))

    @property
    def score(self) -> str:
        """The name of the score: ``accuracy``, or that of a regression such as ``mse``."""
        return score_name([*self.metrics, self.result])

    @property
    def diverged_at(self) -> float | None:
        """The first epoch with a score or an energy that is recorded, but is not a finite number."""
        for epoch, record in zip(epochs(self.metrics), self.metrics, strict=True):
            recorded = [record.get(f"{split}_{self.score}") for split in SPLITS]
            recorded += mapping(record.get("energy")).values()
            if any(value is not None and not math.isfinite(number(value)) for value in recorded):
                return float(epoch)
        return None


@dataclass(frozen=True)
class ByNode:
    """A quantity by epoch and node: ``values`` is (epochs, nodes), nan where it is unknown."""

    epochs: FloatArray
    nodes: tuple[str, ...]
    values: FloatArray


def read_run(folder: Path) -> Run:
    """Read a run folder. Raises RunError where there is no such folder, and nothing else."""
    require_folder(folder)
    files, damage = RunFolder(folder), list[str]()
    result = readable(files.result, folder, damage) if files.result_path.exists() else None
    manifest, metrics = readable(files.manifest, folder, damage), readable(files.metrics, folder, damage)
    if metrics is not None and result is not None and len(metrics) < number(result.get("epochs")):
        names = f"{files.metrics_path.name} has {len(metrics)} epochs, but {files.result_path.name} counts"
        damage.append(f"{names} {number(result['epochs']):g}: put it back from a copy.")
    return Run(manifest or {}, metrics or [], result or {}, damage)


def require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise RunError(f"There is no folder {str(folder)!r}: expected the folder of a run or a comparison.")


def readable(read: Callable[[], T], folder: Path, damage: list[str]) -> T | None:
    """Return what ``read`` returns. If it cannot, add the reason to ``damage``, without where ``folder`` lies."""
    try:
        return read()
    except RunError as error:
        damage.append(str(error).replace(f"{folder}{os.sep}", ""))
        return None


def score_name(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the score that the records hold by split: ``accuracy`` before others, and where there is none."""
    found = [m[1] for r in records for key in r if (m := re.fullmatch(rf"(?:{'|'.join(SPLITS)})_(\w+)", key))]
    return "accuracy" if "accuracy" in found or not found else found[0]


def epochs(metrics: Metrics) -> FloatArray:
    """Return the records' own numbers, or their place in the file where they have none."""
    own = [number(record.get("epoch")) for record in metrics]
    return np.array([e if math.isfinite(e) else float(i) for i, e in enumerate(own, start=1)])


def series(metrics: Metrics, key: str) -> FloatArray:
    """Return one number per epoch, nan where it is missing or out of all bounds."""
    values = np.array([number(record.get(key)) for record in metrics])
    return np.where(np.abs(values) < ABSURD, values, np.nan)


def scores(metrics: Metrics) -> dict[str, FloatArray]:
    """Return the :func:`series` of the score by split, of those that are known at any epoch."""
    found = {split: series(metrics, f"{split}_{score_name(metrics)}") for split in SPLITS}
    return {split: y for split, y in found.items() if np.isfinite(y).any()}


def energy_shares(metrics: Metrics) -> ByNode:
    """Return each node's share of the energy, 0 where none came, over the epochs that know any."""
    return _by_node(metrics, "energy", shares)


def cosines(metrics: Metrics) -> ByNode:
    """Return the cosine of each node's update with backprop's, over the epochs that recorded any."""
    return _by_node(metrics, "bp_cosine", lambda values: _within(values, -1.0, 1.0))


def gap_ratios(metrics: Metrics) -> ByNode:
    """Return the gap ratios, over the epochs that recorded any; nan where it is 0 or inf, which have no logarithm."""
    return _by_node(metrics, "gap_ratio", lambda values: _within(values, TINIEST, 1 / TINIEST))


def numbers(value: object) -> FloatArray:
    """Return the numbers within bounds of a JSON list (or a single number), such as one for each seed."""
    found = np.array([number(item) for item in (value if isinstance(value, list) else [value])], dtype=np.float64)
    return found[np.abs(found) < ABSURD]


def mapping(value: object) -> dict[str, Any]:
    """Return the JSON object, or an empty one in its place."""
    return value if isinstance(value, dict) else {}


def _within(values: Mapping[str, float], low: float, high: float) -> dict[str, float]:
    return {v: value if low <= value <= high else math.nan for v, value in values.items()}


def _by_node(metrics: Metrics, key: str, convert: Callable[[dict[str, float]], dict[str, float]]) -> ByNode:
    known = []
    for epoch, record in zip(epochs(metrics), metrics, strict=True):
        table = convert({v: number(value) for v, value in mapping(record.get(key)).items()})
        if any(map(math.isfinite, table.values())):
            known.append((epoch, table))
    nodes = tuple(dict.fromkeys(v for _, table in known for v in table))
    values = np.array([[table.get(v, math.nan) for v in nodes] for _, table in known])
    return ByNode(np.array([epoch for epoch, _ in known]), nodes, values.reshape(len(known), len(nodes)))
