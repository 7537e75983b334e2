"""Measure a training step relative to backprop: multiply-adds counted, time and memory measured.

Machines differ and are noisy, so every number is a ratio: the steps of all algorithms are interleaved in one run, and
each one's time is divided by the mean of the two backprop steps just before and after it. Beside the measured ratio
stands the *bound*, the ratio of multiply-adds that the engine's own work counts give: what an implementation without
any overhead would reach.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from matplotlib.figure import Figure

from deeppc.bench.timing import PLAIN, SPECS, Tell, batch, profiled, require_positive, save, seconds, silent, step
from deeppc.diagnostics.work import multiply_adds, step_cost
from deeppc.errors import nearest
from deeppc.files import require_writable
from deeppc.models import build
from deeppc.report import plots
from deeppc.report.tables import Table

# Seconds per epoch relative to BP on an H100, from the paper's timing table (its nets at width 1).
PAPER = {
    "vgg5": {"pc": 1.34, "pc+s+f": 1.34, "ipc+s": 1.67},
    "vgg7": {"pc": 1.71, "pc+s+f": 1.71, "ipc+s": 2.29},
    "vgg10": {"pc": 2.67, "pc+s+f": 2.66, "ipc+s": 3.69},
    "resnet10": {"pc": 2.87, "pc+s+f": 2.91, "ipc+s": 4.05},
    "resnet18": {"pc": 5.37, "pc+s+f": 5.46, "ipc+s": 7.96},
}


@dataclass(frozen=True)
class Setting:
    """Networks at a width, with a norm, on batches of 3x32x32 images, and how often each step is timed."""

    models: tuple[str, ...] = ("vgg5", "vgg7", "vgg10", "resnet10", "resnet18")
    algorithms: tuple[str, ...] = tuple(SPECS)
    width: float = 0.5
    batch_size: int = 128
    rounds: int = 7
    threads: int = 2
    norm: str = "none"

    def __post_init__(self) -> None:
        require_positive(batch_size=self.batch_size, rounds=self.rounds, threads=self.threads)
        if not self.models:
            raise ValueError("there are no networks to measure: name one at least, such as vgg5")
        if "bp" not in self.algorithms:
            raise ValueError("bp is missing in algorithms: all others are measured relative to it")
        for name in self.algorithms:
            if name not in SPECS:
                raise ValueError(f"unknown algorithm {name!r}: {nearest(name, SPECS)}")


@dataclass(frozen=True)
class StepCost:
    """One algorithm on one network. Ratios are to ``bp`` in the same run; ``low`` and ``high`` are quartiles."""

    model: str
    algorithm: str
    milliseconds: float
    ratio: float
    low: float
    high: float
    bound: float | None  # None for plain torch
    memory: float  # peak bytes of a step relative to bp's
    convolutions: float  # share of the step's time
    paper: float | None


def bench(setting: Setting, folder: Path, tell: Tell = silent) -> Table:
    """Measure, and write table, picture and numbers to ``folder``, which is tried before anything is measured.

    Raises ``ValueError`` for an unknown network or norm. Without a place to write, the RunError has the table.
    """
    for model in setting.models:
        build(model, width=setting.width, norm=setting.norm)  # an unknown one is found now
    require_writable(folder)
    costs = list(run(setting, tell))
    table = replace(as_table(costs), title=f"norm: {setting.norm}")
    save(folder / "bench", {"setting": asdict(setting), "cells": [asdict(cost) for cost in costs]}, table, draw(costs))
    return table


def run(setting: Setting, tell: Tell = silent) -> Iterator[StepCost]:
    """Measure every algorithm, network by network."""
    torch.set_num_threads(setting.threads)
    for model in setting.models:
        torch.manual_seed(0)
        net = build(model, width=setting.width, norm=setting.norm)
        images, labels = batch(net, setting.batch_size)
        steps = {name: step(name, net, images, labels) for name in (PLAIN, *setting.algorithms)}
        works = {name: work for name, once in steps.items() if (work := once()) is not None}  # also warms up
        macs = multiply_adds(net, images[:1])
        bounds = {name: step_cost(work, macs) / step_cost(works["bp"], macs) for name, work in works.items()}
        profiles = {name: profiled(once) for name, once in steps.items()}
        others = [name for name in steps if name != "bp"]
        times: dict[str, list[float]] = {name: [] for name in steps}
        ratios: dict[str, list[float]] = {name: [] for name in steps} | {"bp": [1.0]}
        for i in range(setting.rounds):
            tell(f"{model}: round {i + 1} of {setting.rounds}")
            times["bp"].append(seconds(steps["bp"]))
            for name in random.Random(i).sample(others, len(others)):
                times[name].append(seconds(steps[name]))
                times["bp"].append(seconds(steps["bp"]))
                ratios[name].append(times[name][-1] / statistics.mean(times["bp"][-2:]))
        for name, measured in ratios.items():
            low, middle, high = statistics.quantiles(measured, n=4) if len(measured) > 1 else measured * 3
            yield StepCost(
                *(model, name, 1e3 * statistics.median(times[name]), middle, low, high, bounds.get(name)),
                memory=profiles[name].peak / profiles["bp"].peak,
                convolutions=profiles[name].convolutions,
                paper=PAPER.get(model, {}).get(name),
            )


def as_table(costs: Sequence[StepCost]) -> Table:
    """Return a row for each network and algorithm."""
    head = ("network", "step", "ms", "time", "quartiles", "bound", "/bound", "memory", "conv", "paper")
    note = (
        "time, bound and memory: relative to bp; bound: by multiply-adds; /bound: time / bound; "
        "conv: the part of the time in convolutions; paper: its time, on another machine"
    )
    rows = []
    for c in costs:
        times = (f"{c.milliseconds:.0f}", f"{c.ratio:.2f}", f"{c.low:.2f}-{c.high:.2f}")
        bound = (f"{c.bound:.2f}", f"{c.ratio / c.bound:.2f}") if c.bound else (None, None)
        paper = None if c.paper is None else f"{c.paper:.2f}"
        rows.append((c.model, c.algorithm, *times, *bound, f"{c.memory:.2f}", f"{c.convolutions:.0%}", paper))
    return Table(head, rows, note=note)


@plots.styled()
def draw(costs: Sequence[StepCost]) -> Figure:
    """Draw a row for each network and algorithm: a dot for the median time, its quartiles, and a tick for the bound."""
    shown = [cost for cost in costs if cost.bound is not None]
    title, note = "Time of a training step relative to backprop", "dot: median, line: quartiles, tick: bound"
    if not shown:
        return plots.sheet(title, empty="Nothing has been measured.")
    figure = plots.sheet(title, note, height=1.35 + 0.21 * len(shown))
    axes = figure.subplots()
    algorithms = list(dict.fromkeys(cost.algorithm for cost in shown))
    for y, cost in enumerate(reversed(shown)):
        colour = plots.hue(algorithms.index(cost.algorithm))
        axes.plot([cost.low, cost.high], [y, y], color=colour, linewidth=1.6, alpha=0.5)
        axes.plot([cost.ratio], [y], "o", color=colour, markersize=5)
        axes.plot([cost.bound or 0.0], [y], "|", color=plots.INK, markersize=9, markeredgewidth=1.4)
        if y and cost.model != shown[len(shown) - y].model:
            axes.axhline(y - 0.5, color=plots.GRID, linewidth=0.8)
    first = {cost.model: cost for cost in reversed(shown)}  # of each network, which is named there alone
    names = [f"{c.model}  {c.algorithm}" if c is first[c.model] else c.algorithm for c in reversed(shown)]
    plots.rows(axes, names)
    axes.set_xlim(left=0)
    axes.axvline(1.0, color=plots.PALE, linewidth=0.9)
    axes.set_xlabel("backprop = 1")
    return figure
