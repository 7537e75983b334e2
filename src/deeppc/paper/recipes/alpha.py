"""Not in the paper: what does precision outside the spike (alpha) buy, and what does it cost?

Grid: {PC+S+F, iPC+S} x alpha in {0, 0.001, 0.01, 0.05} x {VGG5, VGG10} with BatchNorm freezing on CIFAR-10, and BP. All
with the same rates, so that nothing but alpha differs. At paper scale 90 runs, of 50 epochs at most.

With alpha = 0 every node is pulled at once and never again, so the update of PC+S+F is backprop's up to a factor for
each layer, at backprop's cost. Two tables: accuracy after equal epochs, and the work until an accuracy is reached,
in backprop epochs (multiply-adds that the engine counts, so that no machine and no load enters).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

from deeppc.paper.matrix import Entry, Matrix
from deeppc.paper.recipe import Cell, Evidence, Recipe, accuracies, cell, dot_plots
from deeppc.paper.scales import Scale
from deeppc.paper.work import held_out, relative_cost

ALPHAS = (0.0, 0.001, 0.01, 0.05)
RATES: dict[str, Any] = {"lr_x": 0.5, "lr_w": 1e-3, "momentum_x": 0.0, "T": None}
RATES |= {"activation": "gelu", "weight_decay": 1e-4}


def cells(scale: Scale) -> list[Cell]:
    made = []
    for net, algorithm in product(("VGG5", "VGG10"), ("PC+S+F", "iPC+S")):
        column, common = f"{net} {algorithm}", {**RATES, "model": net.lower(), "norm": "bf"}
        made.append(cell(scale, "cifar10", "BP", column, algorithm="bp", **common))
        for alpha in ALPHAS:
            row = f"alpha {alpha:g}"
            made.append(cell(scale, "cifar10", row, column, algorithm=algorithm.lower(), alpha=alpha, **common))
    return [replace(place, hyper="the same for all: lr_x 0.5, lr_w 0.001, T = L, BF") for place in made]


def tables(evidence: Evidence) -> list[Matrix]:
    return [accuracies(evidence, "cifar10", "top1", {}, "Test accuracy after equal epochs"), _work(evidence)]


def _work(evidence: Evidence) -> Matrix:
    """Until the goal is reached on held-out images, in backprop epochs; runs that do not reach it are counted."""
    goal = evidence.scale.goal
    entries = {}
    for place in evidence.places:
        epochs = [epochs_until(goal / 100, run.metrics()) for run in place.finished]
        cost = relative_cost(place.cell.config) if epochs else 1.0
        missed = sum(e is None for e in epochs)
        reached = tuple(e * cost for e in epochs if e is not None)
        entries[place.at] = Entry(reached, note=f"{missed} never" if missed else "")
    title = f"Backprop epochs of work until a held-out accuracy of {goal} % is reached"
    return Matrix("cifar10.work", title, entries)


def epochs_until(goal: float, metrics: Sequence[Mapping[str, Any]]) -> float | None:
    """Epochs until the accuracy on held-out images is ``goal``, between two epochs on a straight line; or None."""
    for (e0, a0), (e1, a1) in pairwise([(0.0, 0.0), *held_out(metrics)]):
        if a1 >= goal:
            return e0 + (e1 - e0) * (goal - a0) / (a1 - a0)
    return None


RECIPE = Recipe(
    name="alpha",
    shows="Precision outside the spike: what alpha buys, and what it costs",
    paper=(),
    expect="With alpha = 0 the update of PC+S+F is backprop's up to a factor for each layer, at backprop's cost.",
    cells=cells,
    tables=tables,
    plots=lambda evidence, made: dot_plots(made[:1], "Precision outside the spike"),
)
