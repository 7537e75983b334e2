"""Table 1: do the deep predictive coding networks reach backprop?

Grid: {BP, PC, iPC, iPC+S, PC+S+F} x {VGG5, VGG7, VGG10, ResNet10, ResNet18} x {CIFAR-10, CIFAR-100, Tiny ImageNet},
each with and without BatchNorm freezing (for BP it is plain BatchNorm), of which the better one is reported. The paper
takes the better one on the test set; here it is taken on whatever selects the epoch. At paper scale 750 runs, of 50
epochs at most. At the scale of a workstation all have BF: 60 runs, and 13 of one seed; about 9 core-hours a seed.
"""

from __future__ import annotations

from dataclasses import replace

from deeppc.paper import published
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Evidence, accuracies, accuracy_recipe, best_of

TABLES = {"cifar10": ("top1",), "cifar100": ("top1", "top5"), "tiny-imagenet": ("top1", "top5")}


def tables(evidence: Evidence) -> list[Matrix]:
    return [_best(evidence, dataset, metric) for dataset in evidence.tables for metric in TABLES[dataset]]


def _best(evidence: Evidence, dataset: str, metric: str) -> Matrix:
    """For each net the better of without and with BF."""
    both = accuracies(evidence, dataset, metric, {}, "Test accuracy, the better of with and without BF")
    paper = published.table("accuracy", dataset, metric)
    entries = {
        at: best.accuracy(metric, paper.get(at), "BF" if best.cell.column.endswith(" BF") else "")
        for at, best in best_of(evidence.of(dataset), lambda column: column.removesuffix(" BF")).items()
    }
    return replace(both, entries=entries)


_grid = accuracy_recipe(
    name="accuracy",
    shows="Accuracy of backprop and predictive coding in networks of growing depth",
    paper=("Table 1",),
    expect="The paper: iPC+S and PC+S+F within a point of BP in every network; PC and iPC lose with every layer.",
    datasets=TABLES,
    rows=("BP", "PC", "iPC", "iPC+S", "PC+S+F"),
    nets=("VGG5", "VGG7", "VGG10", "ResNet10", "ResNet18"),
    variants={"": {"norm": "none"}, "BF": {"norm": "bf"}},
    title="",
    figure="Accuracy by network and algorithm",
)
RECIPE = replace(_grid, tables=tables)
