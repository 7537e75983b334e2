"""The figures of the recipes: tables and records in, a matplotlib ``Figure`` out, in the house style.

Ours and the paper's stand in one picture, ours filled, the paper's hollow. The paper's nets are wider and trained for
longer, so what is to be compared is the order and the slope, not the height.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from deeppc.diagnostics.energy import FloatArray
from deeppc.paper.tables import Entry, Table
from deeppc.report import style
from deeppc.report.plots import heat
from deeppc.report.style import GREY, INK, PALE, SMALL, WIDE, Margins

NOTHING_YET = "No run has finished yet."
LEGEND = "filled: ours, mean ± deviation, a dot for each seed"
FAR_OFF = 24.0  # points: a line from a name to a point so far away would cross the others


def dots(table: Table, *, title: str, by: str = "column", width: float = WIDE) -> Figure:
    """A line for each entry of a table, grouped by column (or row): every seed, mean, deviation, the paper's value."""
    groups, members = (table.columns, table.rows) if by == "column" else (table.rows, table.columns)
    places = [
        (group, member, table.entry(*((member, group) if by == "column" else (group, member))))
        for group in groups
        for member in members
    ]
    shown = [place for place in places if place[2].values or place[2].paper or place[2].diverged]
    height = 1.45 + 0.2 * len(shown) + 0.32 * len({group for group, _, _ in shown})
    note = LEGEND if width >= WIDE else "filled: ours"
    note += "; hollow: the paper" if any(entry.paper for _, _, entry in shown) else ""
    sheet = style.figure(width, height, title, note)
    if not shown:
        return style.nothing_to_show(sheet, NOTHING_YET)
    left = 0.35 + 0.075 * max(len(style.plain(member)) for _, member, _ in shown)
    axes = style.panel(sheet, Margins(left=left, right=0.35))
    y, ticks, before = 0.0, [], None
    for group, member, entry in shown:
        if group != before:
            y -= 1.6
            style.write(axes, group, 0.0, y + 0.95, xycoords=axes.get_yaxis_transform(), weight="bold")
            before = group
        _entry(axes, entry, y, style.hue(members.index(member)))
        ticks.append((y, style.plain(member)))
        y -= 1.0
    axes.set_yticks([place for place, _ in ticks], [name for _, name in ticks], parse_math=False)
    axes.tick_params(axis="y", labelsize=SMALL)
    axes.set_ylim(y + 0.3, 0.1)
    axes.grid(False, axis="y")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8 if width >= WIDE else 5))
    style.label_axis(axes, "x", "test accuracy, %")
    return sheet


def _entry(axes: Axes, entry: Entry, y: float, colour: str) -> None:
    if entry.paper is not None:
        axes.plot([entry.paper[0]], [y], marker="D", color=colour, markerfacecolor="none", markersize=5, label="paper")
    if entry.mean is None:
        if entry.diverged:
            style.write(axes, "diverged", 0.01, y, xycoords=axes.get_yaxis_transform(), color=GREY)
        return
    spread = entry.deviation or 0.0
    axes.plot([entry.mean - spread, entry.mean + spread], [y, y], color=colour, linewidth=2.2, alpha=0.5)
    axes.scatter(entry.values, [y] * len(entry.values), s=10, color=colour, alpha=0.5, linewidth=0)
    axes.plot([entry.mean], [y], marker="o", color=colour, markersize=5.5, label="ours")


def slopes(table: Table, kinds: Mapping[str, Sequence[str]], *, title: str, width: float = WIDE) -> Figure:
    """Accuracy by depth, a line for each row: ours in one panel, the paper's in the other, each on its own scale.

    ``kinds``: for each kind of line the columns from shallow to deep. The first kind is drawn whole, others dashed.
    """
    strokes = dict(zip(kinds, ("-", (0, (4, 2)), ":"), strict=False))
    note = "; ".join(f"{'whole' if i == 0 else 'dashed'}: {kind}" for i, kind in enumerate(kinds))
    stacked = width < WIDE
    height = 8.2 if stacked else 4.6
    sheet = style.figure(width, height, title, note)
    panels = _beside(sheet, 2, 1 if stacked else 2, Margins(right=0.8, top=0.95), (1.1, 0.85))
    for axes, words, value in zip(panels, ("ours", "the paper"), (_ours, _papers), strict=True):
        ends = []
        for i, row in enumerate(table.rows):
            for kind, columns in kinds.items():
                y = np.array([value(table.entry(row, column)) for column in columns])
                if np.isfinite(y).any():
                    axes.plot(range(len(y)), y, color=style.hue(i), linestyle=strokes[kind], marker="o", markersize=4)
                if kind == next(iter(kinds)) and np.isfinite(y[-1]):
                    ends.append((row, style.hue(i), float(len(y) - 1), float(y[-1])))
        _caption(axes, words)
        nets = next(iter(kinds.values()))
        axes.set_xticks(range(len(nets)), nets)
        axes.set_xlim(-0.15, len(nets) - 0.85)
        _name_right(axes, ends)
        if not ends:
            style.write(axes, "no numbers", 0.5, 0.5, xycoords="axes fraction", color=GREY, ha="center")
    style.label_axis(panels[0], "y", "test accuracy, %")
    return sheet


