"""Not in the paper: how much of what is between predictive coding and backprop is the learning rate, or the number of
updates?

iPC steps the optimiser T times for each batch, and a search may give two algorithms different learning rates. So in
VGG5 backprop gets the same: the learning rate of iPC+S, as many optimiser steps on each batch (``repeats``), and both;
and predictive coding gets the learning rate of backprop. A search may also be too short to tell: VGG10, where all have
one rate, gets what short ones had found for it, too, and all the settings of VGG5; iPC there gets activities that
follow what weights have learnt, and PC and PC+S+F the gain, without which early layers' gradients are as small as
epsilon; the other schedules of precision, which send early layers still less, get an epsilon of 1e-30. Plain PC gets
the settings of centre nudging, but not its nudging.
Grid: {BP, BP repeated, PC, iPC+S, PC+S+F} x {VGG5, VGG10} on CIFAR-10 with BatchNorm freezing, L repeats; five of them
with the other's rate in VGG5, and twelve more with other settings in VGG10, one seed of each but of the gain; plain PC
as nudged in both, by one seed. And eight on CIFAR-100 in VGG5, whose hundred classes ask for more updates, or larger
ones, or for the cross-entropy. At paper scale 137 runs, of 50 epochs at most; four rows are those of ``accuracy``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deeppc.paper.hyper import LEVELS, Task, settings_for
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Cell, Evidence, Recipe, accuracies, cell, dot_plots
from deeppc.paper.scales import Scale
from deeppc.training import config

OF = ", lr_w of "
BACKPROP = ("BP", f"BP{OF}iPC+S", "BP repeated", f"BP repeated{OF}iPC+S")
ROWS = (*BACKPROP, *(row for name in ("PC", "iPC+S", "PC+S+F") for row in (name, f"{name}{OF}BP")))
HUNDRED = ("BP", f"BP{OF}iPC+S", f"BP repeated{OF}iPC+S", "iPC+S", "PC+S+F")
ENTROPY = ("BP", "iPC+S", "PC+S+F")
# What searches of 12 short trials had found for VGG10, before longer ones decided.
FIRST: dict[str, dict[str, float]] = {
    "PC": {"lr_w": 0.0006608841682910619, "lr_x": 0.06913882602936758, "momentum_x": 0.0},
    "iPC": {"lr_w": 0.0010456923451293162, "lr_x": 0.277144367516624, "momentum_x": 0.5},
    "iPC+S": {"lr_w": 0.00030833350948549263, "lr_x": 0.2973710487722776, "alpha": 0.01},
    "PC+S+F": {"lr_w": 0.0004839295765705521, "lr_x": 0.19143953740875233, "alpha": 0.01},
    f"BP{OF}iPC+S": {"lr_w": 0.00030833350948549263},
}
FOLLOW = {"follow": True, "lr_w": 0.0003}
SCHEDULES, SMALL = ("PC+F", "PC+L+F", "PC+D+F"), {"epsilon": 1e-30}


def cells(scale: Scale) -> list[Cell]:
    first = [_other(scale, f"{row}, first search", settings, "the first search") for row, settings in FIRST.items()]
    settings, source = settings_for(Task("cifar10", "vgg5", "bf", "ipc+s"))
    shallower = _other(scale, "iPC+S, as in VGG5", {**settings, "T": None}, source)
    following = _other(scale, "iPC, follow", {**FIRST["iPC"], **FOLLOW}, "the best of three trials")
    gains = [_gain(_cell(scale, "VGG10", row)) for row in ("PC", "PC+S+F")]
    both = [("VGG5", row) for row in ROWS] + [("VGG10", row) for row in ROWS if OF not in row]
    small = [_other(scale, f"{row}, epsilon 1e-30", SMALL, "as in schedules") for row in SCHEDULES]
    nudged = [_as_nudged(scale, net) for net in ("VGG5", "VGG10")]
    hundred = [_cell(scale, "VGG5", row, "cifar100") for row in HUNDRED]
    entropy = [_entropy(_cell(scale, "VGG5", row, "cifar100")) for row in ENTROPY]
    others = [*first, shallower, following, *gains, *small, *nudged, *hundred, *entropy]
    return [*(_cell(scale, net, row) for net, row in both), *others]


def _gain(found: Cell) -> Cell:
    return replace(found, row=f"{found.row}, gain", config=config.replace(found.config, depth_gain=True))


def _as_nudged(scale: Scale, net: str) -> Cell:
    """Plain PC with all settings of centre nudging but its strength."""
    settings, source = settings_for(Task("cifar10", net.lower(), "bf", "pc+cn"))
    found = cell(scale, "cifar10", "PC, as PC+CN", net, model=net.lower(), algorithm="pc", norm="bf")
    kept = {name: value for name, value in settings.items() if name != "beta"}
    return replace(found, config=config.replace(found.config, **kept), hyper=source, seeds=found.seeds[:1])


def _entropy(found: Cell) -> Cell:
    changed = config.replace(found.config, loss="cross_entropy")
    return replace(found, row=f"{found.row}, cross-entropy", config=changed)


def _other(scale: Scale, row: str, settings: dict[str, Any], source: str) -> Cell:
    """VGG10 with other settings than its own, which make a difference that one seed shows."""
    algorithm = row.partition(",")[0].lower()
    found = cell(scale, "cifar10", row, "VGG10", model="vgg10", algorithm=algorithm, norm="bf")
    return replace(found, config=config.replace(found.config, **settings), hyper=source, seeds=found.seeds[:1])


def _cell(scale: Scale, net: str, row: str, table: str = "cifar10") -> Cell:
    model, (name, _, other) = net.lower(), row.partition(OF)
    found = cell(scale, table, row, net, model=model, algorithm=name.lower().partition(" ")[0], norm="bf")
    changes: dict[str, Any] = {"repeats": LEVELS[model]} if "repeated" in name else {}
    if not other:
        return replace(found, config=config.replace(found.config, **changes))
    settings, source = settings_for(Task(found.config.dataset, model, "bf", other.lower()))
    changed = config.replace(found.config, **changes, lr_w=settings["lr_w"])
    return replace(found, config=changed, hyper=f"{found.hyper}, lr_w of {source}")


def tables(evidence: Evidence) -> list[Matrix]:
    return [accuracies(evidence, table, "top1", {}, "Test accuracy") for table in evidence.tables]


RECIPE = Recipe(
    name="control",
    shows="Backprop with the learning rate and the updates of iPC+S, predictive coding with the rate of backprop",
    paper=(),
    expect="What is left between them when they have the same is predictive coding's.",
    cells=cells,
    tables=tables,
    plots=lambda evidence, made: dot_plots(made, "With the other's learning rate, or updates"),
)
