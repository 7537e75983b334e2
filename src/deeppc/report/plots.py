"""Pictures of a run, of a batch and of a comparison: plain data in, a matplotlib ``Figure`` out.

What they are for: in plain predictive coding the early layers hold many orders of magnitude less energy than the late
ones, and spiking precision lifts them. So energy is drawn as a *share* on a logarithmic axis, nodes are coloured from
the cool input to the hot output, and what no energy reached is marked as such instead of being dropped.

``metrics`` is a list of one record per epoch, as in a run's ``metrics.jsonl``; accuracies are fractions. No pyplot, no
global state: figures can be made in any thread, without a display. :func:`save` writes them as SVG and PNG.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from deeppc.diagnostics.calibration import Reliability
from deeppc.diagnostics.energy import EnergyTrace, FloatArray
from deeppc.report import records, style
from deeppc.report.files import write_whole
from deeppc.report.records import ACCURACIES, ByNode, Metrics, epochs, numbers, series
from deeppc.report.records import energy_shares as read_shares
from deeppc.report.style import GREY, INK, PALE, SMALL, WIDE, Margins

__all__ = [
    "comparison",
    "cosines",
    "curves",
    "energy_profile",
    "energy_shares",
    "gaps",
    "heat_map",
    "profiles",
    "reliability",
    "save",
]

NOT_REACHED = "not reached"
NO_ENERGY = "No energy has been written down yet."
NO_DIAGNOSTICS = "Nothing on record: train with --diagnostics."
PNG_DPI = 160


def curves(metrics: Metrics, *, selected: float | None = None, width: float = WIDE) -> Figure:
    """Accuracy by epoch (train, validation and test, as far as known), and the learning rate in a thin panel below.

    ``selected`` marks the epoch whose weights were kept.
    """
    sheet = style.figure(width, 4.6, "Accuracy by epoch")
    known = {key: y for key in ACCURACIES if np.isfinite(y := series(metrics, key)).any()}
    if not known:
        return style.nothing_to_show(sheet, "No epoch has finished yet.")
    x = epochs(metrics)
    room = 1.3 / (width - 0.97)
    upper = style.panel(sheet, Margins(bottom=1.62, top=0.5))
    lower = style.panel(sheet, Margins(top=3.35), sharex=upper)
    for (key, y), colour in zip(known.items(), style.HUES, strict=False):
        upper.plot(x, y, color=colour, label=key, **_stroke(x, 1.0 if key == "train_accuracy" else 2.0))
    _name_curves(upper, x, known)
    style.percent(upper, "y")
    _learning_rate(lower, x, series(metrics, "lr_w"))
    style.whole_epochs(lower, x, room)
    upper.tick_params(labelbottom=False)
    if selected is not None:
        for axes in (upper, lower):
            axes.axvline(selected, color=PALE, linewidth=1, linestyle=(0, (3, 3)), zorder=0)
        style.write(upper, "kept", selected, upper.get_ylim()[0], dx=4, dy=7, color=GREY)
    return sheet


def energy_shares(metrics: Metrics, *, width: float = WIDE) -> Figure:
    """Each node's share of the energy over the epochs, with the accuracy as a faint line: the paper's energy figure.

    Where a node got no energy its line has a gap, and a hollow triangle stands on the floor of the axes. If the run
    recorded its diagnostics, a panel below has the cosine of each node's update with backprop's.
    """
    table, cosine = read_shares(metrics), records.cosines(metrics)
    below = 2.5 if cosine.nodes else 0.0
    upper = 4.4 + 0.09 * max(0, min(len(table.nodes), 40) - 14)
    note = "blue: near the input; orange: near the output; grey: accuracy (train dotted)"
    if width < WIDE:
        note = "blue: input; orange: output; grey: accuracy"
    if (table.values == 0).any():
        note += f"; ▽ {NOT_REACHED}"
    sheet = style.figure(width, upper + below, "Share of the energy by node", note)
    if not table.nodes:
        return style.nothing_to_show(sheet, NO_ENERGY)
    margins = Margins(right=0.62)
    axes = style.panel(sheet, replace(margins, bottom=margins.bottom + below))
    low, floor = _floor(table.values)
    style.decades(axes, "y", low, 0.15)
    colours = style.by_depth(len(table.nodes))
    for name, colour, y in zip(table.nodes, colours, table.values.T, strict=True):
        axes.plot(table.epochs, _positive(y), color=colour, label=name, **_stroke(table.epochs, 1.8))
        axes.plot(table.epochs[y == 0], np.full((y == 0).sum(), floor), color=colour, label=NOT_REACHED, **_HOLLOW)
    bottom = axes
    if cosine.nodes:
        axes.tick_params(labelbottom=False)
        bottom = style.panel(sheet, replace(margins, top=upper - 0.3), sharex=axes)
        _cosines(bottom, cosine, below - 0.22, dict(zip(table.nodes, colours, strict=True)))
    style.whole_epochs(bottom, table.epochs, _room_for_names(table.nodes, width, margins))
    _name_nodes(axes, table, floor, upper - margins.bottom - margins.top)
    style.label_axis(axes, "y", "share of energy")
    _faint_accuracy(axes, metrics)
    return sheet


def cosines(metrics: Metrics, *, width: float = WIDE) -> Figure:
    """Cosine of each node's weight update with backprop's over the epochs, as ``diagnostics`` recorded it."""
    table = records.cosines(metrics)
    sheet = style.figure(width, 4.4, "Direction of learning beside backprop", "1: backprop's direction; 0: unrelated")
    if not table.nodes:
        return style.nothing_to_show(sheet, NO_DIAGNOSTICS)
    margins = Margins()
    axes = style.panel(sheet, margins)
    _cosines(axes, table, 4.4 - margins.bottom - margins.top, _depths(table.nodes))
    style.whole_epochs(axes, table.epochs, _room_for_names(table.nodes, width, margins))
    return sheet


def gaps(metrics: Metrics, *, width: float = WIDE) -> Figure:
    """The gap ratio of each node over the epochs, as ``diagnostics`` recorded it; 0 and inf are breaks in the line."""
    table = records.gap_ratios(metrics)
    sheet = style.figure(
        width, 4.4, "Gap ratio by node", "drift of the activity for the energy that weights learn from"
    )
    if not table.nodes:
        return style.nothing_to_show(sheet, NO_DIAGNOSTICS)
    margins = Margins()
    axes = style.panel(sheet, margins)
    low, high = (math.log10(end(table.values)) for end in (np.nanmin, np.nanmax))
    style.decades(axes, "y", math.floor(low - 0.05), max(math.ceil(high + 0.05), math.floor(low) + 2))
    _node_lines(axes, table, 4.4 - margins.bottom - margins.top, _depths(table.nodes))
    style.whole_epochs(axes, table.epochs, _room_for_names(table.nodes, width, margins))
    style.label_axis(axes, "y", "gap ratio")
    return sheet


def reliability(tables: Mapping[str, Reliability], *, width: float = WIDE) -> Figure:
    """Accuracy by confidence, a line for each network: on the dashed diagonal it is as often right as it is sure."""
    note = "a dot for each bin; below the diagonal: too sure of itself"
    sheet = style.figure(width, 4.6, "Is it as often right as it is sure?", note)
    if not tables:
        return style.nothing_to_show(sheet, "Nothing has been measured.")
    room = 0.3 + 0.085 * max(len(style.plain(name)) for name in tables)
    margins = Margins(right=room, bottom=0.62)
    axes = style.panel(sheet, margins)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (3, 3)), label="calibrated", zorder=1)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    ends = []
    for (name, table), colour in zip(tables.items(), _cycle(len(tables)), strict=True):
        x, y = table.confidence, table.accuracy
        axes.plot(x, y, color=colour, label=name, linewidth=1.4, marker="o", markersize=4.5)
        ends.append((name, colour, float(x[-1]), float(y[-1])))
    _name_ends(axes, ends, 4.6 - margins.bottom - margins.top)
    for which in ("x", "y"):
        style.percent(axes, which)
    style.label_axis(axes, "x", "confidence")
    style.label_axis(axes, "y", "accuracy")
    return sheet


def energy_profile(metrics: Metrics, *, width: float = WIDE) -> Figure:
    """Where the energy went: the share of every node at the first and at the last epoch, output on top.

    The dashed line is an equal share for all.
    """
    table = read_shares(metrics)
    n = len(table.nodes)
    pitch = 0.26 if n <= 24 else 0.19
    sheet = style.figure(width, 1.5 + max(pitch * n, 1.2), "Where the energy is", _first_and_last(table) if n else "")
    if not n:
        return style.nothing_to_show(sheet, NO_ENERGY)
    axes = style.panel(sheet, Margins(left=0.42 + 0.085 * max(len(style.plain(v)) for v in table.nodes)))
    low, floor = _floor(table.values[[0, -1]])
    style.decades(axes, "x", low, 0.15, ticks=7 if width >= WIDE else 5)
    rows, colours = np.arange(n), style.by_depth(n)
    first, last = table.values[0], table.values[-1]
    axes.axvline(1 / n, color=GREY, linewidth=1, linestyle=(0, (3, 3)), label="equal", zorder=1)
    for y, a, b, colour in zip(rows, first, last, colours, strict=True):
        if a > 0 and b > 0:
            axes.plot([a, b], [y, y], color=colour, linewidth=2, alpha=0.45, zorder=2)
    axes.scatter(_positive(first), rows, s=34, facecolor="white", edgecolor=colours, linewidth=1.4, label="first")
    axes.scatter(_positive(last), rows, s=44, color=colours, label="last", zorder=3)
    for y in rows[last == 0]:
        axes.plot([floor], [y], color=colours[y], label=NOT_REACHED, **(_HOLLOW | {"marker": "<"}))
        style.write(axes, NOT_REACHED, floor, y, dx=8, color=GREY)
    _rows(axes, table.nodes)
    style.label_axis(axes, "x", "share of energy (log scale; dashed: an equal share)")
    return sheet


def profiles(runs: Mapping[str, Metrics], *, width: float = WIDE) -> Figure:
    """The last epoch's share by node, one line for each algorithm: who lifts the early layers, and how far.

    From the output, where energy enters, to the input: the way of the wave.
    """
    tables = {name: table for name, metrics in runs.items() if (table := read_shares(metrics)).nodes}
    sheet = style.figure(
        width, 4.4, "Share of the energy by depth", "last epoch; energy enters at the output and fades on its way"
    )
    if not tables:
        return style.nothing_to_show(sheet, NO_ENERGY)
    room = 0.3 + 0.075 * max(len(style.plain(name)) for name in tables)
    axes = style.panel(sheet, Margins(right=room, bottom=0.62))
    low, floor = _floor(np.concatenate([table.values[-1] for table in tables.values()]))
    style.decades(axes, "y", low, 0.15)
    ends = []
    for (name, table), colour in zip(tables.items(), _cycle(len(tables)), strict=True):
        x = np.linspace(0, 1, len(table.nodes)) if len(table.nodes) > 1 else np.zeros(1)
        y = table.values[-1][::-1]
        axes.plot(x, _positive(y), color=colour, label=name, linewidth=1.8, marker="o", markersize=4)
        axes.plot(x[y == 0], np.full((y == 0).sum(), floor), color=colour, label=NOT_REACHED, **_HOLLOW)
        ends.append((name, colour, 1.0, float(y[-1]) or floor))
    axes.set_xlim(-0.03, 1.03)
    _name_ends(axes, ends, 4.4 - 0.62 - 0.72)
    _name_depths(axes, tables)
    style.label_axis(axes, "y", "share of energy")
    return sheet


def comparison(rows: Sequence[Mapping[str, Any]], *, width: float = WIDE) -> Figure:
    """Test accuracy by algorithm, every seed a dot, with mean and sample standard deviation; beside it the time."""
    names = [str(row.get("algorithm", "?")) for row in rows]
    pitch = 0.42 * len(rows)
    stacked = width < WIDE
    height = 1.35 + pitch + (0.95 + pitch if stacked else 0.0)
    sheet = style.figure(width, height, "Accuracy and time by algorithm", "a dot for each seed; mean and std of seeds")
    if not rows:
        return style.nothing_to_show(sheet, "No run has finished yet.")
    left = 0.42 + 0.085 * max(len(style.plain(name)) for name in names)
    inner = width - left - 0.25
    box = Margins(left=left, bottom=0.55)
    accuracy = style.panel(
        sheet, replace(box, bottom=0.55 + 0.95 + pitch) if stacked else replace(box, right=0.25 + 0.36 * inner)
    )
    time = style.panel(
        sheet, replace(box, top=height - 0.55 - pitch) if stacked else replace(box, left=left + 0.7 * inner)
    )
    unit, seconds = _unit(rows)
    for i, row in enumerate(rows):
        y, colour = len(rows) - 1 - i, style.hue(i)
        _seeds(accuracy, numbers(row.get("test_accuracy")), y, colour)
        _seeds(time, numbers(row.get("seconds")) / seconds, y, colour)
    style.percent(accuracy, "x")
    accuracy.margins(x=0.08)
    time.set_xlim(left=0)
    time.xaxis.set_major_locator(MaxNLocator(nbins=4))
    for axes in (accuracy, time):
        _rows(axes, names[::-1])
    if not stacked:
        time.set_yticklabels([])
    style.label_axis(accuracy, "x", "test accuracy")
    style.label_axis(time, "x", f"{unit} per run")
    return sheet


def heat_map(trace: EnergyTrace, *, width: float = WIDE) -> Figure:
    """The energy of one batch by node and inference step: the wave that travels from the output (top) to the input.

    Hatched cells have no energy yet. A ring stands where the wave along the main path is due; energy before it took a
    short cut.
    """
    energy, n = trace.energy, len(trace.nodes)
    pitch = 0.28 if n <= 20 else 0.18
    height = 1.45 + max(pitch * n, 1.4)
    sheet = style.figure(
        width, height, "The wave of energy through one batch", "hatched: no energy yet; ring: where the wave is due"
    )
    if not energy.size:
        return style.nothing_to_show(sheet, "No inference step was observed (backprop has none).")
    box = Margins(left=0.42 + 0.085 * max(len(style.plain(v)) for v in trace.nodes), right=1.0)
    axes = style.panel(sheet, box)
    axes.grid(False)
    steps = energy.shape[1]
    axes.add_patch(
        Rectangle((-0.5, -0.5), steps, n, facecolor="#f8f9fa", edgecolor="#ced4da", hatch="////", linewidth=0)
    )
    cells = axes.pcolormesh(
        np.arange(steps),
        np.arange(n),
        np.ma.masked_invalid(np.log10(_positive(energy))),
        cmap=heat(),
        shading="nearest",
    )
    due = np.array([(a, y) for y, a in enumerate(trace.arrival) if a < steps])
    for colour, linewidth in ((INK, 2.6), ("white", 1.1)):  # a dark rim, to be seen on the bright cells too
        axes.scatter(due[:, 0], due[:, 1], s=16, facecolor="none", edgecolor=colour, linewidth=linewidth, label="due")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    _rows(axes, trace.nodes)
    style.label_axis(axes, "x", "inference step")
    scale = style.panel(sheet, replace(box, left=width - 0.8, right=0.64))
    sheet.colorbar(cells, cax=scale)
    style.dress(scale)
    scale.grid(False)
    scale.spines["bottom"].set_visible(False)
    scale.yaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    style.label_axis(scale, "y", "log₁₀ energy")
    return sheet


def save(figure: Figure, path: Path) -> tuple[Path, Path]:
    """Write ``path`` as .svg and as .png, each whole or not at all. Returns both paths.

    Letters in the SVG are shapes, so that it looks the same on a computer without our font. It has no background;
    the PNG is on white.
    """
    stem = path.name.removesuffix(".svg").removesuffix(".png")
    svg, png = path.with_name(f"{stem}.svg"), path.with_name(f"{stem}.png")
    write_whole(svg, as_svg(figure))
    image = BytesIO()
    figure.savefig(image, format="png", dpi=PNG_DPI, facecolor="white")
    write_whole(png, image.getvalue())
    return svg, png


def as_svg(figure: Figure) -> bytes:
    drawing = BytesIO()
    figure.savefig(drawing, format="svg", facecolor="none", metadata={"Date": None})
    return drawing.getvalue()


_HOLLOW: dict[str, Any] = {
    "linestyle": "none",
    "marker": "v",
    "markersize": 6,
    "markerfacecolor": "none",
    "markeredgewidth": 1.2,
    "clip_on": False,
}


def _stroke(x: FloatArray, linewidth: float) -> dict[str, Any]:
    """A line; a single epoch is a dot, which a line would not show."""
    return {"linewidth": linewidth, "solid_capstyle": "round", "marker": "o" if len(x) == 1 else "", "markersize": 5}


def _positive(values: FloatArray) -> FloatArray:
    """nan where a logarithm has no answer."""
    return np.where(values > 0, values, np.nan)


def _floor(values: FloatArray) -> tuple[float, float]:
    """The lower end of a logarithmic axis (an exponent), and the value at which to mark what is exactly 0.

    At least two decades, so that an even spread looks even.
    """
    positive = values[values > 0]
    lowest = math.log10(positive.min()) if positive.size else -2.0
    low = min(-2.0, math.floor(lowest - 0.05))
    if not (values == 0).any():
        return low, math.nan
    low -= max(1.0, 0.06 * -low)
    return low, 10.0 ** (low * 0.985)


def _cycle(n: int) -> list[str]:
    return [style.hue(i) for i in range(n)]


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """One row for each name, from below."""
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_yticks(range(len(names)), [style.plain(name) for name in names], parse_math=False)
    axes.grid(False, axis="y")


def _learning_rate(axes: Axes, x: FloatArray, y: FloatArray) -> None:
    """From 0 to its peak, and no more ticks than these two."""
    axes.plot(x, y, color=GREY, label="lr_w", **_stroke(x, 1.2))
    peak = float(np.nanmax(y)) if np.isfinite(y).any() else 0.0
    if peak > 0:
        axes.set_ylim(0, 1.1 * peak)
        axes.set_yticks([0, peak], ["0", f"{peak:.2g}"])
    else:
        axes.set_yticks([])
    axes.set_title("learning rate of the weights", size=SMALL, color=GREY, family=style.FONT, loc="left", pad=4)


def _name_curves(axes: Axes, x: FloatArray, known: Mapping[str, FloatArray]) -> None:
    """Each curve's name and last value at its end."""
    low, high = axes.get_ylim()
    gap = 12.5 / (2.48 * style.POINTS) * (high - low)
    ends = [(len(y) - 1 - int(np.argmax(np.isfinite(y[::-1]))), y) for y in known.values()]
    places = style.apart([float(y[i]) for i, y in ends], gap, low, high)
    for (key, y), (i, _), place, colour in zip(known.items(), ends, places, style.HUES, strict=False):
        words = f"{key.removesuffix('_accuracy')} {100 * y[i]:.1f}%"
        style.write(axes, words, float(x.max()), place, dx=8, color=colour, weight="bold")


