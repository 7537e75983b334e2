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
from typing import TYPE_CHECKING

from deeppc.paper import published
from deeppc.paper.recipe import Cell, Evidence, Measured, Picture, Recipe, grid
from deeppc.paper.scales import Scale
from deeppc.paper.tables import Entry, Table
from deeppc.training.config import for_algorithm

if TYPE_CHECKING:
    from torch.nn import Parameter

    from deeppc.paper.figures import Traced
    from deeppc.paper.pool import Run

ROWS = ("BP", "PC", "iPC", "PC+S", "PC+D", "PC+F", "PC+S+F", "iPC+S")
NETS = ("VGG5", "VGG7", "VGG10")
SAME = {"PC like PC+S": "PC+S", "iPC like iPC+S": "iPC+S"}
COLUMNS = ("first", "lowest", "first moved", "lowest cosine", "mean cosine", "train", "test")
HELD_STILL = 0.0  # learning rate: one batch is watched, nothing is learnt


def cells(scale: Scale) -> list[Cell]:
    own = grid(scale, ("cifar10",), ROWS, NETS, {"": {}})
    spiking = {row: [cell for cell in own if cell.row == of] for row, of in SAME.items()}
    same = [_without_spikes(cell, row) for row, cells in spiking.items() for cell in cells]
    return own + same


def _without_spikes(cell: Cell, row: str) -> Cell:
    algorithm = cell.config.algorithm.replace("+s", "")
    return replace(cell, row=row, config=for_algorithm(cell.config, algorithm))


def tables(evidence: Evidence) -> list[Table]:
    return [_table(evidence, net) for net in evidence.labels("cifar10", "column")]


def _table(evidence: Evidence, net: str) -> Table:
    said = published.read("energy").get(net, {})
    entries = {}
    for row in (*ROWS, *SAME):
        place = evidence.place("cifar10", row, net)
        found = [_summary(run) for run in place.runs if run.finished] if place is not None else []
        for column in COLUMNS:
            paper = said.get(row, {}).get(column)
            values = tuple(values[column] for values in found if math.isfinite(values[column]))
            diverged = place.diverged if place is not None else 0
            entries[row, column] = Entry(values, None if paper is None else (paper, None), diverged)
    title = (
        f"{net} on {evidence.trained_on('cifar10')}, last epoch: log10 of the first layer's share of the energy and of "
        "the lowest; log10 of how far the first layer's weights have moved, relative to their size (selected epoch); "
        "cosine of the layers' updates with BP's; accuracy, %"
    )
    return Table(f"cifar10.{net}", title, (*ROWS, *SAME), COLUMNS, entries)


def _summary(run: Run) -> dict[str, float]:
    traced = _traced(run)
    last = traced.shares[-1]
    known = [cosine for cosine in traced.cosines.values() if math.isfinite(cosine)]
    return {
        "first": _log(last[0]),
        "lowest": _log(min(last)),
        "first moved": next(iter(_moved(run).values()), math.nan),
        "lowest cosine": min(known, default=math.nan),
        "mean cosine": sum(known) / len(known) if known else math.nan,
        "train": 100 * traced.train[-1],
        "test": 100 * run.result["test_accuracy"],
    }


def _log(share: float) -> float:
    return math.log10(share) if share > 0 else -math.inf


def _moved(run: Run) -> dict[str, float]:
    """log10 of how far each layer's weights have moved, relative to their size; nan for one that stands still."""
    moved = (run.measured or {}).get("moved", {})
    return {v: math.log10(distance) if distance > 0 else math.nan for v, distance in moved.items()}


def _traced(run: Run) -> Traced:
    """What the run's folder recorded, by epoch."""
    from deeppc.paper.figures import Traced
    from deeppc.report import records

    metrics = records.read_metrics(run.folder / "metrics.jsonl")
    shares = records.energy_shares(metrics)
    by = "test_accuracy" if run.result["select"] == "test" else "validation_accuracy"
    return Traced(
        epochs=shares.epochs,
        nodes=shares.nodes,
        shares=shares.values,
        train=records.series(metrics, "train_accuracy"),
        test=records.series(metrics, by),
        cosines={v: records.number(c) for v, c in records.mapping(metrics[-1].get("bp_cosine")).items()},
    )


def measure(folder: Path, scale: Scale) -> Measured:
    """How far each layer's weights have moved; and, but for bp, which has no inference, the energy by node and
    inference step of the first batch in the trained network."""
    import torch

    from deeppc.diagnostics.energy import EnergyTrace
    from deeppc.paper.trained import load_trained, untrained

    trained = load_trained(folder)
    before = untrained(folder).trainable()
    moved = {v: _distance(before[v], after) for v, after in trained.net.trainable().items() if after}
    if trained.algorithm.family == "bp":
        return {"moved": moved}
    trace = EnergyTrace()
    still = torch.optim.SGD(trained.net.parameters(), lr=HELD_STILL)
    images, labels = next(trained.training.epoch(0))
    trained.algorithm.step(trained.net, images, labels, still, observe=trace)
    return {"moved": moved, "nodes": list(trace.nodes), "energy": trace.energy.tolist()}


def _distance(before: Sequence[Parameter], after: Sequence[Parameter]) -> float:
    """``|after - before| / |before|``, all weights of a node as one vector."""
    import torch

    a, b = (torch.cat([w.detach().flatten() for w in weights]).double() for weights in (before, after))
    return float((b - a).norm() / a.norm())


def pictures(evidence: Evidence, made: Sequence[Table]) -> list[Picture]:
    shown = []
    for net in reversed(evidence.labels("cifar10", "column")):  # the deepest, the paper's main figure, first
        shown += _pictures(evidence, net)
    return shown


def _pictures(evidence: Evidence, net: str) -> list[Picture]:
    import numpy as np

    from deeppc.paper import figures

    runs = {row: run for row in (*ROWS, *SAME) if (run := _first(evidence, row, net)) is not None}
    traced = {row: _traced(run) for row, run in runs.items()}
    measured = {row: run.measured or {} for row, run in runs.items()}
    waves = {row: (m["nodes"], np.array(m["energy"])) for row, m in measured.items() if "energy" in m}
    name = net.lower()
    where = f"{net} on {evidence.trained_on('cifar10')}"
    return [
        Picture(
            f"energy-{name}",
            partial(figures.energies, traced),
            f"Share of the energy by node over training, {where}; first seed. With the accuracy of the last epoch, and "
            "the lowest cosine of a layer's update with backprop's.",
        ),
        Picture(
            f"cosine-{name}",
            partial(
                figures.by_layer,
                {row: run.cosines for row, run in traced.items()},
                title="Does each layer follow backprop?",
                note="cosine of the weight updates, last epoch",
            ),
            f"Cosine of each layer's weight update with backprop's on one batch, {where}; first seed, last epoch.",
        ),
        Picture(
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
        Picture(
            f"wave-{name}",
            partial(figures.waves, waves),
            f"Energy by node and inference step of one batch in the trained network, {where}; first seed.",
        ),
    ]


def _first(evidence: Evidence, row: str, net: str) -> Run | None:
    place = evidence.place("cifar10", row, net)
    return next((run for run in place.runs if run.finished), None) if place is not None else None


RECIPE = Recipe(
    name="energy",
    shows="Where the energy is, and whether layers learn in backprop's direction",
    paper=("Figure: energy", "Appendix figure on energy with precision", "Appendix figure on energy with F"),
    expect="In the paper PC's first layers hold up to 18 orders of magnitude less energy than the last; S lifts them.",
    cells=cells,
    tables=tables,
    pictures=pictures,
    measure=measure,
)
