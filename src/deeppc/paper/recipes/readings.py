"""Not in the paper: its text, its equations and released code differ. Which reading trains best?

Grid, all PC+S+F on CIFAR-10: precision on the energy (released code) or on a node's whole update (Eq. 2); weights learn
through the initial activities (released code) or the relaxed ones (Algorithm 1); mu_0 stored, or found again by free
relaxation (appendix); with or without a gain that gives each layer back what the wave lost (ours). Each reading with
two rates of the activities, the tuned one and 0.4 of it, because they do not want the same; the better one on whatever
selects the epoch is reported. At paper scale 320 runs, of 50 epochs at most.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from deeppc.paper.hyper import LEVELS
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Cell, Evidence, Recipe, best_of, cell, dot_plots
from deeppc.paper.scales import Scale
from deeppc.training import config

ROWS = {
    f"{on}, {through}": {"precision_on": on, "presynaptic": through}
    for on, through in product(("energy", "node"), ("initial", "relaxed"))
}
NETS = ("VGG5", "VGG7", "VGG10")
FREE = 2  # steps of free relaxation for each level


def cells(scale: Scale) -> list[Cell]:
    grid = product(NETS, scale.rates, ROWS, (False, True), (False, True))
    return [_cell(scale, row, net, free, gain, rate) for net, rate, row, free, gain in grid]


def _cell(scale: Scale, row: str, net: str, free: bool, gain: bool, rate: float) -> Cell:
    model = net.lower()
    changes = {**ROWS[row], "depth_gain": gain, "free_steps": FREE * LEVELS[model] if free else 0}
    column = f"{net} {'free' if free else 'stored'}{', gain' if gain else ''} x{rate:g}"
    made = cell(scale, "cifar10", row, column, model=model, algorithm="pc+s+f", **changes)
    lr_x = round(rate * made.config.setting("lr_x"), 6)
    return replace(made, config=config.replace(made.config, lr_x=lr_x))


def tables(evidence: Evidence) -> list[Matrix]:
    """The better rate of each reading."""
    entries = {
        at: best.accuracy("top1", note=f"lr_x {best.cell.config.setting('lr_x'):g}")
        for at, best in best_of(evidence.places, lambda column: column.rpartition(" ")[0]).items()
    }
    title = f"Test accuracy by reading, top-1, %: {evidence.trained_on('cifar10')}"
    return [Matrix("cifar10.top1", title, entries)]


RECIPE = Recipe(
    name="readings",
    shows="Readings of the paper's text: which one trains best",
    paper=(),
    expect="Rows: what precision weighs, and which activities weights learn through. The settings were tuned for the "
    "first reading, which favours it.",
    cells=cells,
    tables=tables,
    plots=lambda evidence, made: dot_plots(made, "Readings of the paper"),
)
