"""The gap-ratio tables: how far do activities drift from their feed-forward values, for the energy that is learnt from?

Grid: VGG10 on CIFAR-10, trained without the forward update (PC+S), with it (PC+S+F), and with it on the last three
layers only (the settings of PC+S+F, not tuned again, as in the paper). The paper does not name the algorithm of its
first table; PC+S differs from the second in F alone. Rows are epochs at 10, 30, 50, 70 and 90 % of the training. At
paper scale 3 runs of 50 epochs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from deeppc.paper import published
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Cell, Evidence, Place, Plot, Recipe, cell
from deeppc.paper.scales import Scale
from deeppc.paper.store import Record
from deeppc.report.tables import number

# The paper's three tables, and what is trained for each.
TRAININGS: dict[str, tuple[str, dict[str, int]]] = {
    "without F": ("pc+s", {}),
    "with F": ("pc+s+f", {}),
    "F on the last 3": ("pc+s+f", {"forward_last": 3}),
}
PAPER_EPOCHS = (5, 15, 25, 35, 45)  # of 50


def cells(scale: Scale) -> list[Cell]:
    return [
        cell(scale, "cifar10", name, "VGG10", model="vgg10", algorithm=algorithm, **changes)
        for name, (algorithm, changes) in TRAININGS.items()
    ]


def tables(evidence: Evidence) -> list[Matrix]:
    return [_table(evidence, place) for place in evidence.places]


def _table(evidence: Evidence, place: Place) -> Matrix:
    """Epochs x (layers, train and selection accuracy)."""
    paper, name = published.read("gap"), place.cell.row
    epochs: dict[int, int] = {}  # ours -> the paper's, at the same share of the training
    for theirs in PAPER_EPOCHS:
        epochs.setdefault(max(1, math.ceil(theirs / 50 * evidence.scale.epochs)), theirs)
    entries = {}
    for ours, theirs in epochs.items():
        row = f"epoch {ours}" + (f" (paper: {theirs})" if theirs != ours else "")
        found = [values for run in place.finished if (values := _epoch(run, ours))]
        for i, column in enumerate(paper["columns"]):
            entries[row, column] = place.entry((line[i] for line in found), paper[name][str(theirs)][i])
    title = f"Gap ratio by layer, {name}, and accuracy, %: VGG10 on {evidence.trained_on('cifar10')}"
    return Matrix(f"cifar10.{name}", title, entries)


def _epoch(run: Record, epoch: int) -> list[float]:
    """Gap ratios from the input to the output, then train and selection accuracy; empty if there was no such epoch."""
    for line in run.metrics():
        if line["epoch"] == epoch:
            selected = line.get("test_accuracy", line.get("validation_accuracy"))
            ratios = [number(value) for value in line.get("gap_ratio", {}).values()]
            return [*ratios, 100 * line["train_accuracy"], 100 * number(selected)]
    return []


def plots(evidence: Evidence, made: Sequence[Matrix]) -> list[Plot]:
    from deeppc.paper.figures import gaps

    shown = {table.name.partition(".")[2]: table for table in made}
    caption = "Gap ratio by layer: drift of the activities over the energy that the weights learn from."
    return [Plot("gap", partial(gaps, shown), caption)]


RECIPE = Recipe(
    name="gap",
    shows="Gap ratio: drift of the activities over the energy that is learnt from",
    paper=("Appendix tables of gap ratios (3)",),
    expect="In the paper the output has thousands without F, and about ten with it. By definition, F makes the "
    "output's ratio 2 / (n sqrt(MSE)): see docs/diagnostics.md.",
    cells=cells,
    tables=tables,
    plots=plots,
)
