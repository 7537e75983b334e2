"""Table 1: do the deep predictive coding networks reach backprop?

Grid: {BP, PC, iPC, iPC+S, PC+S+F} x {VGG5, VGG7, VGG10, ResNet10, ResNet18} x {CIFAR-10, CIFAR-100, Tiny ImageNet},
each with and without BatchNorm freezing (for BP it is plain BatchNorm), of which the better one is reported. The paper
takes the better one on the test set; here it is taken on whatever selects the epoch. At paper scale 750 runs, of 50
epochs at most. At the scale of a workstation all have BF: 60 runs, and 13 of one seed; about 9 core-hours a seed.

A figure shows what accuracy costs: on held-out images after every epoch, by the multiply-adds that were spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from deeppc.paper import published
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import DATASETS, Evidence, Place, Plot, accuracies, accuracy_recipe, best_of, dot_plots
from deeppc.paper.work import held_out, relative_cost

TABLES = {"cifar10": ("top1",), "cifar100": ("top1", "top5"), "tiny-imagenet": ("top1", "top5")}


def tables(evidence: Evidence) -> list[Matrix]:
    return [_best(evidence, dataset, metric) for dataset in evidence.tables for metric in TABLES[dataset]]


def _best(evidence: Evidence, dataset: str, metric: str) -> Matrix:
    """For each net the better of without and with BF."""
    both = accuracies(evidence, dataset, metric, {}, "Test accuracy, the better of with and without BF")
    paper = published.table("accuracy", dataset, metric)
    entries = {
        at: best.accuracy(metric, paper.get(at), "BF" if best.cell.column.endswith(" BF") else "")
        for at, best in _better(evidence, dataset).items()
    }
    return replace(both, entries=entries)


def _better(evidence: Evidence, dataset: str) -> dict[tuple[str, str], Place]:
    return best_of(evidence.of(dataset), lambda column: column.removesuffix(" BF"))


def plots(evidence: Evidence, made: Sequence[Matrix]) -> list[Plot]:
    return [*dot_plots(made, "Accuracy by network and algorithm"), *_by_work(evidence)]


def _by_work(evidence: Evidence) -> list[Plot]:
    """Held-out accuracy against the work until then, in epochs of backprop, for each data set."""
    from deeppc.paper.figures import by_work

    drawn = []
    for dataset in evidence.tables:
        nets: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
        for (row, net), place in _better(evidence, dataset).items():
            runs = [held_out(run.metrics()) for run in place.finished]
            if runs and (length := min(map(len, runs))):  # a run may have stopped early
                curves = np.array([run[:length] for run in runs])  # seeds, epochs, (epoch, accuracy)
                epochs, found = curves[0, :, 0], 100 * curves[..., 1].mean(0)
                nets.setdefault(net, {})[row] = epochs * relative_cost(place.cell.config), found
        title = f"What accuracy costs, {DATASETS[dataset]}"
        caption = "Accuracy on held-out images after each epoch, mean of seeds, by counted work in epochs of backprop."
        drawn.append(Plot(f"accuracy-{dataset}-work", partial(by_work, nets, title=title), caption))
    return drawn


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
    figure="",
)
RECIPE = replace(_grid, tables=tables, plots=plots)
