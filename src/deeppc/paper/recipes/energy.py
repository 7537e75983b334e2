"""The energy figures: where is the energy that the weights learn from, and is it of use?

Grid: {BP, PC, iPC, PC+S, PC+D, PC+F, PC+S+F, iPC+S} x {VGG5, VGG7, VGG10} on CIFAR-10, each with its own tuned rate of
the activities; and, because a larger rate alone carries energy further, "PC like PC+S" and "iPC like iPC+S", with all
of their settings, so that nothing differs but S. Share of the energy by node over training with train and test
accuracy, as in the paper; then, which the paper lacks, the cosine of each layer's update with backprop's, how far the
training has moved each layer's weights, and the energy by layer and inference step of one batch in the trained network.
At paper scale 30 runs of 50 epochs (one seed, no early stop, as there).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeppc.paper import published
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Cell, Evidence, Plot, Recipe, grid
from deeppc.paper.scales import Scale
from deeppc.paper.store import Record
from deeppc.training import config

if TYPE_CHECKING:
    from torch.nn import Parameter

ROWS = ("BP", "PC", "iPC", "PC+S", "PC+D", "PC+F", "PC+S+F", "iPC+S")
NETS = ("VGG5", "VGG7", "VGG10")
SAME = {"PC like PC+S": "PC+S", "iPC like iPC+S": "iPC+S"}
COLUMNS = ("first", "lowest", "first moved", "lowest cosine", "mean cosine", "train", "test")
HELD_STILL = 0.0  # learning rate: one batch is watched, nothing is learnt


def cells(scale: Scale) -> list[Cell]:
    own = grid(scale, ("cifar10",), ROWS, NETS, {"": {}})
    return own + [_without_spikes(cell, row) for row, of in SAME.items() for cell in own if cell.row == of]


def _without_spikes(cell: Cell, row: str) -> Cell:
    algorithm = cell.config.algorithm.replace("+s", "")
    return replace(cell, row=row, config=config.replace(cell.config, algorithm=algorithm))


def tables(evidence: Evidence) -> list[Matrix]:
    return [_table(evidence, net) for net in evidence.columns]


def _table(evidence: Evidence, net: str) -> Matrix:
    said = published.read("energy").get(net, {})
    entries = {}
    for place in (place for place in evidence.places if place.cell.column == net):
        row, found = place.cell.row, [_summary(run) for run in place.finished]
        for column in COLUMNS:
            entries[row, column] = place.entry((values[column] for values in found), said.get(row, {}).get(column))
    title = (
        f"{net} on {evidence.trained_on('cifar10')}, last epoch: log10 of the first layer's share of the energy and of "
        "the lowest; log10 of how far the first layer's weights have moved, relative to their size (selected epoch); "
        "cosine of the layers' updates with BP's; accuracy, %"
    )
    return Matrix(f"cifar10.{net}", title, entries)


def _summary(run: Record) -> dict[str, float]:
    from deeppc.paper.figures import last_cosines
    from deeppc.report import records

    metrics = run.metrics()
    last = records.energy_shares(metrics).values[-1]
    known = [cosine for cosine in last_cosines(metrics).values() if math.isfinite(cosine)]
    return {
        "first": _log10(last[0]),
        "lowest": _log10(min(last)),
        "first moved": next(iter(_moved(run).values()), math.nan),
        "lowest cosine": min(known, default=math.nan),
        "mean cosine": sum(known) / len(known) if known else math.nan,
        "train": 100 * metrics[-1]["train_accuracy"],
        "test": 100 * run.result["test_accuracy"],
    }


def _log10(value: float) -> float:
    """nan where there is none."""
    return math.log10(value) if value > 0 else math.nan


def _moved(run: Record) -> dict[str, float]:
    """log10 of how far each layer's weights have moved, relative to their size; nan for one that stands still."""
    return {v: _log10(distance) for v, distance in run.measured.get("energy", {}).get("moved", {}).items()}


def measure(scale: Scale, folder: Path) -> dict[str, Any]:
    """Return how far each layer's weights have moved; and, but for bp, which has no inference, the energy by node and
    inference step of the first batch in the trained network."""
    import torch

    from deeppc.diagnostics.energy import EnergyTrace
    from deeppc.paper.store import trained
    from deeppc.training.builder import build, saved_config

    found, before = trained(folder), build(saved_config(folder)).net.trainable()
    moved = {v: _distance(before[v], after) for v, after in found.net.trainable().items() if after}
    if found.algorithm.family == "bp":
        return {"moved": moved}
    trace = EnergyTrace()
    still = torch.optim.SGD(found.net.parameters(), lr=HELD_STILL)
    images, labels = next(found.sources().train.epoch(0))
    found.algorithm.step(found.net, images, labels, still, observe=trace)
    return {"moved": moved, "nodes": list(trace.nodes), "energy": trace.energy.tolist()}


def _distance(before: Sequence[Parameter], after: Sequence[Parameter]) -> float:
    """``|after - before| / |before|``, all weights of a node as one vector."""
    import torch

    a, b = (torch.cat([w.detach().flatten() for w in weights]).double() for weights in (before, after))
    return float((b - a).norm() / a.norm())


def plots(evidence: Evidence, made: Sequence[Matrix]) -> list[Plot]:
    nets = reversed(evidence.columns)  # the deepest, the paper's main figure, first
    return [plot for net in nets for plot in _plots(evidence, net)]


def _plots(evidence: Evidence, net: str) -> list[Plot]:
    import numpy as np

    from deeppc.paper import figures

    places = [place for place in evidence.places if place.cell.column == net]
    runs = {place.cell.row: place.finished[0] for place in places if place.finished}
    metrics = {row: run.metrics() for row, run in runs.items()}
    measured = {row: run.measured.get("energy", {}) for row, run in runs.items()}
    cosines = {row: figures.last_cosines(lines) for row, lines in metrics.items()}
    moved = {row: _moved(run) for row, run in runs.items()}
    waves = {row: np.array(found["energy"]) for row, found in measured.items() if "energy" in found}
    turn = ("Does each layer follow backprop?", "cosine of the weight updates, last epoch")
    way = ("How far has each layer moved?", "log₁₀ of the weights' distance from where they began, relative to size")
    where = f"{net} on {evidence.trained_on('cifar10')}; first seed"
    drawn = {
        "energy": (
            partial(figures.energies, metrics),
            f"Share of the energy by node over training, {where}. With the lowest cosine of a layer's update with "
            "backprop's at the last epoch.",
        ),
        "cosine": (
            partial(figures.by_layer, cosines, *turn),
            f"Cosine of each layer's weight update with backprop's on one batch, {where}, last epoch.",
        ),
        "moved": (
            partial(figures.by_layer, moved, *way),
            f"How far training has moved each layer's weights, {where}, selected epoch. Weight decay alone moves a "
            "layer by its learning rate times the decay times the number of updates.",
        ),
        "wave": (
            partial(figures.waves, waves),
            f"Energy by node and inference step of one batch in the trained network, {where}.",
        ),
    }
    return [Plot(f"{name}-{net.lower()}", draw, caption) for name, (draw, caption) in drawn.items()]


RECIPE = Recipe(
    name="energy",
    shows="Where the energy is, and whether layers learn in backprop's direction",
    paper=("Figure: energy", "Appendix figure on energy with precision", "Appendix figure on energy with F"),
    expect="In the paper PC's first layers hold up to 18 orders of magnitude less energy than the last; S lifts them.",
    cells=cells,
    tables=tables,
    plots=plots,
    measure=measure,
)
