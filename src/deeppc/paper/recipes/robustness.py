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
from deeppc.paper.matrix import Entry, Matrix
from deeppc.paper.recipe import Cell, Evidence, Place, Plot, Recipe, cell
from deeppc.paper.scales import Scale

NETWORKS = {"VGG5": ("PC+F", "PC"), "VGG10": ("BP", "PC+S+F")}
KINDS = {"accuracy": ("Accuracy, %", 100.0, 2), "ada_ece": ("adaECE", 1.0, 4)}  # words, unit, digits


def cells(scale: Scale) -> list[Cell]:
    return [
        cell(scale, "cifar10", row, net, model=net.lower(), algorithm=row.lower())
        for net, rows in NETWORKS.items()
        for row in rows
    ]


def measure(folder: Path, scale: Scale) -> dict[str, Any]:
    """Return temperature, and accuracy and adaECE on clean images and under every corruption."""
    from deeppc.data import Batches, Split
    from deeppc.diagnostics.calibration import ada_ece, answers, fit_temperature
    from deeppc.diagnostics.corruption import under_corruption
    from deeppc.paper.trained import trained

    found = trained(folder)
    net, dataset, held_out = found.net, found.dataset, found.sources().validation
    assert held_out is None or isinstance(held_out, Batches), "so it is of data in memory"
    test = Split(dataset.test.images[: scale.corrupted], dataset.test.labels[: scale.corrupted])
    clean = Batches(test, dataset, 500, augment=False, shuffle=False, device=found.device)
    temperature = fit_temperature(*answers(net, held_out or clean))
    logits, labels = answers(net, clean)
    accuracy = float((logits.argmax(dim=1) == labels).double().mean())
    scores = under_corruption(net, test, dataset=dataset, temperature=temperature)
    return {
        "images": len(test),
        "temperature": temperature,
        "fitted_on": "held-out images" if held_out is not None else "clean test images",
        "clean": {"accuracy": accuracy, "ada_ece": ada_ece(logits / temperature, labels)},
        "scores": [vars(score) for score in scores],
    }


def tables(evidence: Evidence) -> list[Matrix]:
    ranges = [_ranges(evidence, net) for net in evidence.columns("cifar10")]
    return ranges + [_by_level(evidence, key) for key in KINDS] + [_by_kind(evidence, key) for key in KINDS]


def _ranges(evidence: Evidence, net: str) -> Matrix:
    """The paper's table: lowest and highest adaECE over the corruptions, by level."""
    paper = published.read("robustness")[net]
    entries = {}
    for i, level in enumerate(paper["levels"]):
        for place in (p for p in evidence.places if p.cell.column == net):
            row = place.cell.row
            for j, (name, extreme) in enumerate((("lowest", min), ("highest", max))):
                values = _over_kinds(place, level, "ada_ece", extreme)
                entries[str(level), f"{row} {name}"] = Entry(values, (paper[row][i][j], None), place.diverged)
    columns = tuple(dict.fromkeys(column for _, column in entries))
    title = f"Range of adaECE over six corruptions, by level: {net} on {evidence.trained_on('cifar10')}"
    return Matrix(f"cifar10.{net}", title, tuple(map(str, paper["levels"])), columns, entries, digits=4)


def _by_level(evidence: Evidence, key: str) -> Matrix:
    """Mean over the corruptions; level 0 is clean."""
    words, unit, digits = KINDS[key]
    levels = published.read("robustness")["VGG5"]["levels"]
    entries = {}
    for place in evidence.places:
        clean = tuple(unit * found["clean"][key] for found in _measured(place))
        entries["0", _name(place)] = Entry(clean, diverged=place.diverged)
        for level in levels:
            values = tuple(unit * value for value in _over_kinds(place, level, key, fmean))
            entries[str(level), _name(place)] = Entry(values, diverged=place.diverged)
    rows, columns = ("0", *map(str, levels)), tuple(_name(place) for place in evidence.places)
    title = f"{words}, mean over six corruptions, by level: {evidence.trained_on('cifar10')}"
    return Matrix(f"cifar10.{key}", title, rows, columns, entries, digits)


def _by_kind(evidence: Evidence, key: str) -> Matrix:
    """Mean over the levels."""
    words, unit, digits = KINDS[key]
    kinds = dict.fromkeys(s["kind"] for place in evidence.places for found in _measured(place) for s in found["scores"])
    entries = {}
    for kind in kinds:
        for place in evidence.places:
            means = [fmean(s[key] for s in found["scores"] if s["kind"] == kind) for found in _measured(place)]
            values = tuple(unit * mean for mean in means)
            entries[kind.replace("_", " "), _name(place)] = Entry(values, diverged=place.diverged)
    rows, columns = tuple(kind.replace("_", " ") for kind in kinds), tuple(_name(place) for place in evidence.places)
    title = f"{words}, mean over five levels, by corruption: {evidence.trained_on('cifar10')}"
    return Matrix(f"cifar10.{key}-by-kind", title, rows, columns, entries, digits)


def _name(place: Place) -> str:
    return f"{place.cell.column} {place.cell.row}"


def _measured(place: Place) -> list[Any]:
    """Of each finished run."""
    return [run.measured["robustness"] for run in place.finished]


def _over_kinds(place: Place, level: float, key: str, combine: Callable[[list[float]], float]) -> tuple[float, ...]:
    """One value for each run: ``combine`` over the corruptions at a level."""
    return tuple(combine([s[key] for s in m["scores"] if s["level"] == level]) for m in _measured(place))


def plots(evidence: Evidence, made: Sequence[Matrix]) -> list[Plot]:
    from deeppc.paper.figures import corruptions

    where = evidence.trained_on("cifar10")
    drawn = {
        "Accuracy": partial(corruptions, _lines(evidence, "accuracy"), title="Accuracy", words="test accuracy, %"),
        "adaECE": partial(corruptions, _lines(evidence, "ada_ece"), title="Calibration", words="adaECE"),
    }
    return [
        Plot(f"corrupted-{name.lower()}", draw, f"{name} by corruption and level, {where}; mean over seeds.")
        for name, draw in drawn.items()
    ]


def _lines(evidence: Evidence, key: str) -> dict[str, dict[str, dict[float, float]]]:
    """For each corruption and network: values by level, level 0 being clean."""
    unit = KINDS[key][1]
    lines: dict[str, dict[str, dict[float, float]]] = {}
    for place in evidence.places:
        found = _measured(place)
        places = dict.fromkeys((s["kind"], s["level"]) for m in found for s in m["scores"])
        for kind, level in places:
            points = lines.setdefault(kind, {}).setdefault(_name(place), {})
            points.setdefault(0.0, unit * fmean(m["clean"][key] for m in found))
            scores = (s[key] for m in found for s in m["scores"] if (s["kind"], s["level"]) == (kind, level))
            points[level] = unit * fmean(scores)
    return lines


RECIPE = Recipe(
    name="robustness",
    shows="Calibration and accuracy under corrupted images",
    paper=("Appendix tables of adaECE (2)",),
    expect="In the paper PC+F is calibrated no worse than PC, and PC+S+F no worse than BP.",
    cells=cells,
    tables=tables,
    plots=plots,
    measure=measure,
)
