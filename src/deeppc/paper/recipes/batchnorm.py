"""Figure (c), the BF ablation and the BF figure: which BatchNorm can a predictive coding network bear?

Grid: VGG10 on CIFAR-10 with {none, BN, BN without affine, BF without affine, BF} x {PC+S+F, iPC+S}; and BF against
none for {BP, PC, iPC, PC+F, iPC+S, PC+S+F} x {VGG5, VGG7, VGG10, ResNet10}. At paper scale 270 runs, of 50 epochs at
most; most of them belong to `accuracy` as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from deeppc.paper import published
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Cell, Evidence, Plot, Recipe, dot_plot, grid
from deeppc.paper.scales import Scale

NORMS: dict[str, dict[str, Any]] = {
    "none": {"norm": "none"},
    "BN": {"norm": "bn"},
    "BN without affine": {"norm": "bn", "affine": False},
    "BF without affine": {"norm": "bf", "affine": False},
    "BF": {"norm": "bf"},
}
BOTH = {name: NORMS[name] for name in ("none", "BF")}
STRATEGISTS = ("PC+S+F", "iPC+S")
ROWS = ("BP", "PC", "iPC", "PC+F", "iPC+S", "PC+S+F")
NETS = ("VGG5", "VGG7", "VGG10", "ResNet10")
DATA = "cifar10"


def cells(scale: Scale) -> list[Cell]:
    strategies = grid(scale, (DATA,), STRATEGISTS, ("VGG10",), NORMS)
    there = {(cell.row, cell.column) for cell in strategies}
    others = grid(scale, (DATA,), ROWS, NETS, BOTH)
    return strategies + [cell for cell in others if (cell.row, cell.column) not in there]


def tables(evidence: Evidence) -> list[Matrix]:
    return [_strategies(evidence), _effect(evidence)]


def _strategies(evidence: Evidence) -> Matrix:
    """Norms x algorithms in a VGG10: the paper's table on its side."""
    paper = published.table("batchnorm", DATA, "top1")
    entries = {
        (norm, row): place.accuracy("top1", paper.get((norm, row)))
        for norm in NORMS
        for row in STRATEGISTS
        if (place := evidence.place(DATA, row, f"VGG10 {norm}")) is not None
    }
    title = f"Test accuracy of a VGG10 by BatchNorm strategy, %: {evidence.trained_on(DATA)}"
    return Matrix(f"{DATA}.strategies", title, entries)


def _effect(evidence: Evidence) -> Matrix:
    """Without and with BF, by net. The paper's values are in its tables without BF and of schedules."""
    paper = {(row, f"{net} none"): v for (row, net), v in published.table("ablation", DATA, "top1").items()}
    paper |= {at: v for at, v in published.table("schedules", DATA, "top1").items() if at[1].endswith(" BF")}
    entries = {
        at: place.accuracy("top1", paper.get(at))
        for at in product(ROWS, (f"{net} {norm}" for net in NETS for norm in BOTH))
        if (place := evidence.place(DATA, *at)) is not None
    }
    return Matrix(f"{DATA}.effect", f"Test accuracy without and with BF, %: {evidence.trained_on(DATA)}", entries)


def plots(evidence: Evidence, made: Sequence[Matrix]) -> list[Plot]:
    strategies, effect = made
    return [dot_plot(strategies, "BatchNorm in a VGG10"), dot_plot(effect, "Without and with BF", by="row")]


RECIPE = Recipe(
    name="batchnorm",
    shows="BatchNorm strategies, and what BatchNorm freezing does for each algorithm",
    paper=("Figure: residual connections (c)", "Appendix table of BF ablation", "Appendix figure on BF"),
    expect="In the paper a VGG10 under PC+S+F has 92.1 % without norm, 24 % with plain BN, 93.3 % with BF.",
    cells=cells,
    tables=tables,
    plots=plots,
)
