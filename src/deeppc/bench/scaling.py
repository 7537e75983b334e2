"""Measure how the cost of a training step grows: with inference steps, with depth, with the size of a batch.

Each point is the median time and the peak memory of a whole step, the algorithms taken in turns. The exponent of a
line is the slope of a straight line through its points in logarithms: 1 is proportional, 2 is a square, 0 is constant.
Counting multiply-adds in a chain of L equal layers with T = L, backprop and alpha = 0 grow as L, the others as L².
"""

from __future__ import annotations

import math
import random
import statistics
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from deeppc.bench.timing import Tell, batch, profiled, require_positive, save, seconds, silent, step
from deeppc.core.inputs import UntaughtWarning
from deeppc.files import require_writable
from deeppc.models import Style, build
from deeppc.models.resnet import resnet
from deeppc.report import plots
from deeppc.report.tables import Table

LINEAR = ("bp", "pc+s+f, alpha=0", "pc+s+f, strides=1")  # in depth
ALGORITHMS = (*LINEAR, "pc+s+f", "pc", "ipc+s")
CROWDED = 1.35  # a number below an axis has to be this much smaller than the next


@dataclass(frozen=True)
class Case:
    """A network, a batch, and the inference steps (None: as many as levels)."""

    axis: str
    x: int
    blocks: int  # of each stage of a ResNet; 0: the VGG10
    batch_size: int = 32
    T: int | None = None
    width: float = 0.25
    algorithms: tuple[str, ...] = ALGORITHMS


DEPTH = "levels L of a ResNet, T = L"
CASES = (
    *(Case("inference steps T", T, 0, T=T) for T in (10, 14, 20, 28, 40)),
    *(Case(DEPTH, 8 * n + 2, n, batch_size=16) for n in (1, 2, 3, 4)),
    *(Case(DEPTH, 8 * n + 2, n, batch_size=16, algorithms=LINEAR) for n in (8, 16)),  # others would take minutes
    *(Case("images in a batch", size, 0, batch_size=size) for size in (8, 16, 32, 64, 128)),
)


@dataclass(frozen=True)
class Point:
    """One algorithm in one case."""

    axis: str
    x: int
    algorithm: str
    milliseconds: float
    megabytes: float


Lines = dict[tuple[str, str], list[Point]]  # by axis and algorithm


def bench(folder: Path, *, rounds: int = 5, threads: int = 2, tell: Tell = silent) -> Table:
    """Measure, and write table, picture and numbers to ``folder``, which is tried before anything is measured."""
    require_positive(rounds=rounds, threads=threads)
    require_writable(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntaughtWarning)  # of T below L, which is part of what is measured
        points = list(run(rounds=rounds, threads=threads, tell=tell))
    table = as_table(points)
    save(folder / "scaling", {"points": [asdict(point) for point in points]}, table, draw(points))
    return table


def run(*, rounds: int = 5, threads: int = 2, tell: Tell = silent) -> Iterator[Point]:
    """Measure every one of :data:`CASES`."""
    torch.set_num_threads(threads)
    for case in CASES:
        tell(f"{case.axis}: {case.x}")
        torch.manual_seed(0)
        net = resnet([case.blocks] * 4, Style(width=case.width)) if case.blocks else build("vgg10", width=case.width)
        images, labels = batch(net, case.batch_size)
        steps = {name: step(name, net, images, labels, T=case.T) for name in case.algorithms}
        for warm_up in steps.values():
            warm_up()
        memory = {name: profiled(once).peak for name, once in steps.items()}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for i in range(rounds):
            for name in random.Random(i).sample(list(steps), len(steps)):
                times[name].append(seconds(steps[name]))
        for name, measured in times.items():
            yield Point(case.axis, case.x, name, 1e3 * statistics.median(measured), memory[name] / 2**20)


def lines(points: Sequence[Point]) -> Lines:
    """Return the points by axis and algorithm."""
    found: Lines = {}
    for point in points:
        found.setdefault((point.axis, point.algorithm), []).append(point)
    return found


def exponent(line: Sequence[Point], of: str) -> float:
    """Return the slope of log ``of`` over log x, by least squares; nan for fewer than two different x."""
    if len({point.x for point in line}) < 2:
        return math.nan
    logarithms = [(math.log(point.x), math.log(getattr(point, of))) for point in line]
    slope = statistics.linear_regression(*zip(*logarithms, strict=True)).slope
    return round(slope, 9) + 0.0  # no -0.00


def as_table(points: Sequence[Point]) -> Table:
    """Return the exponents, a row for each axis and algorithm, with the ends of each line."""
    rows = []
    for (axis, name), line in lines(points).items():
        a, b = line[0], line[-1]
        milliseconds = f"{a.milliseconds:.0f} - {b.milliseconds:.0f}"
        megabytes = f"{a.megabytes:.0f} - {b.megabytes:.0f}"
        slopes = [f"{exponent(line, of):.2f}" for of in ("milliseconds", "megabytes")]
        rows.append((axis, name, f"{a.x} - {b.x}", milliseconds, megabytes, *slopes))
    return Table(("against", "step", "from - to", "ms", "MB", "exponent of time", "of memory"), rows)


@plots.styled()
def draw(points: Sequence[Point]) -> Figure:
    """Draw time above, memory below, a panel for each axis, in logarithms; beside each line its exponent."""
    by_axis = lines(points)
    across = list(dict.fromkeys(axis for axis, _ in by_axis))
    title, note = "How the cost of a step grows", "beside each line: its exponent"
    if not across:
        return plots.sheet(title, empty="Nothing has been measured.")
    names = list(dict.fromkeys(name for _, name in by_axis))
    figure = plots.sheet(title, note, height=5.8)
    grid = plots.panels(figure, 2 * len(across), len(across))
    ends: list[list[tuple[str, str, float, float]]] = [[] for _ in grid]
    for i, axes in enumerate(grid):
        axis, (of, unit) = across[i % len(across)], (("milliseconds", "ms"), ("megabytes", "MB"))[i // len(across)]
        for name in names:
            line, colour = by_axis.get((axis, name), []), plots.hue(names.index(name))
            ys = [getattr(point, of) for point in line]
            axes.plot([point.x for point in line], ys, "o-", color=colour, markersize=3.5, linewidth=1.4, label=name)
            ends[i] += [(f"{exponent(line, of):.2f}", colour, line[-1].x, ys[-1])] if line else []
        axes.set(xscale="log", yscale="log", xlabel=axis if i >= len(across) else "")
        if i % len(across) == 0:
            axes.set_ylabel(unit)
        xs = sorted({point.x for point in points if point.axis == axis})
        crowded = {x for x, after in pairwise(xs) if after < CROWDED * x}
        axes.set_xticks(xs, ["" if x in crowded else str(x) for x in xs])
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.minorticks_off()
    figure.legend(
        *grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names), fontsize=plots.SMALL
    )
    for axes, last in zip(grid, ends, strict=True):
        plots.label_ends(axes, last)
    return figure
