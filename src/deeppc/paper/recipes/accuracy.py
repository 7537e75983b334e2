"""Table 1: do the deep predictive coding networks reach backprop?

Grid: {BP, PC, iPC, iPC+S, PC+S+F} x {VGG5, VGG7, VGG10, ResNet10, ResNet18} x {CIFAR-10, CIFAR-100, Tiny ImageNet},
each with and without BatchNorm freezing (for BP it is plain BatchNorm), of which the better one is reported. The paper
takes the better one on the test set; here it is taken on whatever selects the epoch. At paper scale 750 runs, of 50
epochs at most.

Expect: BP, iPC+S and PC+S+F within a point of each other in every net; PC and iPC worse with every layer, and lost in
ResNet18.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deeppc.paper import published
from deeppc.paper.recipe import Cell, Evidence, Picture, Recipe, accuracy, best_of, dot_plots, grid, metric_words
from deeppc.paper.scales import Scale
from deeppc.paper.tables import Table

ROWS = ("BP", "PC", "iPC", "iPC+S", "PC+S+F")
NETS = ("VGG5", "VGG7", "VGG10", "ResNet10", "ResNet18")
NORMS = {"": {}, "BF": {"norm": "bf"}}
TABLES = {"cifar10": ("top1",), "cifar100": ("top1", "top5"), "tiny-imagenet": ("top1", "top5")}


def cells(scale: Scale) -> list[Cell]:
    return grid(scale, tuple(TABLES), ROWS, NETS, NORMS)


def tables(evidence: Evidence) -> list[Table]:
    return [_best(evidence, dataset, metric) for dataset in evidence.tables for metric in TABLES[dataset]]


def _best(evidence: Evidence, dataset: str, metric: str) -> Table:
    """For each net the better of without and with BF."""
    paper = published.table("accuracy", dataset, metric)
    nets = [column for column in evidence.labels(dataset, "column") if not column.endswith(" BF")]
    rows = evidence.labels(dataset, "row")
    entries = {}
    for row in rows:
        for net in nets:
            places = [p for column in (net, f"{net} BF") if (p := evidence.place(dataset, row, column)) is not None]
            best = best_of(places)
            note = "BF" if best.cell.column.endswith(" BF") and best.values("test_accuracy") else ""
            entry = accuracy(best, metric, paper.get((row, net)))
            entries[row, net] = replace(entry, note=note)
    title = (
        f"Test accuracy, {metric_words(metric)}, %, the better of with and without BF: {evidence.trained_on(dataset)}"
    )
    return Table(f"{dataset}.{metric}", title, tuple(rows), tuple(nets), entries)


def pictures(evidence: Evidence, made: Sequence[Table]) -> list[Picture]:
    return dot_plots(made, "Accuracy by network and algorithm")


RECIPE = Recipe(
    name="accuracy",
    shows="Accuracy of backprop and predictive coding in networks of growing depth",
    paper=("Table 1",),
    expect="The paper: iPC+S and PC+S+F within a point of BP in every network; PC and iPC lose with every layer.",
    cells=cells,
    tables=tables,
    pictures=pictures,
)