def _depths(nodes: Sequence[str]) -> dict[str, tuple[float, ...]]:
    return dict(zip(nodes, style.by_depth(len(nodes)), strict=True))


def _room_for_names(nodes: Sequence[str], width: float, margins: Margins) -> float:
    """As a share of the axes."""
    names = 0.28 + 0.075 * max(len(style.plain(v)) for v in nodes)
    return min(0.45, names / (width - margins.left - margins.right))


def _cosines(axes: Axes, table: ByNode, height: float, colours: Mapping[str, Any]) -> None:
    """From 0, or from where the lowest is, to 1."""
    lowest = float(np.nanmin(table.values))
    axes.set_ylim(min(0.0, math.floor(10 * lowest) / 10) - 0.02, 1.04)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    _node_lines(axes, table, height, colours)
    style.label_axis(axes, "y", "cosine with backprop")


def _node_lines(axes: Axes, table: ByNode, height: float, colours: Mapping[str, Any]) -> None:
    """A line for each node, its name at the end. ``height`` of the axes in inches."""
    ends = []
    for v, y in zip(table.nodes, table.values.T, strict=True):
        colour = colours.get(v, GREY)
        axes.plot(table.epochs, y, color=colour, label=v, **_stroke(table.epochs, 1.8))
        known = np.flatnonzero(np.isfinite(y))
        if known.size:
            ends.append((v, colour, float(table.epochs[known[-1]]), float(y[known[-1]])))
    _name_ends(axes, _thinned(ends, height), height)


