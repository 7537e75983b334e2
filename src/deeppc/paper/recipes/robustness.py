"""The adaECE tables: does the forward update cost calibration under corrupted images?

Grid: PC+F and PC in a VGG5, BP and PC+S+F in a VGG10, on CIFAR-10; each trained network answers the test images under
six corruptions (the paper does not name its six) at levels 0.1 to 0.5. Range of adaECE over the six as in the paper;
and, which the paper lacks, accuracy and adaECE for each corruption. Logits are divided by a temperature that is fitted
on clean held-out images (if all were trained on: on the clean test images). At paper scale 20 runs, of 50 epochs at
most.

Expect: no worse calibration with F than without, nor than BP.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from deeppc.paper import published
from deeppc.paper.recipe import Cell, Evidence, Measured, Picture, Place, Recipe, cell
from deeppc.paper.scales import Scale
from deeppc.paper.tables import Entry, Table

NETWORKS = {"VGG5": ("PC+F", "PC"), "VGG10": ("BP", "PC+S+F")}
Scores = list[dict[str, Any]]


def cells(scale: Scale) -> list[Cell]:
    if "cifar10" not in scale.datasets:
        return []
    return [
        cell(scale, "cifar10", row, net, model=net.lower(), algorithm=row.lower())
        for net, rows in NETWORKS.items()
        if net.lower() in scale.models
        for row in rows
    ]


def measure(folder: Path, scale: Scale) -> Measured:
    """Temperature, and accuracy and adaECE on clean images and under every corruption."""
    from deeppc.data import Batches, Split
    from deeppc.diagnostics.calibration import ada_ece, answers, fit_temperature
    from deeppc.diagnostics.robustness import under_corruption
    from deeppc.paper.trained import load_trained

    trained = load_trained(folder)
    whole = trained.dataset.test
    test = Split(whole.images[: scale.corrupted], whole.labels[: scale.corrupted])
    clean = Batches(test, trained.dataset, 500, augment=False, shuffle=False, device=trained.device)
    held_out = trained.validation or clean
    temperature = fit_temperature(*answers(trained.net, held_out))
    logits, labels = answers(trained.net, clean)
    accuracy = float((logits.argmax(dim=1) == labels).double().mean())
    scores = under_corruption(trained.net, test, dataset=trained.dataset, temperature=temperature)
    return {
        "images": len(test),
        "temperature": temperature,
        "fitted_on": "held-out images" if trained.validation is not None else "clean test images",
        "clean": {"accuracy": accuracy, "ada_ece": ada_ece(logits / temperature, labels)},
        "scores": [vars(score) for score in scores],
    }


def tables(evidence: Evidence) -> list[Table]:
    ranges = [_ranges(evidence, net) for net in evidence.labels("cifar10", "column")]
    what = ("accuracy", "Accuracy, %", 100.0, 2), ("ada_ece", "adaECE", 1.0, 4)
    by_level = [_by_level(evidence, *kind) for kind in what]
    return ranges + by_level + [_by_kind(evidence, *kind) for kind in what]


def _ranges(evidence: Evidence, net: str) -> Table:
    """The paper's table: lowest and highest adaECE over the corruptions, by level."""
    paper = published.read("robustness")[net]
    entries = {}
    for i, level in enumerate(paper["levels"]):
        for row in NETWORKS[net]:
            place = _place(evidence, row, net)
            for j, (name, extreme) in enumerate((("lowest", min), ("highest", max))):
                values = _over_kinds(place, level, "ada_ece", extreme)
                entries[str(level), f"{row} {name}"] = Entry(values, (paper[row][i][j], None), place.diverged)
    columns = tuple(f"{row} {name}" for row in NETWORKS[net] for name in ("lowest", "highest"))
    title = f"Range of adaECE over six corruptions, by level: {net} on {evidence.trained_on('cifar10')}"
    return Table(f"cifar10.{net}", title, tuple(map(str, paper["levels"])), columns, entries, digits=4)


