"""Table 2 and the appendix's table on Tiny ImageNet: fifteen layers, with and without BatchNorm freezing.

Grid: {BP, PC, PC+D, PC+S, PC+D+F, PC+S+F, iPC+S} x {VGG15 plain, with BF (BP: with plain BatchNorm)}. At paper scale 70
runs on Tiny ImageNet, of 50 epochs at most. At laptop scale CIFAR-10 stands in, so that only the order compares.

Expect: BF lifts PC+S+F to BP's level; iPC+S is best without it; the decays and S alone are lost.
"""

from __future__ import annotations

from collections.abc import Sequence

from deeppc.paper import published
from deeppc.paper.recipe import Cell, Evidence, Picture, Recipe, accuracies, dot_plots, grid
from deeppc.paper.scales import Scale
from deeppc.paper.tables import Table

ROWS = ("BP", "PC", "PC+D", "PC+S", "PC+D+F", "PC+S+F", "iPC+S")


def cells(scale: Scale) -> list[Cell]:
    return grid(scale, ("tiny-imagenet",), ROWS, ("VGG15",), {"": {}, "BF": {"norm": "bf"}})


def tables(evidence: Evidence) -> list[Table]:
    return [
        accuracies(evidence, dataset, metric, published.table("vgg15", dataset, metric))
        for dataset in evidence.tables
        for metric in ("top1", "top5")
    ]


def pictures(evidence: Evidence, made: Sequence[Table]) -> list[Picture]:
    return dot_plots(made, "VGG15")


RECIPE = Recipe(
    name="vgg15",
    shows="Fifteen layers, with and without BatchNorm freezing",
    paper=("Table 2", "Appendix table on Tiny ImageNet"),
    expect="In the paper BF lifts PC+S+F to BP's level, iPC+S is best without it, and the others are lost.",
    cells=cells,
    tables=tables,
    pictures=pictures,
)