@dataclass(frozen=True)
class Traced:
    """What a run recorded, by epoch: shares of the energy (epochs, nodes), accuracies, cosines at the last epoch."""

    epochs: FloatArray
    nodes: tuple[str, ...]
    shares: FloatArray
    train: FloatArray
    test: FloatArray
    cosines: Mapping[str, float]


def energies(runs: Mapping[str, Traced], *, width: float = WIDE) -> Figure:
    """The paper's energy figure: a panel for each algorithm, each node's share over the epochs, and the accuracies."""
    across = 4 if width >= WIDE else 2
    down = max(1, math.ceil(len(runs) / across))
    note = "blue: near the input; orange: near the output; grey: accuracy from 0 to 100 %, train dotted"
    sheet = style.figure(width, 1.15 + 1.9 * down, "Share of the energy by node", note if width >= WIDE else "")
    if not runs:
        return style.nothing_to_show(sheet, NOTHING_YET)
    low = min(_lowest(run.shares) for run in runs.values())
    panels = _beside(sheet, len(runs), across, Margins(top=0.9, right=0.2), (0.18, 0.5))
    for i, (axes, (name, run)) in enumerate(zip(panels, runs.items(), strict=True)):
        known = [cosine for cosine in run.cosines.values() if math.isfinite(cosine)]
        words = [f"{100 * run.test[-1]:.0f} %"] if len(run.test) else []
        words += [f"cos {min(known):.2f}"] if known and width >= WIDE else []
        _caption(axes, f"{name}: {', '.join(words)}" if words else name)
        style.decades(axes, "y", low, 0.3, ticks=5)
        for colour, y in zip(style.by_depth(len(run.nodes)), run.shares.T, strict=True):
            axes.plot(run.epochs, np.where(y > 0, y, np.nan), color=colour, linewidth=1.3, **_alone(run.epochs))
        _accuracy_behind(axes, run)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        axes.tick_params(labelsize=SMALL, labelleft=i % across == 0)
    style.label_axis(panels[0], "y", "share of energy")
    style.label_axis(panels[-1], "x", "epoch")
    return sheet


def by_layer(values: Mapping[str, Mapping[str, float]], *, title: str, note: str, width: float = WIDE) -> Figure:
    """A number for each node, a line for each algorithm, from the output to the input."""
    sheet = style.figure(width, 4.0, title, note)
    known = {name: numbers for name, numbers in values.items() if numbers}
    if not known:
        return style.nothing_to_show(sheet, NOTHING_YET)
    axes = style.panel(sheet, Margins(right=0.95))
    ends = []
    for i, (name, numbers) in enumerate(known.items()):
        y = np.array(list(numbers.values()))[::-1]
        x = np.linspace(0, 1, len(y)) if len(y) > 1 else np.zeros(1)
        stroke = "-" if i < len(style.HUES) else "--"  # the second time round
        axes.plot(x, y, color=style.hue(i), linestyle=stroke, marker="o", markersize=4, linewidth=1.6)
        finite = np.flatnonzero(np.isfinite(y))
        if finite.size:
            ends.append((name, style.hue(i), float(x[finite[-1]]), float(y[finite[-1]])))
    axes.axhline(0, color=PALE, linewidth=0.9)
    nodes = list(next(iter(known.values())))[::-1]
    every = math.ceil(sum(len(style.plain(v)) + 2 for v in nodes) / (9 * width))
    axes.set_xticks(np.linspace(0, 1, len(nodes))[::every], nodes[::every], parse_math=False)
    axes.set_xlim(-0.02, 1.02)
    _name_right(axes, ends)
    style.label_axis(axes, "x", "node, from output to input")
    return sheet


