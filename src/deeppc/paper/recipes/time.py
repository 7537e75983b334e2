"""The timing table: what does a training step cost, relative to backprop?

`deeppc bench` on this machine, beside the ratios of the paper's seconds per epoch on an H100. No training: minutes. A
net that has been measured is not measured again; delete extra.json in the result's folder to start over. Measure on a
machine that does nothing else.

Expect: S and F cost nothing on top of PC; with alpha = 0 a step costs what backprop's does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeppc.files import read_json, write_json
from deeppc.paper import published
from deeppc.paper.recipe import EXTRA, Cell, Evidence, Picture, Recipe, Tell
from deeppc.paper.scales import Scale
from deeppc.paper.tables import Entry, Table

if TYPE_CHECKING:
    from deeppc.bench import steps as bench

NETS = ("VGG5", "VGG7", "VGG10", "ResNet10", "ResNet18")


def cells(scale: Scale) -> list[Cell]:
    return []


def work(scale: Scale, folder: Path, tell: Tell) -> None:
    """Measure what is not in ``extra.json`` yet, net by net."""
    import torch

    from deeppc.bench import steps as bench

    path = folder / EXTRA
    record: dict[str, Any] = read_json(path) if path.exists() else {}
    if record.get("width") != scale.width:
        record = {"machine": bench.machine(), "width": scale.width, "cells": []}
    there = {cell["model"] for cell in record["cells"]}
    for net in (net.lower() for net in NETS):
        if net in there or net not in scale.models:
            continue
        setting = bench.Setting(
            (net,), width=scale.width, batch_size=scale.batch_size, rounds=scale.rounds, threads=torch.get_num_threads()
        )
        record["cells"] += [dataclasses.asdict(cell) for cell in bench.run(setting, tell)]
        write_json(path, record)


def tables(evidence: Evidence) -> list[Table]:
    measured = evidence.extra.get("cells", [])
    names = {net.lower(): net for net in NETS}
    paper = _ratios()
    entries, bounds = {}, {}
    for cell in measured:
        place = (names[cell["model"]], cell["algorithm"])
        entries[place] = Entry((cell["ratio"],), paper.get(place))
        if cell["bound"] is not None:
            bounds[place] = Entry((cell["bound"],))
    rows = tuple(dict.fromkeys(row for row, _ in entries))
    columns = tuple(dict.fromkeys(column for _, column in entries))
    return [
        Table("time.ratio", "Time of a training step relative to backprop", rows, columns, entries),
        Table("time.bound", "Multiply-adds relative to backprop: what no overhead would cost", rows, columns, bounds),
    ]


def _ratios() -> dict[tuple[str, str], tuple[float, float | None]]:
    """The paper's seconds per epoch, divided by backprop's."""
    seconds = published.read("time")
    found: dict[tuple[str, str], tuple[float, float | None]] = {}
    for net in NETS:
        by_name = dict(zip(seconds["columns"], seconds[net], strict=True))
        found |= {(net, name.lower()): (mean / by_name["BP"][0], None) for name, (mean, _) in by_name.items()}
    return found


def pictures(evidence: Evidence, made: Sequence[Table]) -> list[Picture]:
    from deeppc.bench.costs import costs

    caption = "Time of a training step relative to backprop, with quartiles, and the bound by multiply-adds."
    return [Picture("time", partial(costs, _measured(evidence)), caption)]


def _measured(evidence: Evidence) -> list[bench.Cell]:
    from deeppc.bench import steps as bench

    return [bench.Cell(**cell) for cell in evidence.extra.get("cells", [])]


RECIPE = Recipe(
    name="time",
    shows="What a training step costs, relative to backprop",
    paper=("Appendix table of training times",),
    expect="In the paper S and F add nothing to PC's cost: 1.3 times BP's in a VGG5, 5.4 times in a ResNet18.",
    cells=cells,
    tables=tables,
    pictures=pictures,
    work=work,
)
