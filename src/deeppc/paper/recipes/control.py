"""Not in the paper: how much of predictive coding's lead over backprop is its learning rate, or its number of updates?

iPC steps the optimiser T times for each batch, and a search may give two algorithms different learning rates. So
backprop gets the same: the learning rate of iPC+S, as many optimiser steps on each batch (``repeats``), and both. Grid:
{BP, three more of BP, iPC+S, PC+S+F} x {VGG5, VGG10} on CIFAR-10 with BatchNorm freezing, L repeats. At paper scale
60 runs, of 50 epochs at most; three of the rows are those of ``accuracy``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from deeppc.paper.hyper import LEVELS, Task, settings_for
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Cell, Evidence, Recipe, accuracies, cell, dot_plots
from deeppc.paper.scales import Scale
from deeppc.training import config

NETS = ("VGG5", "VGG10")
ROWS = ("BP", "BP, lr_w of iPC+S", "BP repeated", "BP repeated, lr_w of iPC+S", "iPC+S", "PC+S+F")


def cells(scale: Scale) -> list[Cell]:
    return [_cell(scale, net, row) for net in NETS for row in ROWS]


def _cell(scale: Scale, net: str, row: str) -> Cell:
    model = net.lower()
    found = cell(scale, "cifar10", row, net, model=model, algorithm=row.lower().partition(" ")[0].strip(","), norm="bf")
    changes: dict[str, Any] = {"repeats": LEVELS[model]} if "repeated" in row else {}
    if "lr_w of" not in row:
        return replace(found, config=config.replace(found.config, **changes))
    settings, source = settings_for(Task(found.config.dataset, model, "bf", "ipc+s"))
    changed = config.replace(found.config, **changes, lr_w=settings["lr_w"])
    return replace(found, config=changed, hyper=f"{found.hyper}, lr_w of {source}")


def tables(evidence: Evidence) -> list[Matrix]:
    return [accuracies(evidence, "cifar10", "top1", {}, "Test accuracy")]


RECIPE = Recipe(
    name="control",
    shows="Backprop with the learning rate and the number of updates that iPC+S has",
    paper=(),
    expect="What is left of iPC+S's lead when backprop has them, too, is predictive coding's.",
    cells=cells,
    tables=tables,
    plots=lambda evidence, made: dot_plots(made, "Backprop with iPC's updates"),
)
