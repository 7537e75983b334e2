"""A run folder as it is found: finished, running, killed in mid-line, diverged, or written by another version.

Nothing here raises for odd content. What is missing or of another kind is left out, and the report does not show it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deeppc.diagnostics.energy import FloatArray, shares

Metrics = Sequence[Mapping[str, Any]]
ABSURD = 1e30  # no accuracy, learning rate or time is as large, and squares of larger ones overflow in a picture
TINIEST = 1e-300  # the end of a logarithmic axis
ACCURACIES = ("train_accuracy", "validation_accuracy", "test_accuracy")


@dataclass(frozen=True)
class Run:
    """The three files of a run folder; an empty ``result`` means that the run did not finish (yet)."""

    manifest: dict[str, Any]
    metrics: list[dict[str, Any]]
    result: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        return mapping(self.manifest.get("config"))

    @property
    def diverged_at(self) -> float | None:
        """The first epoch with an accuracy or an energy that is written down, but is not a finite number."""
        for i, record in enumerate(self.metrics):
            noted = [record.get(key) for key in ACCURACIES] + list(mapping(record.get("energy")).values())
            if any(value is not None and not math.isfinite(number(value)) for value in noted):
                return float(epochs(self.metrics)[i])
        return None


@dataclass(frozen=True)
class ByNode:
    """Something that each epoch knows of each node: ``values`` is (epochs, nodes), nan where it is unknown."""

    epochs: FloatArray
    nodes: tuple[str, ...]
    values: FloatArray


def read_run(folder: Path) -> Run:
    """Raises FileNotFoundError where there is no such folder, and nothing else."""
    require_folder(folder)
    return Run(
        manifest=read_object(folder / "manifest.json"),
        metrics=read_metrics(folder / "metrics.jsonl"),
        result=read_object(folder / "result.json"),
    )


def require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {str(folder)!r}: expected the folder that a run or a comparison wrote")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
    return _object(_text(path))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """One record per epoch, in order. A torn line is skipped; an epoch that a resumed run repeated counts once."""
    records = [record for line in _text(path).splitlines() if (record := _object(line))]
    numbered = {float(epoch): record for epoch, record in zip(epochs(records), records, strict=True)}
    return [numbered[epoch] for epoch in sorted(numbered)]


def epochs(metrics: Metrics) -> FloatArray:
    """The records' own numbers, or their place in the file where they have none."""
    own = [number(record.get("epoch")) for record in metrics]
    return np.array([e if math.isfinite(e) else float(i) for i, e in enumerate(own, start=1)])


def series(metrics: Metrics, key: str) -> FloatArray:
    """One number per epoch, nan where it is missing or out of all bounds."""
    values = np.array([number(record.get(key)) for record in metrics])
    return np.where(np.abs(values) < ABSURD, values, np.nan)


def energy_shares(metrics: Metrics) -> ByNode:
    """Share of the energy by node, over the epochs that know any: not those after a run has diverged.

    0 where no energy came.
    """
    return _by_node(metrics, [shares(_numbers_of(record, "energy")) for record in metrics])


def cosines(metrics: Metrics) -> ByNode:
    """Of each node's update with backprop's, over the epochs that recorded any (``diagnostics``)."""
    return _by_node(metrics, [_within(_numbers_of(record, "bp_cosine"), -1.0, 1.0) for record in metrics])


def gap_ratios(metrics: Metrics) -> ByNode:
    """Gap ratio by node, over the epochs that recorded any; nan where it is 0 or inf, which have no logarithm."""
    return _by_node(metrics, [_within(_numbers_of(record, "gap_ratio"), TINIEST, 1 / TINIEST) for record in metrics])


def _within(values: Mapping[str, float], low: float, high: float) -> dict[str, float]:
    return {v: value if low <= value <= high else math.nan for v, value in values.items()}


def _numbers_of(record: Mapping[str, Any], key: str) -> dict[str, float]:
    return {v: number(value) for v, value in mapping(record.get(key)).items()}


def _by_node(metrics: Metrics, tables: Sequence[Mapping[str, float]]) -> ByNode:
    known = [
        (epoch, table)
        for epoch, table in zip(epochs(metrics), tables, strict=True)
        if any(math.isfinite(value) for value in table.values())
    ]
    nodes = tuple(dict.fromkeys(v for _, table in known for v in table))
    values = np.array([[table.get(v, math.nan) for v in nodes] for _, table in known])
    return ByNode(np.array([epoch for epoch, _ in known]), nodes, values.reshape(len(known), len(nodes)))


def number(value: object) -> float:
    """A float from a JSON value; nan where it is none. Not-finite numbers may be written as strings."""
    if isinstance(value, int | float | str):
        try:
            return float(value)
        except (ValueError, OverflowError):
            pass
    return math.nan


def numbers(value: object) -> FloatArray:
    """The numbers within bounds of a JSON list (or a single number), e.g. one for each seed."""
    items = value if isinstance(value, list) else [value]
    found = np.array([number(item) for item in items], dtype=np.float64)
    return found[np.abs(found) < ABSURD]


def mapping(value: object) -> dict[str, Any]:
    """The JSON object, or an empty one in its place."""
    return value if isinstance(value, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _object(text: str) -> dict[str, Any]:
    try:
        return mapping(json.loads(text))
    except (ValueError, RecursionError):
        return {}
