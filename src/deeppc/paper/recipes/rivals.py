"""Not in the paper: predictive coding and its rivals on one graph, with one data order, one optimiser and one budget.

Grid: the methods of docs/rivals.md, those of the paper and three controls of backprop x {VGG5, VGG10, ResNet10} on
CIFAR-10; muPC's weights on the ResNet10, which has the skips that they are for. At paper scale 260 runs, of 50 epochs
at most. A cell has the settings that a search found for its own method, or else those of the method it is most like;
the page says which. Accuracy, and the cosine of each layer's update with backprop's, are of the trained networks. Work
(multiply-adds that the engine counts), time and memory are of one training step, relative to backprop's: measure them
on a machine that does nothing else, and delete extra.json in the result's folder to measure again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from deeppc.files import read_json, write_json
from deeppc.paper.hyper import LEVELS, MUPC
from deeppc.paper.matrix import Entry, Matrix
from deeppc.paper.recipe import Cell, Evidence, Plot, Recipe, cell
from deeppc.paper.scales import Scale
from deeppc.paper.store import EXTRA
from deeppc.training.config import TrainConfig

NETS = ("VGG5", "VGG10", "ResNet10")
# By row: the algorithm; what it is for; what it costs.
METHODS = {
    "BP": ("bp", "The baseline that all others are measured by.", "It costs locality: errors come from far away."),
    "BP repeated": (
        "bp",
        "A control for iPC: backprop with as many optimiser steps on each batch as the network has levels.",
        "It costs so many times backprop.",
    ),
    "BP last half": (
        "bp",
        "A control for methods whose early layers hardly learn: the first half of the levels keeps its weights.",
        "It costs less than backprop.",
    ),
    "BP last": (
        "bp",
        "The same, but the output alone learns: what random features allow.",
        "It costs a forward pass and one layer's gradient.",
    ),
    "Z-IL": (
        "zil",
        "For the proof that predictive coding can be backprop, exactly and by local updates.",
        "It costs what backprop costs and gives what backprop gives, so there is nothing to gain but locality.",
    ),
    "FA": (
        "fa",
        "For hardware and brains that do not know their weights on the way back: fixed random ones carry the errors.",
        "It costs a backprop, and accuracy in convolutional networks (Bartunov et al. 2018).",
    ),
    "DFA": (
        "dfa",
        "For layers that learn all at once: the output's error goes to each of them directly.",
        "It costs less than backprop, a matrix of units x classes for each layer, and accuracy as in FA.",
    ),
    "TP": (
        "tp",
        "For targets instead of errors, each by the inverse of its layer: Gauss-Newton, layer by layer.",
        "It costs a pull-back and a push forward for each iteration of the inverse, which is an idealisation.",
    ),
    "PC": (
        "pc",
        "For local updates, from the errors of relaxed activities.",
        "It costs a step of inference for each level, or more.",
    ),
    "PC+PN": (
        "pc+pn",
        "For smaller errors than PC's: the output moves only a part of the way to the label.",
        "It costs what PC costs, and a strength to tune.",
    ),
    "PC+NN": (
        "pc+nn",
        "For the opposite bias: the output moves away from the label, and weights learn the opposite.",
        "It costs what PC+PN costs.",
    ),
    "PC+CN": (
        "pc+cn",
        "For less bias: one or the other by chance, so that on the average the bias of both cancels.",
        "It costs what PC+PN costs.",
    ),
    "iPC": (
        "ipc",
        "For learning without phases: weights learn in every step of inference.",
        "It costs what PC costs, and an update of the weights for each step.",
    ),
    "ePC": (
        "epc",
        "For PC's equilibrium in few steps at any depth, by descending on errors instead of activities.",
        "It costs a forward and a backward pass for each step, and locality.",
    ),
    "hPC": (
        "hpc",
        "For PC without a rate to tune: its momentum comes from the spectrum of its own inference.",
        "It costs what PC costs, and as many steps more as measure the spectrum.",
    ),
    "PC+S+F": (
        "pc+s+f",
        "The paper's, for depth: spiking precision and the forward update carry errors down whole.",
        "It costs what PC costs.",
    ),
    "iPC+S": (
        "ipc+s",
        "The paper's, for depth without phases: iPC whose precision spikes when the wave of energy arrives.",
        "It costs what iPC costs.",
    ),
    "PC muPC": (
        "pc",
        "For depth by scale: PC in a residual network with weights of which nothing depends on its depth.",
        "It costs what PC costs, learning rates of its own, and networks with skips.",
    ),
}
ALIKE = 0.99  # cosines above are not drawn
PROTOCOL = (
    "All rows share network, data order, augmentation, optimiser (AdamW), epochs and seeds. Settings come from "
    "searches with the same number of trials and the same budget for each method and network, judged on held-out "
    "images. Where there was no such search they come from the nearest method or network, or from defaults: the table "
    "of cells says for each where from (Z-IL has backprop's updates, and takes backprop's settings). Work "
    "(multiply-adds, counted), time and memory are those of one training step, and backprop's is 1."
)


def cells(scale: Scale) -> list[Cell]:
    return [_cell(scale, row, net) for net in NETS for row in METHODS if row != "PC muPC" or net == "ResNet10"]


def _cell(scale: Scale, row: str, net: str) -> Cell:
    levels = LEVELS[net.lower()]
    controls: dict[str, dict[str, Any]] = {"BP repeated": {"repeats": levels}, "BP last half": {"last": levels // 2}}
    controls["BP last"] = {"last": 1}
    model, algorithm = net.lower() + (MUPC if row == "PC muPC" else ""), METHODS[row][0]
    found = cell(scale, "cifar10", row, net, model=model, algorithm=algorithm, **controls.get(row, {}))
    return replace(found, seeds=scale.seeds_for("cifar10", net.lower(), algorithm, scale.norm))


def work(scale: Scale, folder: Path, tell: Callable[[str], None]) -> None:
    """Count and measure a step of each cell that is not in ``extra.json`` yet."""
    from deeppc.bench import timing

    path = folder / EXTRA
    record: dict[str, Any] = read_json(path) if path.exists() else {}
    if record.get("width") != scale.width:
        record = {"origin": timing.origin(), "width": scale.width, "steps": []}
    there = {(step["row"], step["column"]) for step in record["steps"]}
    for place in RECIPE.grid(scale):
        if (place.row, place.column) not in there:
            tell(f"{place.column}: a step of {place.row}")
            record["steps"].append({"row": place.row, "column": place.column, **step_cost(place.config, scale.rounds)})
            write_json(path, record)


def step_cost(config: TrainConfig, rounds: int) -> dict[str, float]:
    """Return work, time and memory of a training step relative to backprop's on the same network."""
    import torch

    from deeppc.bench.timing import batch, profiled, seconds
    from deeppc.core.algorithms import Algorithm
    from deeppc.diagnostics import work
    from deeppc.models import build

    torch.manual_seed(0)
    net = build(config.model, width=config.width, activation=config.activation, norm=config.norm, aux=config.aux)
    images, labels = batch(net, config.batch_size)
    still = torch.optim.AdamW(net.parameters(), lr=1e-8)
    steps = [partial(a.step, net, images, labels, still) for a in (Algorithm.parse("bp"), config.algorithm_object())]
    macs = work.multiply_adds(net, images[:1])
    backprop, ours = (work.step_cost(once().work, macs) for once in steps)
    times = [(seconds(steps[0]), seconds(steps[1])) for _ in range(rounds)]
    peaks = [profiled(once).peak for once in steps]
    time = statistics.median(ours / backprop for backprop, ours in times)
    return {"work": ours / backprop, "time": time, "memory": peaks[1] / peaks[0]}


