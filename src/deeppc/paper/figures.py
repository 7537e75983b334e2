"""The figures of the recipes: tables and records in, a matplotlib ``Figure`` out, in the style of :mod:`deeppc.report`.

Ours and the paper's stand in one picture, ours filled, the paper's hollow. The paper's nets are wider and trained for
longer, so what is to be compared is the order and the slope, not the height.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from deeppc.diagnostics.energy import FloatArray
from deeppc.paper.matrix import Entry, Matrix
from deeppc.report import plots, records
from deeppc.report.plots import GREY, PALE, hue, positive
from deeppc.report.records import Metrics
from deeppc.report.tables import number

NOTHING_YET = "No run has finished yet."
HOLLOW: dict[str, Any] = {"marker": "D", "markerfacecolor": "none", "markersize": 5, "linestyle": "none"}
MARKS = ("o", "^", "s")
LEAST = 10.0  # points of accuracy that an axis spans: what is less shall look so
STROKES = ("-", (0, (4, 2)), ":")


@plots.styled()
def dots(matrix: Matrix, *, title: str, by: str = "column") -> Figure:
    """Draw a row for each entry of a table, grouped by column (or row): every seed, mean, deviation, the paper's."""
    groups, members = (matrix.columns, matrix.rows) if by == "column" else (matrix.rows, matrix.columns)
    entries = {
        (group, member): matrix.entry(*((member, group) if by == "column" else (group, member)))
        for group in groups
        for member in members
    }
    shown = {place: e for place, e in entries.items() if e.values or e.paper or e.diverged}
    if not shown:
        return plots.sheet(title, empty=NOTHING_YET)
    there = list(dict.fromkeys(group for group, _ in shown))
    note = "filled: ours, mean ± deviation, a dot for each seed"
    note += "; hollow: the paper" if any(e.paper for e in shown.values()) else ""
    figure = plots.sheet(title, note, height=1.4 + 0.2 * len(shown) + 0.3 * len(there))
    axes = figure.subplots()
    names: list[str] = []  # from the top
    for group in there:
        axes.text(0.005, -len(names), group, weight="bold", va="center", transform=axes.get_yaxis_transform())
        names.append("")
        for member in (m for g, m in shown if g == group):
            _entry(axes, shown[group, member], -len(names), hue(members.index(member)))
            names.append(member)
    axes.set_ylim(0.6 - len(names), 0.6)
    axes.set_yticks([-i for i in range(len(names))], names, size=plots.SMALL)
    axes.grid(False, axis="y")
    axes.set_xlabel("test accuracy, %")
    return figure


def _entry(axes: Axes, entry: Entry, y: float, colour: str) -> None:
    if entry.paper is not None:
        axes.plot([entry.paper[0]], [y], color=colour, label="paper", **HOLLOW)
    if entry.mean is None:
        if entry.diverged:
            plots.write(axes, "diverged", 0.01, y, xycoords=axes.get_yaxis_transform(), color=GREY)
        return
    spread = entry.deviation or 0.0
    axes.plot([entry.mean - spread, entry.mean + spread], [y, y], color=colour, linewidth=2.2, alpha=0.5)
    axes.scatter(entry.values, [y] * len(entry.values), s=10, color=colour, alpha=0.5, linewidth=0)
    axes.plot([entry.mean], [y], marker="o", color=colour, markersize=5.5, label="ours")


@plots.styled()
def slopes(matrix: Matrix, kinds: Mapping[str, Sequence[str]], *, title: str) -> Figure:
    """Draw accuracy by depth, a line for each row: ours in one panel, the paper's in the other, each on its own scale.

    ``kinds``: for each kind of line the columns from shallow to deep. The first kind is drawn whole, others dashed.
    """
    note = "; ".join(f"{'whole' if i == 0 else 'dashed'}: {kind}" for i, kind in enumerate(kinds))
    figure = plots.sheet(title, note, height=4.6)
    panels = plots.panels(figure, 2, 2)
    nets = next(iter(kinds.values()))
    for axes, words, value in zip(panels, ("ours", "the paper"), (_ours, _papers), strict=True):
        ends = []
        for i, row in enumerate(matrix.rows):
            for (kind, columns), stroke in zip(kinds.items(), STROKES, strict=False):
                y = np.array([value(matrix.entry(row, column)) for column in columns])
                if np.isfinite(y).any():
                    axes.plot(range(len(y)), y, color=hue(i), linestyle=stroke, marker="o")
                if kind == next(iter(kinds)) and len(y) and np.isfinite(y[-1]):
                    ends.append((row, hue(i), float(len(y) - 1), float(y[-1])))
        axes.set_title(words)
        axes.set_xticks(range(len(nets)), nets)
        axes.set_xlim(-0.15, max(len(nets) - 0.85, 0.15))
        if not ends:
            axes.text(0.5, 0.5, "no numbers", color=GREY, ha="center", transform=axes.transAxes)
        plots.label_ends(axes, ends)
    panels[0].set_ylabel("test accuracy, %")
    return figure