def _by_level(evidence: Evidence, key: str, words: str, unit: float, digits: int) -> Table:
    """Mean over the corruptions; level 0 is clean."""
    levels = published.read("robustness")["VGG5"]["levels"]
    entries = {}
    for place in evidence.places:
        clean = tuple(unit * run.measured["clean"][key] for run in place.runs if run.measured)
        entries["0", _name(place)] = Entry(clean, diverged=place.diverged)
        for level in levels:
            values = tuple(unit * value for value in _over_kinds(place, level, key, fmean))
            entries[str(level), _name(place)] = Entry(values, diverged=place.diverged)
    rows, columns = ("0", *map(str, levels)), tuple(_name(place) for place in evidence.places)
    title = f"{words}, mean over six corruptions, by level: {evidence.trained_on('cifar10')}"
    return Table(f"cifar10.{key}", title, rows, columns, entries, digits)


def _by_kind(evidence: Evidence, key: str, words: str, unit: float, digits: int) -> Table:
    """Mean over the levels."""
    kinds = list(dict.fromkeys(s["kind"] for place in evidence.places for scores in _scores(place) for s in scores))
    entries = {
        (kind.replace("_", " "), _name(place)): Entry(
            tuple(unit * fmean(s[key] for s in scores if s["kind"] == kind) for scores in _scores(place)),
            diverged=place.diverged,
        )
        for kind in kinds
        for place in evidence.places
    }
    rows, columns = tuple(kind.replace("_", " ") for kind in kinds), tuple(_name(place) for place in evidence.places)
    title = f"{words}, mean over five levels, by corruption: {evidence.trained_on('cifar10')}"
    return Table(f"cifar10.{key}-by-kind", title, rows, columns, entries, digits)


def _place(evidence: Evidence, row: str, net: str) -> Place:
    found = evidence.place("cifar10", row, net)
    assert found is not None, "the grid has it"
    return found


def _name(place: Place) -> str:
    return f"{place.cell.column} {place.cell.row}"


def _scores(place: Place) -> list[Scores]:
    """Of each run."""
    return [run.measured["scores"] for run in place.runs if run.measured]


def _over_kinds(place: Place, level: float, key: str, combine: Callable[[list[float]], float]) -> tuple[float, ...]:
    """One value for each run: ``combine`` over the corruptions at a level."""
    return tuple(combine([s[key] for s in scores if s["level"] == level]) for scores in _scores(place))


def pictures(evidence: Evidence, made: Sequence[Table]) -> list[Picture]:
    from deeppc.paper.figures import corruptions

    where = evidence.trained_on("cifar10")
    drawn = {
        "Accuracy": partial(corruptions, _lines(evidence, "accuracy", 100), title="Accuracy", words="test accuracy, %"),
        "adaECE": partial(corruptions, _lines(evidence, "ada_ece", 1), title="Calibration", words="adaECE"),
    }
    return [
        Picture(f"corrupted-{name.lower()}", draw, f"{name} by corruption and level, {where}; mean over seeds.")
        for name, draw in drawn.items()
    ]


def _lines(evidence: Evidence, key: str, unit: float) -> dict[str, dict[str, Any]]:
    """For each corruption and network: levels and values, level 0 being clean."""
    import numpy as np

    lines: dict[str, dict[str, Any]] = {}
    for place in evidence.places:
        runs = [run.measured for run in place.runs if run.measured]
        for kind in dict.fromkeys(s["kind"] for run in runs for s in run["scores"]):
            points = {0.0: fmean(run["clean"][key] for run in runs)}
            for level in dict.fromkeys(s["level"] for s in runs[0]["scores"]):
                points[level] = fmean(
                    s[key] for run in runs for s in run["scores"] if (s["kind"], s["level"]) == (kind, level)
                )
            lines.setdefault(kind, {})[_name(place)] = np.array(list(points)), unit * np.array(list(points.values()))
    return lines


RECIPE = Recipe(
    name="robustness",
    shows="Calibration and accuracy under corrupted images",
    paper=("Appendix tables of adaECE (2)",),
    expect="In the paper PC+F is calibrated no worse than PC, and PC+S+F no worse than BP.",
    cells=cells,
    tables=tables,
    pictures=pictures,
    measure=measure,
)
