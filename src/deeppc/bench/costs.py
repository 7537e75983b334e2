"""The picture of a benchmark: what a step costs relative to backprop, measured beside the bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from deeppc.report import style
from deeppc.report.style import WIDE, Margins

if TYPE_CHECKING:
    from deeppc.bench.scaling import Point
    from deeppc.bench.steps import Cell


def costs(cells: Sequence[Cell], *, width: float = WIDE) -> Figure:
    """A row for each network and algorithm: a dot for the median time, its quartiles, and a tick for the bound."""
    shown = [cell for cell in cells if cell.bound is not None]
    models = list(dict.fromkeys(cell.model for cell in shown))
    algorithms = list(dict.fromkeys(cell.algorithm for cell in shown))
    height = 1.35 + 0.21 * len(shown) + 0.2 * len(models)
    note = "dot: median time, line: quartiles, tick: bound by multiply-adds; backprop = 1"
    sheet = style.figure(width, height, "What a training step costs", note)
    if not shown:
        return style.nothing_to_show(sheet, "Nothing has been measured.")
    axes = style.panel(sheet, Margins(left=1.95))
    names, places = [], []
    y = 0.0
    for model in models:
        for cell in (c for c in shown if c.model == model):
            colour = style.hue(algorithms.index(cell.algorithm))
            axes.plot([cell.low, cell.high], [y, y], color=colour, linewidth=1.6, alpha=0.5)
            axes.plot([cell.ratio], [y], "o", color=colour, markersize=5)
            axes.plot([cell.bound or 0.0], [y], "|", color=style.INK, markersize=9, markeredgewidth=1.4)
            names.append(f"{model}  {cell.algorithm}")
            places.append(y)
            y -= 1.0
        y -= 0.9
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", labelsize=style.SMALL)
    axes.set_xlim(left=0)
    axes.axvline(1.0, color=style.PALE, linewidth=0.9)
    style.label_axis(axes, "x", "time of a step relative to backprop")
    return sheet


def scaling(points: Sequence[Point], *, width: float = WIDE) -> Figure:
    """Time above, memory below, a panel for each axis, in logarithms; beside each line its exponent."""
    from deeppc.bench.scaling import exponents

    sheet = style.figure(width, 5.6, "How the cost of a step grows", "beside each line: its exponent")
    axes_names = list(dict.fromkeys(point.axis for point in points))
    if not axes_names:
        return style.nothing_to_show(sheet, "Nothing has been measured.")
    names = list(dict.fromkeys(point.algorithm for point in points))
    slopes = exponents(points)
    panels = sheet.subplots(2, len(axes_names), squeeze=False)
    sheet.subplots_adjust(left=0.085, right=0.95, top=0.84, bottom=0.16, wspace=0.42, hspace=0.3)
    for row, (unit, value) in enumerate((("ms", "milliseconds"), ("MB", "megabytes"))):
        for column, axis in enumerate(axes_names):
            axes = panels[row][column]
            ends = []
            for i, name in enumerate(names):
                line = [p for p in points if p.axis == axis and p.algorithm == name]
                ys = [getattr(p, value) for p in line]
                axes.plot([p.x for p in line], ys, "o-", color=style.hue(i), markersize=3.5, linewidth=1.4)
                if line:
                    ends.append((ys[-1], line[-1].x, i, slopes[axis, name][row]))
            axes.set_xscale("log")
            axes.set_yscale("log")
            xs = sorted({p.x for p in points if p.axis == axis})
            axes.set_xticks(xs, [str(x) for x in xs])
            axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.minorticks_off()
            axes.tick_params(labelsize=style.SMALL)
            _name_ends(axes, ends)
            if column == 0:
                style.label_axis(axes, "y", unit)
            if row == 1:
                style.label_axis(axes, "x", axis)
    for i, name in enumerate(names):
        sheet.text(0.085 + 0.18 * i, 0.025, f"● {name}", color=style.hue(i), fontsize=style.SMALL)
    return sheet


def _name_ends(axes: Axes, ends: Sequence[tuple[float, float, int, float]]) -> None:
    """The exponents to the right of the last points, pushed apart where lines end together."""
    bottom, top = (math.log(y) for y in axes.get_ylim())
    room, place = 0.085 * (top - bottom), top
    places: list[float] = []
    for y, *_ in sorted(ends, reverse=True):
        place = min(math.log(y), place)
        places.append(place)
        place -= room
    for place, (_, x, i, slope) in zip(places, sorted(ends, reverse=True), strict=True):
        axes.annotate(
            f"{slope:.2f}".replace("-0.00", "0.00"),
            (x, math.exp(place)),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=style.hue(i),
            fontsize=style.SMALL,
            annotation_clip=False,
        )
