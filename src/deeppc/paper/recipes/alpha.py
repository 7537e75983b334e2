"""Not in the paper: what does precision outside the spike (alpha) buy, and what does it cost?

Grid: {PC+S+F, iPC+S} x alpha in {0, 0.001, 0.01, 0.05} x {VGG5, VGG10} with BatchNorm freezing on CIFAR-10, and BP. All
with the same rates, so that nothing but alpha differs. At paper scale 90 runs, of 50 epochs at most.

With alpha = 0 every node is pulled at once and never again, so the update of PC+S+F is backprop's up to a factor for
each layer, at backprop's cost. Two tables: accuracy after equal epochs, and the work until an accuracy is reached,
in backprop epochs (multiply-adds that the engine counts, so that no machine and no load enters).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from deeppc.paper.recipe import Cell, Evidence, Picture, Recipe, accuracies, cell, dot_plots
from deeppc.paper.scales import Scale
from deeppc.paper.tables import Entry, Table
from deeppc.training.config import TrainConfig

ALPHAS = (0.0, 0.001, 0.01, 0.05)
ALGORITHMS = ("PC+S+F", "iPC+S")
GOALS = {"VGG5": 35, "VGG10": 25}  # percent of held-out images
RATES: dict[str, Any] = {
    "lr_x": 0.5,
    "lr_w": 1e-3,
    "momentum_x": 0.0,
    "T": None,
    "activation": "gelu",
    "weight_decay": 1e-4,
}


def cells(scale: Scale) -> list[Cell]:
    if "cifar10" not in scale.datasets:
        return []
    made = []
    for net, algorithm in product(GOALS, ALGORITHMS):
        if net.lower() in scale.models:
            column, common = f"{net} {algorithm}", {**RATES, "model": net.lower(), "norm": "bf"}
            made.append(cell(scale, "cifar10", "BP", column, algorithm="bp", **common))
            for alpha in ALPHAS:
                row = f"alpha {alpha:g}"
                made.append(cell(scale, "cifar10", row, column, algorithm=algorithm.lower(), alpha=alpha, **common))
    return [replace(place, hyper="the same for all: lr_x 0.5, lr_w 0.001, T = L, BF") for place in made]


def tables(evidence: Evidence) -> list[Table]:
    return [accuracies(evidence, "cifar10", "top1", {}, "Test accuracy after equal epochs"), _work(evidence)]


def _work(evidence: Evidence) -> Table:
    """Until the goal is reached on held-out images, in backprop epochs; runs that do not reach it are counted."""
    entries = {}
    for place in evidence.places:
        goal = GOALS[place.cell.column.split()[0]] / 100
        epochs = [_epochs_until(goal, run.folder) for run in place.runs if run.finished]
        reached = tuple(e * _cost(place.cell.config) for e in epochs if e is not None)
        missed = sum(e is None for e in epochs)
        note = f"{missed} never" if missed else ""
        entries[place.cell.row, place.cell.column] = Entry(reached, note=note)
    goals = ", ".join(f"{net} {goal} %" for net, goal in GOALS.items())
    rows, columns = evidence.labels("cifar10", "row"), evidence.labels("cifar10", "column")
    title = f"Backprop epochs of work until a held-out accuracy ({goals}) is reached"
    return Table("cifar10.work", title, tuple(rows), tuple(columns), entries)


def _epochs_until(goal: float, folder: Path) -> float | None:
    """Epochs until the accuracy on held-out images is ``goal``, between two epochs on a straight line; or None."""
    from deeppc.report.records import number, read_run

    curve = [(0.0, 0.0)]
    for line in read_run(folder).metrics:
        value = line.get("test_accuracy", line.get("validation_accuracy"))  # of the one that selects
        curve.append((float(line["epoch"]), number(value)))
    for (e0, a0), (e1, a1) in pairwise(curve):
        if a1 >= goal:
            return e0 + (e1 - e0) * (goal - a0) / (a1 - a0)
    return None


@cache
def _cost(config: TrainConfig) -> float:
    """Multiply-adds of a step relative to a backprop step."""
    import torch

    from deeppc.bench.steps import cost, multiply_adds
    from deeppc.core.algorithms import Algorithm
    from deeppc.models import build
    from deeppc.training.config import algorithm_options

    net = build(config.model, width=config.width)
    images, labels = torch.zeros(1, 3, 32, 32), torch.zeros(1, dtype=torch.long)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    macs = multiply_adds(net, images)
    steps = [Algorithm.parse("bp"), Algorithm.parse(config.algorithm, **algorithm_options(config))]
    backprop, ours = (cost(step.step(net, images, labels, optimizer).work, macs) for step in steps)
    return ours / backprop


def pictures(evidence: Evidence, made: Sequence[Table]) -> list[Picture]:
    return dot_plots(made[:1], "Precision outside the spike")


RECIPE = Recipe(
    name="alpha",
    shows="Precision outside the spike: what alpha buys, and what it costs",
    paper=(),
    expect="With alpha = 0 the update of PC+S+F is backprop's up to a factor for each layer, at backprop's cost.",
    cells=cells,
    tables=tables,
    pictures=pictures,
)
