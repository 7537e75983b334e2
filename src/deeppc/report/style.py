"""The house style of all pictures: quiet axes, colours for every eye, names beside the lines instead of legends.

Everything is set on the artists themselves. matplotlib's global settings are neither read by our choices nor changed,
so pictures can be made in any thread and look the same in every program. DejaVu Sans comes with matplotlib.

Sizes are inches and points; margins are given, not found by a layout engine, so that label places can be computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

WIDE, NARROW = 8.0, 4.4  # inches: for a page (768 px), and for a phone
INK, GREY, PALE, GRID = "#212529", "#6c757d", "#adb5bd", "#e9ecef"
HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b58900", "#7a5195", "#495057")  # after Okabe and Ito
FONT = "DejaVu Sans"
BODY, SMALL, TITLE = 9.5, 8.0, 12.0  # points
POINTS = 72.0  # per inch


@dataclass(frozen=True)
class Margins:
    """Inches around the axes."""

    left: float = 0.72
    right: float = 0.25
    bottom: float = 0.52
    top: float = 0.72


def figure(width: float, height: float, title: str, note: str = "") -> Figure:
    """A sheet of paper with its title, and a line in grey that says how to read it."""
    sheet = Figure(figsize=(width, height), facecolor="none")
    x = 0.12 / width
    sheet.text(x, 1 - 0.12 / height, plain(title, 80), size=TITLE, weight="bold", **_words(INK), va="top")
    sheet.text(x, 1 - 0.39 / height, note, size=SMALL, **_words(GREY), va="top")
    return sheet


def panel(sheet: Figure, margins: Margins, **options: Any) -> Axes:
    """Axes that fill the sheet up to its margins, in the house style."""
    width, height = sheet.get_size_inches()
    left, bottom = margins.left / width, margins.bottom / height
    rectangle = (left, bottom, 1 - left - margins.right / width, 1 - bottom - margins.top / height)
    axes: Axes = sheet.add_axes(rectangle, **options)
    dress(axes)
    return axes


def dress(axes: Axes) -> None:
    axes.set_facecolor("none")
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(PALE)
        spine.set_linewidth(0.8)
    axes.tick_params(which="both", length=0, pad=5, labelsize=BODY, labelcolor=INK, labelfontfamily=FONT, colors=PALE)
    axes.grid(True, which="major", color=GRID, linewidth=0.8, linestyle="-")
    axes.set_axisbelow(True)


def label_axis(axes: Axes, which: str, words: str, colour: str = GREY) -> None:
    setter = axes.set_xlabel if which == "x" else axes.set_ylabel
    setter(words, size=BODY, labelpad=6, **_words(colour))


def write(axes: Axes, words: str, x: float, y: float, *, dx: float = 0.0, dy: float = 0.0, **options: Any) -> None:
    """Words at a place in the axes' data, moved by points. Names are written as they are, never read as formulas."""
    given: dict[str, Any] = {"size": SMALL, "va": "center", "annotation_clip": False, "parse_math": False}
    given |= _words(options.pop("color", INK))
    axes.annotate(plain(words), (x, y), (dx, dy), textcoords="offset points", **(given | options))


def plain(words: object, length: int = 28) -> str:
    """A name that fits and can be drawn: at most ``length`` characters, all of them printable."""
    seen = "".join(c if c.isprintable() else "�" for c in str(words))
    return seen if len(seen) <= length else seen[: length - 1] + "…"


def nothing_to_show(sheet: Figure, why: str) -> Figure:
    """An honest empty picture."""
    sheet.text(0.5, 0.45, why, size=BODY, ha="center", va="center", **_words(GREY))
    return sheet


def by_depth(n: int) -> list[tuple[float, ...]]:
    """A colour for each of ``n`` nodes from the cool input to the hot output, as in the drawings of networks.

    plasma, whose lightness rises evenly, without its yellow end, which nobody can read on paper.
    """
    plasma = matplotlib.colormaps["plasma"]
    return [tuple(plasma(x)) for x in np.linspace(0.02, 0.76, n)] if n > 1 else [tuple(plasma(0.76))]


def hue(i: int) -> str:
    return HUES[i % len(HUES)]


def whole_epochs(axes: Axes, epochs: Sequence[float] | np.ndarray[Any, Any], room: float = 0.0) -> None:
    """Whole numbers below, and at the right a share of ``room`` of the axes for names."""
    first, last = float(min(epochs)), float(max(epochs))
    if first == last:
        first, last = first - 0.5, last + 0.5
    air = 0.02 * (last - first)
    left, right = first - air, last + air
    axes.set_xlim(left, left + (right - left) / (1 - room))
    steps = MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1).tick_values(first, last)
    axes.set_xticks([step for step in steps if first <= step <= last and step == int(step)])
    label_axis(axes, "x", "epoch")


def percent(axes: Axes, which: str) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))


def decades(axes: Axes, which: str, low: float, high: float, ticks: int = 7) -> None:
    """A logarithmic axis from ``10**low`` to ``10**high``, without the clutter of minor ticks."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    (axes.set_xlim if which == "x" else axes.set_ylim)(10.0**low, 10.0**high)
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(base=10, numticks=ticks))
    axis.set_minor_locator(NullLocator())


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for names near ``wanted``, at least ``gap`` apart and within bounds, moved as little as can be.

    Least squares under order: with ``k * gap`` taken off the k-th from below this is isotonic regression, which
    pooling neighbours that are out of order solves.
    """
    order = np.argsort(wanted, kind="stable")
    pools: list[tuple[float, int]] = []  # mean and size
    for k, i in enumerate(order):
        mean, size = wanted[i] - k * gap, 1
        while pools and pools[-1][0] > mean:
            before, n = pools.pop()
            mean, size = (mean * size + before * n) / (size + n), size + n
        pools.append((mean, size))
    ceiling = max(low, high - (len(wanted) - 1) * gap)
    relaxed = [min(max(mean, low), ceiling) for mean, size in pools for _ in range(size)]
    places = [0.0] * len(wanted)
    for k, i in enumerate(order):
        places[i] = relaxed[k] + k * gap
    return places


def _words(colour: str) -> dict[str, Any]:
    return {"color": colour, "family": FONT}