def tables(evidence: Evidence) -> list[Matrix]:
    steps = {(step["row"], step["column"]): step for step in evidence.extra.get("steps", [])}
    entries: dict[tuple[str, str], Entry] = {}
    for place in evidence.places:
        row = f"{place.cell.column} {place.cell.row}"
        entries[row, "accuracy, %"] = place.accuracy("top1")
        for column in ("work", "time", "memory"):
            entries[row, column] = Entry((steps[place.at][column],) if place.at in steps else ())
        cosines = [[x for x in found.values() if math.isfinite(x)] for found in place.cosines()]
        entries[row, "lowest cosine"] = place.entry(min(values) for values in cosines if values)
        entries[row, "mean cosine"] = place.entry(statistics.fmean(values) for values in cosines if values)
    title = f"{evidence.trained_on('cifar10')}: accuracy, a step relative to BP's, cosine of updates with BP's"
    return [Matrix("cifar10", title, entries)]


def _of(table: Matrix, net: str) -> Matrix:
    """The rows of one network, without its name."""
    entries = {(row.removeprefix(f"{net} "), column): entry for (row, column), entry in table.entries.items()}
    there = {row.removeprefix(f"{net} ") for row in table.rows if row.startswith(f"{net} ")}
    return Matrix(net, net, {at: entry for at, entry in entries.items() if at[0] in there})


def plots(evidence: Evidence, made: Sequence[Matrix]) -> list[Plot]:
    from deeppc.paper import figures

    (table,) = made
    shown = {net: _of(table, net) for net in evidence.columns}
    caption = "Test accuracy against the work of a training step, in multiply-adds relative to backprop's."
    drawn = [Plot("rivals", partial(figures.against, shown, "work", "accuracy, %"), caption)]
    turn = ("Does each layer follow backprop?", "cosine of the weight updates, last epoch, first seed")
    for net in evidence.columns:
        places = [place for place in evidence.places if place.cell.column == net]
        known = {place.cell.row: found[0] for place in places if (found := place.cosines())}
        lines = {row: found for row, found in known.items() if any(x < ALIKE for x in found.values())}
        alike = ", ".join(row for row in known if row not in lines)
        caption = (
            f"Cosine of each layer's update with backprop's, {net}, last epoch, first seed. Not drawn, because above "
            f"{ALIKE} in every layer that learns: {alike or 'none'}."
        )
        drawn.append(Plot(f"rivals-cosine-{net.lower()}", partial(figures.by_layer, lines, *turn), caption))
    return drawn


RECIPE = Recipe(
    name="rivals",
    shows="Predictive coding and its rivals on the same graph",
    paper=(),
    expect="Z-IL has backprop's row. If PC's early layers do not learn, it is near the control of the last levels.",
    cells=cells,
    tables=tables,
    plots=plots,
    work=work,
    words={"Protocol": PROTOCOL} | {row: f"{use} {cost}" for row, (_, use, cost) in METHODS.items()},
)
