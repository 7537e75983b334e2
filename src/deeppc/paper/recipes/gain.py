"""Not in the paper: is the failure of plain predictive coding at depth a matter of numbers?

In exact arithmetic the updates of plain PC point along backprop's in every layer, only smaller by ``lr_x`` per hop. Two
things may swallow early layers' then: the rounding of differences far below the activities, and the epsilon in
AdamW's denominator. Each is undone by itself and together with the other:

    rounded        ``resolve=False``: differences as they come, in float32
    gain           ``depth_gain``: each layer's gradient gets back the factor that the wave lost
    epsilon 1e-30  in place of 1e-8

Grid: {PC rounded, PC, PC+F, iPC, PC+S+F} x {as it is, gain} on VGG5, VGG10, VGG15 and ResNet18 with BatchNorm
freezing, beside BP; on VGG5 and VGG10 also PC with the small epsilon (deeper, squares of gradients underflow, and with
1e-30 steps explode); on VGG10 PC with the gain for more steps and at larger rates, and PC+S+F in one stride. The same
settings for all, but for ``lr_x``. At paper scale 275 runs, of 50 epochs at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from deeppc.paper.hyper import LEVELS
from deeppc.paper.matrix import Matrix
from deeppc.paper.recipe import Cell, Evidence, Plot, Recipe, accuracies, cell, dot_plots, lowest_cosines
from deeppc.paper.scales import Scale

COMMON: dict[str, Any] = {"norm": "bf", "activation": "relu", "lr_w": 1e-3, "weight_decay": 1e-4, "T": None}
SLOW: dict[str, Any] = {"lr_x": 0.05, "momentum_x": 0.0}
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "BP": ("bp", {}),
    "PC rounded": ("pc", {**SLOW, "resolve": False}),
    "PC": ("pc", SLOW),
    "PC+F": ("pc+f", SLOW),
    "iPC": ("ipc", {**SLOW, "lr_w": 3e-4}),  # which steps its optimiser T times a batch
    "PC+S+F": ("pc+s+f", {"lr_x": 0.5, "alpha": 0.01, "momentum_x": 0.0}),
}
NETS = ("VGG5", "VGG10", "VGG15", "ResNet18")
SMALL = {"epsilon": 1e-30}


def cells(scale: Scale) -> list[Cell]:
    made = [
        cell(scale, "cifar10", row, column, model=net.lower(), algorithm=algorithm, **{**COMMON, **changes})
        for net in NETS
        for row, column, algorithm, changes in _variants(net)
    ]
    return [replace(place, hyper="the same for all: lr_w 0.001 (iPC 0.0003), T = L, ReLU, BF") for place in made]


def _variants(net: str) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Row, column, algorithm and settings of every cell of a network."""
    for row, (algorithm, changes) in ROWS.items():
        yield row, net, algorithm, changes
        if row != "BP":
            yield row, f"{net} gain", algorithm, {**changes, "depth_gain": True}
        if row in ("BP", "PC rounded", "PC") and net in ("VGG5", "VGG10"):
            yield row, f"{net} epsilon 1e-30", algorithm, {**changes, **SMALL}
    if net != "VGG10":
        return
    for n in (2, 4):
        yield f"PC, T = {n}L", f"{net} gain", "pc", {**SLOW, "depth_gain": True, "T": n * LEVELS["vgg10"]}
    for rate in (0.2, 0.5):
        yield f"PC, lr_x {rate:g}", f"{net} gain", "pc", {**SLOW, "depth_gain": True, "lr_x": rate}
    algorithm, changes = ROWS["PC+S+F"]
    yield "PC+S+F, one stride", net, algorithm, {**changes, "strides": 1}


def tables(evidence: Evidence) -> list[Matrix]:
    return [accuracies(evidence, "cifar10", "top1", {}, "Test accuracy"), lowest_cosines(evidence, "cifar10")]


def plots(evidence: Evidence, made: Sequence[Matrix]) -> list[Plot]:
    from deeppc.paper.figures import by_layer

    drawn = dot_plots(made[:1], "Plain predictive coding and its arithmetic")
    turn = ("Does each layer follow backprop?", "cosine of the weight updates, last epoch, first seed")
    for net in NETS:
        found = {place.cell.row: place.cosines() for place in evidence.places if place.cell.column == net}
        lines = {row: cosines[0] for row, cosines in found.items() if cosines and row != "BP"}
        if lines:
            caption = f"Cosine of each layer's update with backprop's, {net} without the gain, last epoch, first seed."
            drawn.append(Plot(f"gain-cosine-{net.lower()}", partial(by_layer, lines, *turn), caption))
    return drawn


RECIPE = Recipe(
    name="gain",
    shows="Is plain PC's failure at depth a matter of numbers?",
    paper=(),
    expect="If it is, PC with the gain keeps up with BP at any depth, and PC as it is rounded does not.",
    cells=cells,
    tables=tables,
    plots=plots,
)
