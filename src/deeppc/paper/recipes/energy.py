"""The energy figures: where is the energy that the weights learn from, and is it of use?

Grid: {BP, PC, iPC, PC+S, PC+D, PC+F, PC+S+F, iPC+S} x {VGG5, VGG7, VGG10} on CIFAR-10, each with its own tuned rate of
the activities; and, because a larger rate alone carries energy further, "PC like PC+S" and "iPC like iPC+S", with all
of their settings, so that nothing differs but S. Share of the energy by node over training with train and test
accuracy, as in the paper; then, which the paper lacks, the cosine of each layer's update with backprop's, how far the
training has moved each layer's weights, and the energy by layer and inference step of one batch in the trained network.
At paper scale 30 runs of 50 epochs (one seed, no early stop, as there).

Expect: under PC the first layers hold many orders of magnitude less energy than the output; S lifts them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeppc.paper import published
from deeppc.paper.matrix import Entry, Matrix
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
    return [_table(evidence, net) for net in evidence.columns("cifar10")]


def _table(evidence: Evidence, net: str) -> Matrix:
    said = published.read("energy").get(net, {})
    rows = evidence.rows("cifar10")
    entries = {}
    for row in rows:
        if (place := evidence.place("cifar10", row, net)) is None:
            continue
        found = [_summary(run) for run in place.finished]
        for column in COLUMNS:
            paper = said.get(row, {}).get(column)
            values = tuple(values[column] for values in found if math.isfinite(values[column]))
            entries[row, column] = Entry(values, None if paper is None else (paper, None), place.diverged)
    title = (
        f"{net} on {evidence.trained_on('cifar10')}, last epoch: log10 of the first layer's share of the energy and of "
        "the lowest; log10 of how far the first layer's weights have moved, relative to their size (selected epoch); "
        "cosine of the layers' updates with BP's; accuracy, %"
    )
    return Matrix(f"cifar10.{net}", title, rows, COLUMNS, entries)


def _summary(run: Record) -> dict[str, float]:
    from deeppc.paper.figures import last_cosines
    from deeppc.report import records

    metrics = run.metrics()
    last = records.energy_shares(metrics).values[-1]
    known = [cosine for cosine in last_cosines(metrics).values() if math.isfinite(cosine)]
    return {
        "first": _log(last[0]),
        "lowest": _log(min(last)),
        "first moved": next(iter(_moved(run).values()), math.nan),
        "lowest cosine": min(known, default=math.nan),
        "mean cosine": sum(known) / len(known) if known else math.nan,
        "train": 100 * metrics[-1]["train_accuracy"],
        "test": 100 * run.result["test_accuracy"],
    }


def _log(share: float) -> float:
    return math.log10(share) if share > 0 else -math.inf


def _moved(run: Record) -> dict[str, float]:
    """log10 of how far each layer's weights have moved, relative to their size; nan for one that stands still."""
    moved = run.measured["energy"]["moved"]
    return {v: math.log10(distance) if distance > 0 else math.nan for v, distance in moved.items()}


def measure(folder: Path, scale: Scale) -> dict[str, Any]:
    """Return how far each layer's weights have moved; and, but for bp, which has no inference, the energy by node and
    inference step of the first batch in the trained network."""
    import torch

    from deeppc.diagnostics.energy import EnergyTrace
    from deeppc.paper.trained import trained, untrained

    found, before = trained(folder), untrained(folder).net.trainable()
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
    nets = reversed(evidence.columns("cifar10"))  # the deepest, the paper's main figure, first
    return [plot for net in nets for plot in _plots(evidence, net)]


def _plots(evidence: Evidence, net: str) -> list[Plot]:
    import numpy as np

    from deeppc.paper import figures

    places = [place for place in evidence.places if place.cell.column == net]
    runs = {place.cell.row: place.finished[0] for place in places if place.finished}
    metrics = {row: run.metrics() for row, run in runs.items()}
    measured = {row: run.measured["energy"] for row, run in runs.items()}
    cosines = {row: figures.last_cosines(lines) for row, lines in metrics.items()}
    name = net.lower()
    where = f"{net} on {evidence.trained_on('cifar10')}"
    return [
        Plot(
            f"energy-{name}",
            partial(figures.energies, metrics),
            f"Share of the energy by node over training, {where}; first seed. With the lowest cosine of a layer's "
            "update with backprop's at the last epoch.",
        ),
        Plot(
            f"cosine-{name}",
            partial(
                figures.by_layer,
                cosines,
                title="Does each layer follow backprop?",
                note="cosine of the weight updates, last epoch",
            ),
            f"Cosine of each layer's weight update with backprop's on one batch, {where}; first seed, last epoch.",
        ),
        Plot(
            f"moved-{name}",
            partial(
                figures.by_layer,
                {row: _moved(run) for row, run in runs.items()},
                title="How far has each layer moved?",
                note="log₁₀ of the weights' distance from where they began, relative to their size",
            ),
            f"How far training has moved each layer's weights, {where}; first seed, selected epoch. Weight decay alone "
            "moves a layer by its learning rate times the decay times the number of updates.",
        ),
        Plot(
            f"wave-{name}",
            partial(figures.waves, {row: np.array(m["energy"]) for row, m in measured.items() if "energy" in m}),
            f"Energy by node and inference step of one batch in the trained network, {where}; first seed.",
        ),
    ]


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
