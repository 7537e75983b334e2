"""The adaECE tables: does the forward update cost calibration under corrupted images?

Grid: PC+F and PC in a VGG5, BP and PC+S+F in a VGG10, on CIFAR-10; and, which the paper lacks, PC+S+F with the gain,
whose early layers learn as much as BP's. Each trained network answers the test images under six corruptions (the paper
does not name its six) at levels 0.1 to 0.5. Range of adaECE over the six as in the paper; and, which it lacks, accuracy
and adaECE for each corruption. Logits are divided by a temperature that is fitted on clean held-out images (if all were
trained on: on the clean test images). At paper scale 25 runs, of 50 epochs at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from deeppc.paper import published
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Cell, Evidence, Place, Plot, Recipe, cell
from deeppc.paper.scales import Scale
from deeppc.training import config

NETWORKS = {"VGG5": ("PC+F", "PC"), "VGG10": ("BP", "PC+S+F", "PC+S+F, gain")}
SCORES = {"accuracy": ("Accuracy, %", 2), "ada_ece": ("adaECE", 4)}  # words, digits
CLEAN = "clean"  # the kind that is no corruption


def cells(scale: Scale) -> list[Cell]:
    return [_cell(scale, row, net) for net, rows in NETWORKS.items() for row in rows]


def _cell(scale: Scale, row: str, net: str) -> Cell:
    algorithm, _, gain = row.lower().partition(", ")
    found = cell(scale, "cifar10", row, net, model=net.lower(), algorithm=algorithm)
    return replace(found, config=config.replace(found.config, depth_gain=True)) if gain else found


def measure(scale: Scale, folder: Path) -> dict[str, Any]:
    """Return temperature, and accuracy and adaECE on clean images and under every corruption."""
    from deeppc.data import Batches, Split
    from deeppc.diagnostics.calibration import ada_ece, answers, fit_temperature
    from deeppc.diagnostics.corruption import under_corruption
    from deeppc.paper.store import trained

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
    ranges = [_ranges(evidence, net) for net in evidence.columns]
    by_level = [_means(evidence, key, "level", "mean over six corruptions, by level") for key in SCORES]
    by_kind = [_means(evidence, key, "kind", "mean over five levels, by corruption") for key in SCORES]
    return ranges + by_level + by_kind


def _ranges(evidence: Evidence, net: str) -> Matrix:
    """The paper's table: lowest and highest adaECE over the corruptions, by level."""
    paper = published.read("robustness")[net]
    entries = {}
    for i, level in enumerate(paper["levels"]):
        for place in (p for p in evidence.places if p.cell.column == net):
            row = place.cell.row
            found = [[s["ada_ece"] for s in run if s["level"] == level] for run in _scores(place)]
            lowest, highest = paper[row][i] if row in paper else (None, None)
            entries[str(level), f"{row} lowest"] = place.entry(map(min, found), lowest)
            entries[str(level), f"{row} highest"] = place.entry(map(max, found), highest)
    title = f"Range of adaECE over six corruptions, by level: {net} on {evidence.trained_on('cifar10')}"
    return Matrix(f"cifar10.{net}", title, entries, digits=4)


def _means(evidence: Evidence, key: str, by: str, how: str) -> Matrix:
    """Means of a score over all that have the same level, or the same kind of corruption."""
    words, digits = SCORES[key]
    scores = [(place, _scores(place)) for place in evidence.places]
    entries = {}
    for group in dict.fromkeys(s[by] for _, runs in scores for run in runs for s in run if s[by] != CLEAN):
        for place, runs in scores:
            means = [fmean(s[key] for s in run if s[by] == group) for run in runs]
            entries[str(group).replace("_", " "), _name(place)] = place.entry(means)
    title = f"{words}, {how}: {evidence.trained_on('cifar10')}"
    return Matrix(f"cifar10.{key}" + ("-by-kind" if by == "kind" else ""), title, entries, digits)


def _name(place: Place) -> str:
    return f"{place.cell.column} {place.cell.row}"


def _scores(place: Place) -> list[list[dict[str, Any]]]:
    """For each measured run: accuracy (in percent) and adaECE by kind of corruption and level; clean is level 0."""
    found = [run.measured["robustness"] for run in place.finished if "robustness" in run.measured]
    return [
        [{**s, "accuracy": 100 * s["accuracy"]} for s in ({"kind": CLEAN, "level": 0, **m["clean"]}, *m["scores"])]
        for m in found
    ]


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
    """For each corruption and network: means over seeds by level, level 0 being clean."""
    lines: dict[str, dict[str, dict[float, float]]] = {}
    for place, scores in ((place, scores) for place in evidence.places if (scores := _scores(place))):
        clean, *corrupted = zip(*scores, strict=True)
        for seeds in corrupted:
            points = lines.setdefault(seeds[0]["kind"], {}).setdefault(_name(place), {})
            points.setdefault(0.0, fmean(s[key] for s in clean))
            points[seeds[0]["level"]] = fmean(s[key] for s in seeds)
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