def waves(traces: Mapping[str, tuple[Sequence[str], FloatArray]], *, width: float = WIDE) -> Figure:
    """Energy by node and inference step of one batch, a panel for each algorithm, all on one logarithmic scale.

    ``traces``: nodes (the output last) and energies (nodes, steps).
    """
    across = 4 if width >= WIDE else 2
    down = max(1, math.ceil(len(traces) / across))
    note = "one batch; bottom: input, top: output; grey: no energy yet"
    sheet = style.figure(width, 1.3 + 2.0 * down, "The wave of energy", note)
    values = [energy[energy > 0] for _, energy in traces.values() if (energy > 0).any()]
    if not values:
        return style.nothing_to_show(sheet, NOTHING_YET)
    lowest, highest = (f(np.log10(np.concatenate(values))) for f in (np.min, np.max))
    box = Margins(left=0.3, right=0.95, top=0.9)
    panels = _beside(sheet, len(traces), across, box, (0.25, 0.45))
    for axes, (name, (nodes, energy)) in zip(panels, traces.items(), strict=True):
        _caption(axes, name)
        axes.grid(False)
        axes.set_facecolor(style.GRID)
        steps = np.arange(energy.shape[1])
        shown = np.ma.masked_invalid(np.log10(np.where(energy > 0, energy, np.nan)))
        cells = axes.pcolormesh(steps, np.arange(len(nodes)), shown, cmap=heat(), vmin=lowest, vmax=highest)
        axes.set_yticks([])
        axes.tick_params(labelsize=SMALL)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    scale = style.panel(sheet, Margins(left=width - 0.75, right=0.6, top=box.top))
    sheet.colorbar(cells, cax=scale)
    style.dress(scale)
    scale.grid(False)
    scale.spines["bottom"].set_visible(False)
    style.label_axis(scale, "y", "log₁₀ energy")
    style.label_axis(panels[-1], "x", "inference step")
    return sheet


def gaps(tables: Mapping[str, Table], *, width: float = WIDE) -> Figure:
    """Gap ratio by layer, a panel for each training, a line for each epoch; the paper's last epoch hollow."""
    across = len(tables) if width >= WIDE else 1
    down = math.ceil(max(1, len(tables)) / max(1, across))
    sheet = style.figure(
        width, 1.3 + 2.6 * down, "Gap ratio by layer", "a line for each epoch, the last one darkest; hollow: the paper"
    )
    if not any(entry.values for table in tables.values() for entry in table.entries.values()):
        return style.nothing_to_show(sheet, NOTHING_YET)
    panels = _beside(sheet, len(tables), across, Margins(top=0.95), (0.3, 0.6))
    for axes, (name, table) in zip(panels, tables.items(), strict=True):
        _caption(axes, name)
        axes.set_yscale("log")
        layers = [column for column in table.columns if column.startswith("L")]
        for i, row in enumerate(table.rows):
            y = np.array([_positive(_ours(table.entry(row, layer))) for layer in layers])
            shade = 0.25 + 0.75 * (i + 1) / len(table.rows)
            axes.plot(range(len(layers)), y, color=style.HUES[0], alpha=shade, marker="o", markersize=3)
        paper = np.array([_positive(_papers(table.entry(table.rows[-1], layer))) for layer in layers])
        axes.plot(range(len(layers)), paper, "D", color=style.HUES[1], markerfacecolor="none", markersize=4)
        axes.set_xticks(range(len(layers)), [layer[1:] for layer in layers])
        axes.tick_params(labelsize=SMALL)
    shared = [y for axes in panels for y in axes.get_ylim()]
    for i, axes in enumerate(panels):
        axes.set_ylim(min(shared), max(shared))
        axes.tick_params(labelleft=i % across == 0)
    style.label_axis(panels[0], "y", "gap ratio")
    style.label_axis(panels[-1], "x", "layer")
    return sheet