def _thinned(ends: Sequence[tuple[str, Any, float, float]], height: float) -> list[tuple[str, Any, float, float]]:
    """As many as fit, every so many from the output, so that it keeps its name."""
    fits = max(2, int(height * style.POINTS / (SMALL * 1.2)) - 1)
    return list(ends)[::-1][:: max(1, math.ceil(len(ends) / fits))]


def _name_nodes(axes: Axes, table: ByNode, floor: float, height: float) -> None:
    """Each node's name at the end of its line (of very many, every so many); those without energy together."""
    ends, unreached = [], []
    for v, colour, y in zip(table.nodes, style.by_depth(len(table.nodes)), table.values.T, strict=True):
        known = np.flatnonzero(np.isfinite(y))
        if known.size and y[known[-1]] == 0:
            unreached.append((v, colour, float(table.epochs[known[-1]]), floor))
        elif known.size:
            ends.append((v, colour, float(table.epochs[known[-1]]), float(y[known[-1]])))
    ends = _thinned(ends, height)
    if unreached:
        (first, colour, x, y), last = unreached[0], unreached[-1][0]
        ends.append((first if first == last else f"{first}…{last}", colour, x, y))
    _name_ends(axes, ends, height)


def _name_ends(axes: Axes, ends: Sequence[tuple[str, Any, float, float]], height: float) -> None:
    """Names beside the last points (x, y) of lines in axes of ``height`` inches, kept apart."""
    logarithmic = axes.get_yscale() == "log"
    ends = [end for end in ends if end[-1] > 0 or not logarithmic]  # not those whose value is unknown
    scale: Callable[[float], float] = math.log10 if logarithmic else float
    low, high = (scale(limit) for limit in axes.get_ylim())
    gap = SMALL * 1.2 / (height * style.POINTS) * (high - low)
    places = style.apart([scale(y) for *_, y in ends], gap, low, high)
    for (name, colour, x, y), place in zip(ends, places, strict=True):
        shift = (place - scale(y)) / (high - low) * height * style.POINTS
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "alpha": 0.6, "shrinkA": 0, "shrinkB": 3}
        leader["relpos"] = (0, 0.5)  # to the beginning of the name, not across it
        style.write(axes, name, x, y, dx=14, dy=float(shift), color=colour, arrowprops=leader)


