"""The appendix's table without BF: what do spiking precision (S) and the forward update (F) do, alone and together?

Grid: {BP, PC, iPC, PC+S, PC+F, iPC+S, PC+S+F} x {VGG5, VGG7, VGG10, ResNet10, ResNet18} x {CIFAR-10, CIFAR-100},
without normalisation. At paper scale 350 runs, of 50 epochs at most; those of `accuracy` without BF are among them.

Expect: F alone saves the VGGs but not the ResNets, S alone the ResNets from collapse; PC needs both to reach BP, iPC
only S.
"""

from __future__ import annotations

from collections.abc import Sequence

from deeppc.paper import published
from deeppc.paper.recipe import Cell, Evidence, Picture, Recipe, accuracies, dot_plots, grid
from deeppc.paper.scales import Scale
from deeppc.paper.tables import Table

ROWS = ("BP", "PC", "iPC", "PC+S", "PC+F", "iPC+S", "PC+S+F")
NETS = ("VGG5", "VGG7", "VGG10", "ResNet10", "ResNet18")
METRICS = {"cifar10": ("top1",), "cifar100": ("top1", "top5")}


def cells(scale: Scale) -> list[Cell]:
    return grid(scale, tuple(METRICS), ROWS, NETS, {"": {}})


def tables(evidence: Evidence) -> list[Table]:
    return [
        accuracies(evidence, dataset, metric, published.table("ablation", dataset, metric), "Test accuracy without BF")
        for dataset in evidence.tables
        for metric in METRICS[dataset]
    ]


def pictures(evidence: Evidence, made: Sequence[Table]) -> list[Picture]:
    return dot_plots(made, "S and F, alone and together")


RECIPE = Recipe(
    name="ablation",
    shows="Spiking precision and forward update, alone and together, without normalisation",
    paper=("Appendix table without BF",),
    expect="In the paper F alone saves the VGGs, S alone keeps ResNets alive, PC needs both to reach BP, iPC only S.",
    cells=cells,
    tables=tables,
    pictures=pictures,
)
