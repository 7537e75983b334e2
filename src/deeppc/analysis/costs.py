"""The picture of a benchmark: what a step costs relative to backprop, measured beside the bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from deeppc.analysis import style
from deeppc.analysis.style import WIDE, Margins

if TYPE_CHECKING:
    from deeppc.bench import Cell


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