@plots.styled()
def by_levels(matrix: Matrix, levels: Mapping[str, int], mark: tuple[int, str], *, title: str) -> Figure:
    """Draw accuracy by depth, a line for each row over the columns that ``levels`` has, on a scale by logarithms.

    ``mark``: a depth, and the words that stand beside the line drawn there.
    """
    found = {
        row: [(levels[c], e) for c in levels if (row, c) in matrix.entries and (e := matrix.entry(row, c)).values]
        for row in matrix.rows
    }
    if not any(found.values()):
        return plots.sheet(title, empty=NOTHING_YET)
    figure = plots.sheet(title, "mean of seeds, and deviation where there are several")
    axes = figure.subplots()
    ends = []
    for i, (row, line) in enumerate(found.items()):
        if line:
            x, y = [depth for depth, _ in line], [_ours(entry) for _, entry in line]
            spread = [math.nan if entry.deviation is None else entry.deviation for _, entry in line]
            axes.errorbar(x, y, spread, color=hue(i), marker="o", capsize=3, linewidth=1.6)
            ends.append((row, hue(i), float(x[-1]), y[-1]))
    axes.set_xscale("log")
    axes.set_xticks(list(levels.values()), [str(depth) for depth in levels.values()])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("levels")
    axes.set_ylabel("test accuracy, %")
    low, high = axes.get_ylim()
    air = max(0.0, (LEAST - (high - low)) / 2)
    axes.set_ylim(low - air, high + air)
    axes.axvline(mark[0], color=GREY, linewidth=1.2, linestyle="--", zorder=1)
    plots.write(axes, mark[1], mark[0], 0.04, dx=5, xycoords=axes.get_xaxis_transform(), color=GREY)
    plots.label_ends(axes, ends)
    return figure


@plots.styled()
def energies(runs: Mapping[str, Metrics]) -> Figure:
    """Draw the paper's energy figure: for each algorithm the accuracies, and below each node's share over the epochs.

    ``runs``: the metrics by algorithm.
    """
    if not runs:
        return plots.sheet("Share of the energy by node", empty=NOTHING_YET)
    note, rows = "blue: near the input; orange: near the output", math.ceil(len(runs) / 4)
    across = math.ceil(len(runs) / rows)
    note += "; above, in grey, accuracy: train dotted, validation solid, test dashed"
    figure = plots.sheet("Share of the energy by node", note, height=1.1 + 2.7 * rows)
    shares = {name: records.energy_shares(metrics) for name, metrics in runs.items()}
    reached = np.concatenate([table.values[table.values > 0] for table in shares.values()])
    low = min(-2.0, math.floor(math.log10(reached.min())) if reached.size else -2.0)
    panels = figure.subplots(2 * rows, across, squeeze=False, sharey="row", height_ratios=(1, 2) * rows)
    for unused in panels[-2:, across - (-len(runs) % across) :].flat:
        unused.remove()
    for above, axes, (name, metrics) in zip(panels[::2].flat, panels[1::2].flat, runs.items(), strict=False):
        cosines = [c for c in last_cosines(metrics).values() if math.isfinite(c)]
        above.set_title(f"{name}: cosine ≥ {min(cosines):.2f}" if cosines else name)
        plots.score_lines(above, metrics, plots.GREYED)
        plots.log_axis(axes, "y", low, 0.3, ticks=5)
        table = shares[name]
        for colour, y in zip(plots.by_depth(len(table.nodes)), table.values.T, strict=True):
            axes.plot(table.epochs, positive(y), color=colour, linewidth=1.3, **plots.dot(table.epochs))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
        axes.tick_params(labelsize=plots.SMALL)
        above.tick_params(labelsize=plots.SMALL, labelbottom=False)
        above.sharex(axes)
        axes.set_xlabel("epoch")
    for above, axes in zip(panels[::2, 0], panels[1::2, 0], strict=True):
        above.set_ylabel("accuracy")
        axes.set_ylabel("share of energy")
    return figure


