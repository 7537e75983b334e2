"""Not in the paper: how much of what is between predictive coding and backprop is the learning rate, or the number of
updates?

iPC steps the optimiser T times for each batch, and a search may give two algorithms different learning rates. So
backprop gets the same: the learning rate of iPC+S, as many optimiser steps on each batch (``repeats``), and both; and
predictive coding gets the learning rate of backprop. A search may also miss what another has found: iPC+S gets all the
settings of the shallower network. Grid: {BP, three more of BP, PC, iPC+S, PC+S+F, each of these with BP's rate} x
{VGG5, VGG10} on CIFAR-10 with BatchNorm freezing, L repeats, and one row more of VGG10. At paper scale 105 runs, of 50
epochs at most; four of the rows are those of ``accuracy``.
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
OF = ", lr_w of "
BACKPROP = ("BP", f"BP{OF}iPC+S", "BP repeated", f"BP repeated{OF}iPC+S")
ROWS = (*BACKPROP, *(row for name in ("PC", "iPC+S", "PC+S+F") for row in (name, f"{name}{OF}BP")))
SHALLOWER = "iPC+S, as in VGG5"


def cells(scale: Scale) -> list[Cell]:
    return [*(_cell(scale, net, row) for net in NETS for row in ROWS), _shallower(scale)]


def _shallower(scale: Scale) -> Cell:
    found = cell(scale, "cifar10", SHALLOWER, "VGG10", model="vgg10", algorithm="ipc+s", norm="bf")
    settings, source = settings_for(Task(found.config.dataset, "vgg5", "bf", "ipc+s"))
    settings["T"] = None  # as many as there are levels
    return replace(found, config=config.replace(found.config, **settings), hyper=source)


def _cell(scale: Scale, net: str, row: str) -> Cell:
    model, (name, _, other) = net.lower(), row.partition(OF)
    found = cell(scale, "cifar10", row, net, model=model, algorithm=name.lower().partition(" ")[0], norm="bf")
    changes: dict[str, Any] = {"repeats": LEVELS[model]} if "repeated" in name else {}
    if not other:
        return replace(found, config=config.replace(found.config, **changes))
    settings, source = settings_for(Task(found.config.dataset, model, "bf", other.lower()))
    changed = config.replace(found.config, **changes, lr_w=settings["lr_w"])
    return replace(found, config=changed, hyper=f"{found.hyper}, lr_w of {source}")


def tables(evidence: Evidence) -> list[Matrix]:
    return [accuracies(evidence, "cifar10", "top1", {}, "Test accuracy")]


RECIPE = Recipe(
    name="control",
    shows="Backprop with the learning rate and the updates of iPC+S, predictive coding with the rate of backprop",
    paper=(),
    expect="What is left between them when they have the same is predictive coding's.",
    cells=cells,
    tables=tables,
    plots=lambda evidence, made: dot_plots(made, "With the other's learning rate, or updates"),
)