def _name_depths(axes: Axes, tables: Mapping[str, ByNode]) -> None:
    """Below, the names of the nodes if all runs share one network, else only its two ends."""
    networks = {table.nodes for table in tables.values()}
    nodes = next(iter(networks))[::-1]
    if len(networks) > 1 or len(nodes) == 1:
        axes.set_xticks([0, 1], ["output", "input"])
        return
    every = math.ceil(sum(len(style.plain(v)) + 2 for v in nodes) / 60)
    places = np.linspace(0, 1, len(nodes))
    axes.set_xticks(places[::every], [style.plain(v) for v in nodes[::every]], parse_math=False)
    style.label_axis(axes, "x", "node, from output to input")


def _first_and_last(table: ByNode) -> str:
    first, last = (f"{epoch:g}" for epoch in table.epochs[[0, -1]])
    return f"epoch {last}" if first == last else f"hollow: epoch {first}; filled: epoch {last}"


def _faint_accuracy(axes: Axes, metrics: Metrics) -> None:
    """Accuracy behind the energy, on an axis of its own at the right."""
    right = axes.twinx()
    style.dress(right)
    right.grid(False)
    right.spines["bottom"].set_visible(False)
    axes.set_zorder(right.get_zorder() + 1)
    x = epochs(metrics)
    for key, dashes in (("train_accuracy", ":"), ("validation_accuracy", "-"), ("test_accuracy", "--")):
        if np.isfinite(y := series(metrics, key)).any():
            right.plot(x, y, color=PALE, linewidth=1.3, linestyle=dashes, label=key)
    right.set_ylim(0, 1)
    style.percent(right, "y")
    right.tick_params(labelcolor=GREY)