def corruptions(
    values: Mapping[str, Mapping[str, tuple[FloatArray, FloatArray]]], *, title: str, words: str, width: float = WIDE
) -> Figure:
    """A panel for each kind of corruption, a line for each network: ``values[kind][network] = (levels, values)``."""
    across = 3 if width >= WIDE else 2
    down = max(1, math.ceil(len(values) / across))
    names = list(dict.fromkeys(name for lines in values.values() for name in lines))
    sheet = style.figure(width, 1.45 + 1.75 * down, title)
    if not names:
        return style.nothing_to_show(sheet, NOTHING_YET)
    _key(sheet, names)
    panels = _beside(sheet, len(values), across, Margins(top=1.0), (0.2, 0.5))
    for i, (axes, (kind, lines)) in enumerate(zip(panels, values.items(), strict=True)):
        _caption(axes, kind.replace("_", " "))
        for name, (levels, y) in lines.items():
            axes.plot(levels, y, color=style.hue(names.index(name)), marker="o", markersize=3, linewidth=1.5)
        axes.tick_params(labelsize=SMALL, labelleft=i % across == 0)
    limits = [y for axes in panels for y in axes.get_ylim()]
    for axes in panels:
        axes.set_ylim(min(limits), max(limits))
    style.label_axis(panels[0], "y", words)
    style.label_axis(panels[-1], "x", "level")
    return sheet


def _beside(sheet: Figure, n: int, across: int, box: Margins, gap: tuple[float, float]) -> list[Axes]:
    """``n`` panels in rows of ``across`` within the margins, ``gap`` inches apart to the right and downwards."""
    width, height = sheet.get_size_inches()
    down = math.ceil(n / across)
    w = (width - box.left - box.right - gap[0] * (across - 1)) / across
    h = (height - box.top - box.bottom - gap[1] * (down - 1)) / down
    panels = []
    for i in range(n):
        x, y = box.left + (i % across) * (w + gap[0]), box.top + (i // across) * (h + gap[1])
        panels.append(style.panel(sheet, Margins(left=x, right=width - x - w, top=y, bottom=height - y - h)))
    return panels


def _caption(axes: Axes, words: str) -> None:
    axes.set_title(style.plain(words, 40), size=SMALL, color=INK, family=style.FONT, loc="left", pad=4)


def _name_right(axes: Axes, ends: Sequence[tuple[str, str, float, float]]) -> None:
    """Names beside the last points of lines on an ordinary axis, kept apart."""
    low, high = axes.get_ylim()
    height = axes.bbox.height / axes.figure.dpi * style.POINTS
    places = style.apart([y for *_, y in ends], SMALL * 1.2 / height * (high - low), low, high)
    leader = {"arrowstyle": "-", "linewidth": 0.6, "alpha": 0.6, "shrinkA": 0, "shrinkB": 3}
    for (name, colour, x, y), place in zip(ends, places, strict=True):
        shift = (place - y) / (high - low) * height
        line = {**leader, "color": colour} if abs(shift) < FAR_OFF else None
        style.write(axes, name, x, y, dx=12, dy=shift, color=colour, arrowprops=line)


def _key(sheet: Figure, names: Sequence[str]) -> None:
    """Names in their colours, in a line under the title."""
    width, height = sheet.get_size_inches()
    x = 0.12
    for i, name in enumerate(names):
        words = f"● {style.plain(name)}"
        sheet.text(x / width, 1 - 0.45 / height, words, size=SMALL, color=style.hue(i), family=style.FONT, va="top")
        x += 0.3 + 0.075 * len(words)


def _accuracy_behind(axes: Axes, run: Traced) -> None:
    right = axes.twinx()
    style.dress(right)
    right.grid(False)
    right.spines["bottom"].set_visible(False)
    axes.set_zorder(right.get_zorder() + 1)
    for y, dashes in ((run.train, ":"), (run.test, "-")):
        right.plot(run.epochs, y, color=PALE, linewidth=1.2, linestyle=dashes)
    right.set_ylim(0, 1)
    right.set_yticks([])


def _alone(epochs: FloatArray) -> dict[str, Any]:
    """A single epoch is a dot, which a line would not show."""
    return {"marker": "o", "markersize": 4} if len(epochs) == 1 else {}


def _lowest(shares: FloatArray) -> float:
    """The exponent below all that is there, and at least two decades down."""
    positive = shares[shares > 0]
    return min(-2.0, math.floor(math.log10(positive.min())) if positive.size else -2.0)


def _ours(entry: Entry) -> float:
    return math.nan if entry.mean is None else entry.mean


def _papers(entry: Entry) -> float:
    return math.nan if entry.paper is None else entry.paper[0]


def _positive(value: float) -> float:
    return value if value > 0 else math.nan
