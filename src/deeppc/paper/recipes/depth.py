"""Figure on accuracy by depth: who loses accuracy as layers are added, and does centre nudging (CN) help?

Grid: {BP, PC, iPC, PC+S, PC+F, PC+S+F, iPC+S} x {VGG5, VGG7, VGG10} on CIFAR-10, each but BP with and without CN. At
paper scale 195 runs, of 50 epochs at most. The paper's figure has no numbers; those without CN are in its appendix's
table without BF.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from deeppc.paper import published
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Cell, Evidence, Plot, Recipe, accuracies, cell, dot_plots
from deeppc.paper.scales import Scale

ROWS = ("BP", "PC", "iPC", "PC+S", "PC+F", "PC+S+F", "iPC+S")
NETS = ("VGG5", "VGG7", "VGG10")


def cells(scale: Scale) -> list[Cell]:
    return [
        cell(scale, "cifar10", row, f"{net} {variant}".strip(), model=net.lower(), algorithm=row.lower() + suffix)
        for row in ROWS
        for net in NETS
        for variant, suffix in {"": "", "CN": "+cn"}.items()
        if (row, variant) != ("BP", "CN")
    ]


def tables(evidence: Evidence) -> list[Matrix]:
    paper = published.table("ablation", "cifar10", "top1")
    return [accuracies(evidence, "cifar10", "top1", paper, "Test accuracy by depth, without and with centre nudging")]


def plots(evidence: Evidence, made: Sequence[Matrix]) -> list[Plot]:
    from deeppc.paper.figures import slopes

    (table,) = made
    plain = [column for column in table.columns if not column.endswith(" CN")]
    kinds = {"without centre nudging": plain, "with it": [f"{net} CN" for net in plain]}
    caption = "Test accuracy by depth of the network, a line for each algorithm. The paper's come from its appendix."
    line = Plot("depth", partial(slopes, table, kinds, title="Accuracy by depth"), caption)
    return [line, *dot_plots(made, "Accuracy by depth")]


RECIPE = Recipe(
    name="depth",
    shows="Accuracy by depth, with and without centre nudging",
    paper=("Figure: accuracy by depth",),
    expect="In the paper PC and iPC fall with depth and the proposed methods do not; CN helps only without F.",
    cells=cells,
    tables=tables,
    plots=plots,
)
