"""Not in the paper: a hundred levels and more. Does predictive coding keep up with backprop there?

Grid: {BP, PC+S+F, PC} x ResNets of 18, 34, 66 and 130 levels with BatchNorm freezing on CIFAR-10, the same budget for
all. PC+S+F has ``lr_x`` 0.2, ``alpha`` 0.01, and takes two strides in place of what follows the spikes, in time linear
in depth; PC has ``lr_x`` 0.05 and takes all its steps, in time that is its square. Both with the gain. At paper scale
60 runs, of 50 epochs at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from deeppc.paper.hyper import LEVELS
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Cell, Evidence, Plot, Recipe, accuracies, cell, lowest_cosines
from deeppc.paper.scales import Scale

COMMON: dict[str, Any] = {"norm": "bf", "activation": "relu", "lr_w": 1e-3, "weight_decay": 1e-4, "T": None}
COMMON |= {"momentum_x": 0.0, "depth_gain": True}
ROWS: dict[str, dict[str, Any]] = {"BP": {}, "PC+S+F": {"lr_x": 0.2, "alpha": 0.01, "strides": 2}, "PC": {"lr_x": 0.05}}
NETS = ("ResNet18", "ResNet34", "ResNet66", "ResNet130")


def cells(scale: Scale) -> list[Cell]:
    made = [
        cell(scale, "cifar10", row, net, model=net.lower(), algorithm=row.lower(), **{**COMMON, **changes})
        for row, changes in ROWS.items()
        for net in NETS
    ]
    return [replace(place, hyper="the same for all: lr_w 0.001, T = L, ReLU, BF") for place in made]


def tables(evidence: Evidence) -> list[Matrix]:
    return [accuracies(evidence, "cifar10", "top1", {}, "Test accuracy by depth"), lowest_cosines(evidence, "cifar10")]


def plots(evidence: Evidence, made: Sequence[Matrix]) -> list[Plot]:
    from deeppc.paper.figures import by_levels

    levels = {net: LEVELS[net.lower()] for net in NETS if net in made[0].columns}
    mark = (18, "the paper's deepest")
    draw = partial(by_levels, made[0], levels, mark, title="Accuracy by depth, to 130 levels")
    caption = "Test accuracy by levels, a line for each algorithm. The paper's deepest networks have 18."
    return [Plot("deep", draw, caption)]


RECIPE = Recipe(
    name="deep",
    shows="ResNets of 18 to 130 levels",
    paper=(),
    expect="PC+S+F within one point of BP at every depth, with early layers that learn.",
    cells=cells,
    tables=tables,
    plots=plots,
)