def last_cosines(metrics: Metrics) -> dict[str, float]:
    """Return the cosine of each node's update with backprop's at the last epoch; empty if it is unknown."""
    found = records.mapping(metrics[-1].get("bp_cosine")) if metrics else {}
    return {node: number(cosine) for node, cosine in found.items()}


@plots.styled()
def against(tables: Mapping[str, Matrix], x: str, y: str) -> Figure:
    """Draw one column of tables against another: a panel for each table, a mark for each row, ``x`` by logarithms."""
    title = f"{y.partition(',')[0].capitalize()} against {x}"
    known = {name: table for name, table in tables.items() if any(_marks(table, x, y))}
    if not known:
        return plots.sheet(title, empty=NOTHING_YET)
    figure = plots.sheet(title, f"{x} of a training step, backprop's is 1; mean of seeds, and deviation", height=4.6)
    names = list(dict.fromkeys(row for table in known.values() for row in table.rows))
    looks: dict[str, Any] = {
        name: {"color": hue(i), "marker": MARKS[i // len(plots.HUES) % len(MARKS)]} for i, name in enumerate(names)
    }
    shown: dict[str, Any] = {}
    panels = plots.panels(figure, len(known), 3)
    for axes, (name, table) in zip(panels, known.items(), strict=True):
        axes.set_title(name)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(x)
        for row, cost, mean, deviation in _marks(table, x, y):
            shown[row] = axes.errorbar([cost], [mean], deviation, linestyle="none", **looks[row])
    panels[0].set_ylabel(y)
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=6, fontsize=plots.SMALL, frameon=False)
    return figure


def _marks(table: Matrix, x: str, y: str) -> Iterator[tuple[str, float, float, float | None]]:
    """The rows that have both numbers: their means, and the deviation of the second."""
    for row in table.rows:
        cost, score = table.entry(row, x), table.entry(row, y)
        if cost.mean and score.mean is not None:
            yield row, cost.mean, score.mean, score.deviation


@plots.styled()
def by_work(nets: Mapping[str, Mapping[str, tuple[FloatArray, FloatArray]]], *, title: str) -> Figure:
    """Draw accuracy (percent) by the work spent (epochs of backprop): a panel for each network, a line for each row."""
    if not nets:
        return plots.sheet(title, empty=NOTHING_YET)
    note = "a mark for each epoch; work: counted multiply-adds, by logarithms"
    across = 2 if len(nets) <= 4 else 3
    figure = plots.sheet(title, note, height=1.4 + 3.0 * math.ceil(len(nets) / across))
    panels = plots.panels(figure, len(nets), across, sharey=True)
    rows = list(dict.fromkeys(row for lines in nets.values() for row in lines))
    for axes, (net, lines) in zip(panels, nets.items(), strict=True):
        axes.set_title(net)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("work, epochs of backprop")
        for row, (x, y) in lines.items():
            axes.plot(x, y, color=hue(rows.index(row)), marker="o", markersize=3)
        axes.set_xlim(right=1.5 * max(float(x[-1]) for x, _ in lines.values()))  # names stand there
    panels[0].set_ylabel("held-out accuracy, %")
    for axes, lines in zip(panels, nets.values(), strict=True):  # when all of them have their limits
        ends = [(row, hue(rows.index(row)), float(x[-1]), float(y[-1])) for row, (x, y) in lines.items()]
        plots.label_ends(axes, ends)
    return figure


@plots.styled()
def by_layer(values: Mapping[str, Mapping[str, float]], title: str, note: str) -> Figure:
    """Draw a number for each node, a line for each algorithm, from the output to the input."""
    known = {name: numbers for name, numbers in values.items() if numbers}
    if not known:
        return plots.sheet(title, note, empty=NOTHING_YET)
    figure = plots.sheet(title, note)
    axes = figure.subplots()
    ends = []
    for i, (name, numbers) in enumerate(known.items()):
        y = np.array(list(numbers.values()))[::-1]
        x = plots.depths(len(y))
        axes.plot(x, y, color=hue(i), linestyle="-" if i < len(plots.HUES) else "--", marker="o", linewidth=1.6)
        if (finite := np.flatnonzero(np.isfinite(y))).size:
            ends.append((name, hue(i), float(x[finite[-1]]), float(y[finite[-1]])))
    axes.axhline(0, color=PALE, linewidth=0.9)
    plots.name_depths(axes, [list(numbers) for numbers in known.values()])
    plots.label_ends(axes, ends)
    return figure


@plots.styled()
def waves(traces: Mapping[str, FloatArray]) -> Figure:
    """Draw energy by node and inference step of one batch, a panel for each algorithm, all on one logarithmic scale.

    ``traces``: energies (nodes, steps), the output last.
    """
    values = [energy[energy > 0] for energy in traces.values() if (energy > 0).any()]
    if not values:
        return plots.sheet("The wave of energy", empty=NOTHING_YET)
    note = "one batch; bottom: input, top: output; grey: no energy yet"
    figure = plots.sheet("The wave of energy", note, height=1.2 + 2.0 * math.ceil(len(traces) / 4))
    lowest, highest = (f(np.log10(np.concatenate(values))) for f in (np.min, np.max))
    panels = plots.panels(figure, len(traces), 4)
    for axes, (name, energy) in zip(panels, traces.items(), strict=True):
        axes.set_title(name)
        axes.grid(False)
        axes.set_facecolor(plots.GRID)
        cells = plots.wave(axes, energy, vmin=lowest, vmax=highest)
        axes.set_yticks([])
        axes.tick_params(labelsize=plots.SMALL)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    panels[-1].set_xlabel("inference step")
    plots.heat_scale(figure, cells, panels)
    return figure


@plots.styled()
def gaps(tables: Mapping[str, Matrix]) -> Figure:
    """Draw the gap ratio by layer, a panel for each training, a line for each epoch; the paper's last epoch hollow."""
    if not any(entry.values for table in tables.values() for entry in table.entries.values()):
        return plots.sheet("Gap ratio by layer", empty=NOTHING_YET)
    note = "a line for each epoch, the last one darkest; hollow: the paper"
    figure = plots.sheet("Gap ratio by layer", note, height=3.9)
    panels = plots.panels(figure, len(tables), len(tables), sharey=True)
    for axes, (name, table) in zip(panels, tables.items(), strict=True):
        axes.set_title(name)
        axes.set_yscale("log")
        layers = [column for column in table.columns if column.startswith("L")]
        for i, row in enumerate(table.rows):
            y = positive(np.array([_ours(table.entry(row, layer)) for layer in layers]))
            shade = 0.25 + 0.75 * (i + 1) / len(table.rows)
            axes.plot(range(len(layers)), y, color=plots.HUES[0], alpha=shade, marker="o", markersize=3)
        paper = positive(np.array([_papers(table.entry(table.rows[-1], layer)) for layer in layers]))
        axes.plot(range(len(layers)), paper, color=plots.HUES[1], **HOLLOW)
        axes.set_xticks(range(len(layers)), [layer[1:] for layer in layers], size=plots.SMALL)
    panels[0].set_ylabel("gap ratio")
    panels[-1].set_xlabel("layer")
    return figure


@plots.styled()
def corruptions(values: Mapping[str, Mapping[str, Mapping[float, float]]], *, title: str, words: str) -> Figure:
    """Draw a panel for each kind of corruption, a line for each network: ``values[kind][network][level]``."""
    names = list(dict.fromkeys(name for lines in values.values() for name in lines))
    if not names:
        return plots.sheet(title, empty=NOTHING_YET)
    figure = plots.sheet(title, height=1.2 + 1.8 * math.ceil(len(values) / 3))
    panels = plots.panels(figure, len(values), 3, sharex=True, sharey=True)
    for axes, (kind, lines) in zip(panels, values.items(), strict=True):
        axes.set_title(kind.replace("_", " "))
        for name, points in lines.items():
            axes.plot([*points], [*points.values()], color=hue(names.index(name)), marker="o", markersize=3, label=name)
        axes.tick_params(labelsize=plots.SMALL)
    panels[0].legend(fontsize=plots.SMALL, frameon=False)
    panels[0].set_ylabel(words)
    panels[-1].set_xlabel("level")
    return figure


def _ours(entry: Entry) -> float:
    return math.nan if entry.mean is None else entry.mean


def _papers(entry: Entry) -> float:
    return math.nan if entry.paper is None else entry.paper[0]
