"""Figure on residual connections (b): what happens to a ResNet without auxiliary nodes?

Grid: {iPC+S, PC+S+F} x {ResNet10, ResNet18} x {with, without auxiliary nodes} on CIFAR-10. At paper scale 40 runs, of
50 epochs at most. The paper's bars have no numbers; its text gives 64 % as the most that a ResNet18 reaches without.

Expect: a drop in ResNet10, a large one in ResNet18, where energy on the skip paths is far ahead of the wave.
"""

from __future__ import annotations

from collections.abc import Sequence

from deeppc.paper import published
from deeppc.paper.recipe import Cell, Evidence, Picture, Recipe, accuracies, dot_plots, grid
from deeppc.paper.scales import Scale
from deeppc.paper.tables import Table


def cells(scale: Scale) -> list[Cell]:
    variants = {"": {}, "without": {"aux": False}}
    return grid(scale, ("cifar10",), ("iPC+S", "PC+S+F"), ("ResNet10", "ResNet18"), variants)


def tables(evidence: Evidence) -> list[Table]:
    paper = published.table("auxiliary", "cifar10", "top1")
    return [accuracies(evidence, "cifar10", "top1", paper, "Test accuracy with and without auxiliary nodes")]


def pictures(evidence: Evidence, made: Sequence[Table]) -> list[Picture]:
    return dot_plots(made, "Auxiliary nodes on skip paths", by="row")


RECIPE = Recipe(
    name="auxiliary",
    shows="ResNets with and without auxiliary nodes on their skip paths",
    paper=("Figure: residual connections (b)",),
    expect="In the paper ResNet18 reaches almost 92 % with auxiliary nodes and at most 64 % without.",
    cells=cells,
    tables=tables,
    pictures=pictures,
)
