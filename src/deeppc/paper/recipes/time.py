"""The timing table: what does a training step cost, relative to backprop?

`deeppc bench` on this machine, beside the ratios of the paper's seconds per epoch on an H100. No training: minutes. A
net that has been measured is not measured again; delete extra.json in the result's folder to start over. Measure on a
machine that does nothing else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from deeppc.files import read_json, write_json
from deeppc.paper import published
from deeppc.paper.matrix import Entry, Matrix
from deeppc.paper.recipe import Evidence, Plot, Recipe
from deeppc.paper.scales import Scale
from deeppc.paper.store import EXTRA

NETS = ("VGG5", "VGG7", "VGG10", "ResNet10", "ResNet18")


def work(scale: Scale, folder: Path, tell: Callable[[str], None]) -> None:
    """Measure what is not in ``extra.json`` yet, net by net."""
    import torch

    from deeppc.bench import steps, timing

    path = folder / EXTRA
    record: dict[str, Any] = read_json(path) if path.exists() else {}
    if (record.get("width"), record.get("norm")) != (scale.width, scale.norm):
        record = {"origin": timing.origin(), "width": scale.width, "norm": scale.norm, "cells": []}
    there = {cell["model"] for cell in record["cells"]}
    for net in (net.lower() for net in NETS):
        if net in there or net not in scale.models:
            continue
        sizes = {name: getattr(scale, name) for name in ("width", "batch_size", "rounds", "norm")}
        setting = steps.Setting((net,), threads=torch.get_num_threads(), **sizes)
        record["cells"] += [dataclasses.asdict(cell) for cell in steps.run(setting, tell)]
        write_json(path, record)


def tables(evidence: Evidence) -> list[Matrix]:
    names, paper = {net.lower(): net for net in NETS}, ratios()
    times, bounds = {}, {}
    for cell in evidence.extra.get("cells", []):
        at = names[cell["model"]], cell["algorithm"]
        times[at] = Entry((cell["ratio"],), paper.get(at))
        if cell["bound"] is not None:
            bounds[at] = Entry((cell["bound"],))
    return [
        Matrix("time.ratio", "Time of a training step relative to backprop", times),
        Matrix("time.bound", "Multiply-adds relative to backprop: what no overhead would cost", bounds),
    ]


def ratios() -> dict[tuple[str, str], published.Value]:
    """Return the paper's seconds per epoch, divided by backprop's."""
    seconds = published.read("time")
    found: dict[tuple[str, str], published.Value] = {}
    for net in NETS:
        by_name = dict(zip(seconds["columns"], seconds[net], strict=True))
        found |= {(net, name.lower()): (mean / by_name["BP"][0], None) for name, (mean, _) in by_name.items()}
    return found


def plots(evidence: Evidence, made: Sequence[Matrix]) -> list[Plot]:
    from deeppc.bench import steps

    measured = [steps.StepCost(**cell) for cell in evidence.extra.get("cells", [])]
    caption = "Time of a training step relative to backprop, with quartiles, and the bound by multiply-adds."
    return [Plot("time", partial(steps.draw, measured), caption)]


RECIPE = Recipe(
    name="time",
    shows="What a training step costs, relative to backprop",
    paper=("Appendix table of training times",),
    expect="In the paper S and F add nothing to PC's cost: 1.3 times BP's in a VGG5, 5.4 times in a ResNet18.",
    cells=lambda scale: [],
    tables=tables,
    plots=plots,
    work=work,
)