def _seeds(axes: Axes, values: FloatArray, y: float, colour: str) -> None:
    """Every seed a dot; above them the mean, with a bar of one sample standard deviation to each side."""
    if not values.size:
        style.write(axes, "no result", 0.5, y, color=GREY, xycoords=axes.get_yaxis_transform())
        return
    axes.scatter(values, np.full(len(values), y - 0.14), s=26, color=colour, alpha=0.55, linewidth=0, label="seeds")
    mean = float(values.mean())
    spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    axes.plot([mean - spread, mean + spread], [y + 0.12] * 2, color=colour, linewidth=3, label="std")
    axes.plot(
        [mean], [y + 0.12], color=INK, marker="|", markersize=11, markeredgewidth=1.8, linestyle="none", label="mean"
    )


def _unit(rows: Sequence[Mapping[str, Any]]) -> tuple[str, float]:
    """The unit of time that the longest run wants, and its seconds."""
    longest = max((float(numbers(row.get("seconds")).max(initial=0.0)) for row in rows), default=0.0)
    return next((unit for unit in (("hours", 3600.0), ("minutes", 60.0)) if longest >= 2 * unit[1]), ("seconds", 1.0))


def heat() -> ListedColormap:
    """inferno without its black and white ends: neither is to be taken for the paper or for the ink."""
    return ListedColormap(matplotlib.colormaps["inferno"](np.linspace(0.08, 0.96, 256)))
