"""Pictures of runs, batches and comparisons: plain data in, a matplotlib ``Figure`` out; and the tools to draw them.

In plain predictive coding the early layers hold many orders of magnitude less energy than the late ones, and spiking
precision lifts them. So energy is drawn as a *share* on a logarithmic axis, nodes are coloured from the cool input to
the hot output, and what no energy reached is marked as such instead of being dropped.

One style sheet, ``deeppc.mplstyle``, holds for all pictures and is in force only while one is drawn (:func:`styled`):
the settings of the program around it are neither read nor changed. No pyplot, so no display is needed.
"""

from __future__ import annotations

import io
import math
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from deeppc.diagnostics.calibration import Reliability
from deeppc.diagnostics.energy import EnergyTrace, FloatArray
from deeppc.files import write_bytes, write_text
from deeppc.report import records
from deeppc.report.records import ByNode, Metrics, epochs, numbers, series
from deeppc.report.tables import SUPERSCRIPTS, plain

SHEET = Path(__file__).with_name("deeppc.mplstyle")
WIDTH = 8.0  # inches
INK, GREY, PALE, GRID = "#212529", "#6c757d", "#adb5bd", "#e9ecef"
HUES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#b58900", "#7a5195", "#495057")  # as in the sheet
SMALL, TITLE = 8.0, 12.0  # points
DASHED = (0, (3, 3))
NOT_REACHED = "not reached"
NO_ENERGY = "No energy has been recorded yet."
NO_DIAGNOSTICS = "Nothing on record: train with --diagnostics."
COLOURED = {
    "train": {"color": HUES[0], "linewidth": 1.0},
    "validation": {"color": HUES[1], "linewidth": 2.0},
    "test": {"color": HUES[2], "linewidth": 2.0},
}
GREYED = {  # above lines that are coloured by node
    "train": {"color": GREY, "linewidth": 1.3, "linestyle": ":"},
    "validation": {"color": GREY, "linewidth": 1.3},
    "test": {"color": GREY, "linewidth": 1.3, "linestyle": "--"},
}
End = tuple[str, Any, float, float]  # of a line: its name, colour, x and y
_LOCK = threading.RLock()


# --- tools, also for the pictures of other packages ------------------------------------------------------------------


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of ``deeppc.mplstyle``. A context, and a decorator of functions that draw."""
    with _LOCK, matplotlib.rc_context(fname=SHEET), warnings.catch_warnings():  # settings belong to all threads
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it, as in any program
        yield


@styled()
def sheet(title: str, note: str = "", *, height: float = 4.4, empty: str = "") -> Figure:
    """Return a figure with a title, a grey line that says how to read it, and constrained layout below both.

    ``empty`` says why there is nothing to show, in the middle of the sheet.
    """
    figure = Figure(figsize=(WIDTH, height))
    figure.text(0.015, 1 - 0.12 / height, plain(title, 80), size=TITLE, weight="bold", va="top")
    figure.text(0.015, 1 - 0.39 / height, note, size=SMALL, color=GREY, va="top")
    figure.text(0.5, 0.45, empty, color=GREY, ha="center", va="center")
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0, 0, 1, 1 - (0.7 if note else 0.45) / height), w_pad=0.08, h_pad=0.06)  # type: ignore[call-arg]
    return figure


def panels(figure: Figure, n: int, across: int, **options: Any) -> list[Axes]:
    """Add ``n`` panels in rows of at most ``across``; options as of ``Figure.subplots``."""
    grid = figure.subplots(math.ceil(n / across), min(n, across), squeeze=False, **options)
    for unused in grid.flat[n:]:
        unused.remove()
    return list(grid.flat[:n])


def hue(i: int) -> str:
    """Return the colour of the i-th algorithm or line; after eight they repeat."""
    return HUES[i % len(HUES)]


def by_depth(n: int) -> list[tuple[float, ...]]:
    """Return a colour for each of ``n`` nodes, from the cool input to the hot output, all readable on white."""
    return [tuple(colour) for colour in matplotlib.colormaps["plasma"](np.linspace(0.76, 0.02, n)[::-1])]


def log_axis(axes: Axes, which: str, low: float | None = None, high: float | None = None, ticks: int = 7) -> None:
    """Make the axis ``x`` or ``y`` logarithmic, from ``10**low`` to ``10**high`` if given, without minor ticks."""
    axes.set(**{f"{which}scale": "log"})
    if low is not None and high is not None:
        axes.set(**{f"{which}lim": (10.0**low, 10.0**high)})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(base=10, numticks=ticks))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"10{f'{math.log10(x):.3g}'.translate(SUPERSCRIPTS)}"))
    axis.set_minor_locator(NullLocator())


def percent_axis(axes: Axes, which: str, ticks: int = 6) -> None:
    """Write the fractions of an axis as per cent."""
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(MaxNLocator(nbins=ticks, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.4g}%"))


def epoch_axis(axes: Axes, numbers: Sequence[float] | FloatArray) -> None:
    """Number the epochs below, in whole numbers."""
    first, last = float(min(numbers)), float(max(numbers))
    air = 0.5 if first == last else 0.02 * (last - first)
    axes.set_xlim(first - air, last + air)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.set_xlabel("epoch")


def rows(axes: Axes, names: Sequence[str]) -> None:
    """Name one row at each whole number, from below."""
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_yticks(range(len(names)), [plain(name) for name in names])
    axes.grid(False, axis="y")


def write(axes: Axes, words: str, x: float, y: float, *, dx: float = 0.0, dy: float = 0.0, **options: Any) -> None:
    """Write words at a place in the data, moved by points. Names are written as they are, never read as formulas."""
    given: dict[str, Any] = {"size": SMALL, "va": "center", "annotation_clip": False, "parse_math": False}
    axes.annotate(plain(words), (x, y), (dx, dy), textcoords="offset points", **(given | options))


def label_ends(axes: Axes, ends: Sequence[End]) -> None:
    """Write a name beside the end of each line, given as (name, colour, x, y), in order and kept apart.

    Call it when all else is drawn: it reads the size of the axes, on any scale. Of more names than fit every so many
    is written, counted from the last.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    if (engine := figure.get_layout_engine()) is not None:
        engine.execute(figure)
    point = figure.dpi / 72  # pixels
    gap, box = 1.2 * SMALL * point, axes.get_window_extent()
    with np.errstate(all="ignore"):
        places = [float(axes.transData.transform((x, y))[1]) for *_, x, y in ends]
    known = [(end, place) for end, place in zip(ends, places, strict=True) if math.isfinite(place)]
    known = known[::-1][:: max(1, math.ceil(len(known) / max(2, int(box.height / gap))))]
    free = apart([place for _, place in known], gap, box.y0, box.y1)
    for ((name, colour, x, y), place), new in zip(known, free, strict=True):
        leader = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "alpha": 0.6, "shrinkA": 0, "shrinkB": 3}
        leader["relpos"] = (0, 0.5)  # to the beginning of the name, not across it
        write(axes, name, x, y, dx=12, dy=(new - place) / point, color=colour, arrowprops=leader)


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places near ``wanted``, at least ``gap`` apart and within bounds, the farthest moved as little as can be.

    With ``k * gap`` taken off the k-th from below they only have to rise, and halfway between the highest before and
    the lowest after is the nearest sequence that does.
    """
    order, steps = np.argsort(wanted, kind="stable"), gap * np.arange(len(wanted))
    packed = np.asarray(wanted)[order] - steps
    highest, lowest = np.maximum.accumulate(packed), np.minimum.accumulate(packed[::-1])[::-1]
    places = np.empty(len(wanted))
    places[order] = np.clip((highest + lowest) / 2, low, max(low, high - gap * (len(wanted) - 1))) + steps
    return places.tolist()


def svg(figure: Figure) -> str:
    """Return the figure as an SVG document without a background, its letters as shapes."""
    drawing = io.StringIO()
    with styled():
        figure.savefig(drawing, format="svg", facecolor="none", metadata={"Date": None})
    return drawing.getvalue()


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write ``<stem>.svg`` and ``<stem>.png`` (on white), each whole or not at all. Returns both paths."""
    vector, pixels = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    write_text(vector, svg(figure))
    figure.set_layout_engine("none")  # it has been laid out, which takes most of the time
    drawing = io.BytesIO()
    with styled():
        figure.savefig(drawing, format="png", dpi=160, facecolor="white")
    write_bytes(pixels, drawing.getbuffer())
    return vector, pixels


# --- a run -----------------------------------------------------------------------------------------------------------


@styled()
def curves(metrics: Metrics, selected: float = math.nan) -> Figure:
    """Draw the score by epoch (train, validation and test, as far as known), and the learning rate below.

    ``selected`` marks the epoch whose weights were kept.
    """
    score = records.score_name(metrics)
    title, known = f"{score.capitalize() if score == 'accuracy' else score} by epoch", records.scores(metrics)
    if not known:
        return sheet(title, empty="No epoch has finished yet.")
    figure, x = sheet(title, height=4.6), epochs(metrics)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    ends = score_lines(upper, metrics, COLOURED)
    lower.plot(x, series(metrics, "lr_w"), color=GREY, label="lr_w", linewidth=1.2, **dot(x))
    lower.set(title="learning rate of the weights", ylim=(0, None))
    lower.locator_params(axis="y", nbins=2)
    epoch_axis(lower, x)
    if selected in x:
        for axes in (upper, lower):
            axes.axvline(selected, color=PALE, linewidth=1, linestyle=DASHED, zorder=0)
        write(upper, "kept", selected, upper.get_ylim()[0], dx=4, dy=7, color=GREY)
    label_ends(upper, ends)
    return figure


@styled()
def energy_shares(metrics: Metrics) -> Figure:
    """Draw each node's share of the energy over the epochs, and above it the scores: the paper's energy figure.

    Where a node got no energy its line has a gap, and a hollow triangle stands on the floor of the axes. If the run
    recorded its diagnostics, a panel below has the cosine of each node's update with backprop's.
    """
    table, cosine = records.energy_shares(metrics), records.cosines(metrics)
    title = "Share of the energy by node"
    if not table.nodes:
        return sheet(title, empty=NO_ENERGY)
    note = "blue: near the input; orange: near the output"
    note += f"; ▽ {NOT_REACHED}" if (table.values == 0).any() else ""
    tall = 3.8 + 0.09 * max(0, min(len(table.nodes), 40) - 14)
    heights = {"score": 1.2} if records.scores(metrics) else {}
    heights |= {"share": tall} | ({"cosine": 2.2} if cosine.nodes else {})
    figure = sheet(title, note, height=0.7 + sum(heights.values()))
    grid = panels(figure, len(heights), 1, sharex=True, height_ratios=list(heights.values()))
    shown = dict(zip(heights, grid, strict=True))
    low, floor = _floor(table.values)
    log_axis(shown["share"], "y", low, 0.15)
    shown["share"].set_ylabel("share of energy")
    if "cosine" in shown:
        shown["cosine"].set_ylim(min(0.0, math.floor(10 * float(np.nanmin(cosine.values))) / 10) - 0.02, 1.04)
        shown["cosine"].set_ylabel("cosine with\nbackprop")
    if "score" in shown:
        shown["score"].set_ylabel(records.score_name(metrics))
        ends = score_lines(shown["score"], metrics, GREYED)
    epoch_axis(grid[-1], epochs(metrics))
    figure.align_ylabels(grid)
    if "cosine" in shown:
        _lines_by_node(shown["cosine"], cosine, table.nodes)
    _lines_by_node(shown["share"], table, table.nodes, floor)
    if "score" in shown:
        label_ends(shown["score"], ends)
    return figure


@styled()
def gaps(metrics: Metrics) -> Figure:
    """Draw the gap ratio of each node over the epochs; 0 and inf are breaks in the line."""
    table, title = records.gap_ratios(metrics), "Gap ratio by node"
    if not table.nodes:
        return sheet(title, empty=NO_DIAGNOSTICS)
    figure = sheet(title, "drift of the activity for the energy that weights learn from")
    axes = figure.subplots()
    low, high = (math.log10(end(table.values)) for end in (np.nanmin, np.nanmax))
    log_axis(axes, "y", math.floor(low - 0.05), max(math.ceil(high + 0.05), math.floor(low) + 2))
    axes.set_ylabel("gap ratio")
    epoch_axis(axes, table.epochs)
    _lines_by_node(axes, table, table.nodes)
    return figure


# --- a comparison ----------------------------------------------------------------------------------------------------


@styled()
def profiles(runs: Mapping[str, Metrics]) -> Figure:
    """Draw the last epoch's share by node, a line for each of the runs, from the output, where energy enters, on.

    On the dashed line all nodes would hold the same.
    """
    tables = {name: table for name, metrics in runs.items() if (table := records.energy_shares(metrics)).nodes}
    title = "Share of the energy by depth"
    if not tables:
        return sheet(title, empty=NO_ENERGY)
    figure = sheet(title, "energy enters at the output and fades on its way; dashed: an equal share")
    axes = figure.subplots()
    low, floor = _floor(np.concatenate([table.values[-1] for table in tables.values()]))
    log_axis(axes, "y", low, 0.15)
    ends = []
    for i, (name, table) in enumerate(tables.items()):
        x, y = depths(len(table.nodes)), table.values[-1][::-1]
        axes.axhline(1 / len(x), color=PALE, linewidth=1, linestyle=DASHED, label="equal", zorder=1)
        axes.plot(x, positive(y), color=hue(i), label=name, marker="o")
        _mark_unreached(axes, x[y == 0], floor, hue(i))
        ends.append((name, hue(i), float(x[-1]), float(y[-1]) or floor))
    name_depths(axes, [table.nodes for table in tables.values()])
    axes.set_ylabel("share of energy")
    label_ends(axes, ends)
    return figure


def depths(n: int) -> FloatArray:
    """Return the places of ``n`` nodes from the output at 0 to the input at 1."""
    return np.linspace(0.0, 1.0, n)


def name_depths(axes: Axes, networks: Sequence[Sequence[str]]) -> None:
    """Name the nodes at :func:`depths` if all lines share one network (given input first), else only its two ends."""
    axes.set_xlim(-0.03, 1.03)
    nodes = list(networks[0])[::-1]
    if len({tuple(network) for network in networks}) > 1 or len(nodes) == 1:
        axes.set_xticks([0, 1], ["output", "input"])
        return
    every = math.ceil(sum(len(plain(v)) + 2 for v in nodes) / 70)
    axes.set_xticks(depths(len(nodes))[::every], [plain(v) for v in nodes[::every]])
    axes.set_xlabel("node, from output to input")


@styled()
def comparison(found: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the test score by algorithm, every seed a dot, with mean and sample deviation; beside it the time.

    ``found`` are the rows of ``comparison.json``.
    """
    score = records.score_name(found)
    title = f"{score.capitalize() if score == 'accuracy' else score} and time by algorithm"
    if not found:
        return sheet(title, empty="No run has finished yet.")
    figure = sheet(title, "a dot for each seed; mean and std of seeds", height=1.5 + 0.42 * len(found))
    scores, time = figure.subplots(1, 2, sharey=True, width_ratios=(2, 1))
    longest = max(float(numbers(row.get("seconds")).max(initial=0.0)) for row in found)
    unit, seconds = next((u for u in (("hours", 3600.0), ("minutes", 60.0)) if longest >= 2 * u[1]), ("seconds", 1.0))
    for i, row in enumerate(found):
        _seeds(scores, numbers(row.get(f"test_{score}")), len(found) - 1 - i, hue(i))
        _seeds(time, numbers(row.get("seconds")) / seconds, len(found) - 1 - i, hue(i))
    scores.margins(x=0.08)
    if score == "accuracy":
        percent_axis(scores, "x")
        _limit(scores, max(0.0, scores.get_xlim()[0]), min(1.005, scores.get_xlim()[1]))
    _limit(time, 0, max(1.08 * longest / seconds, time.get_xlim()[1]))
    time.xaxis.set_major_locator(MaxNLocator(nbins=4))
    for axes, words in ((time, f"{unit} per run"), (scores, f"test {score}")):
        rows(axes, [str(row.get("algorithm", "?")) for row in found][::-1])
        axes.set_xlabel(words)
    return figure


def _limit(axes: Axes, low: float, high: float) -> None:
    """Show ``low`` to ``high``, unless what a file holds leaves nothing between them (negative seconds, say)."""
    if low < high:
        axes.set_xlim(low, high)


# --- a batch, a network ----------------------------------------------------------------------------------------------


@styled()
def heat_map(trace: EnergyTrace) -> Figure:
    """Draw the energy of one batch by node and inference step: the wave from the output (top) to the input.

    Hatched cells have no energy yet. A ring stands where the wave along the main path is due; energy before it took a
    short cut.
    """
    energy, n, title = trace.energy, len(trace.nodes), "The wave of energy through one batch"
    if not energy.size:
        return sheet(title, empty="No inference step was observed (backprop has none).")
    height = 1.45 + max((0.28 if n <= 20 else 0.18) * n, 1.4)
    figure = sheet(title, "hatched: no energy yet; ring: where the wave is due", height=height)
    axes = figure.subplots()
    axes.grid(False)
    axes.patch.set(facecolor="#f8f9fa", edgecolor="#ced4da", hatch="////", linewidth=0)
    cells = wave(axes, energy)
    due = np.array([(step, y) for y, step in enumerate(trace.arrival) if step < energy.shape[1]])
    for colour, linewidth in ((INK, 2.6), ("white", 1.1)):  # a dark rim, to be seen on the bright cells too
        axes.scatter(due[:, 0], due[:, 1], s=16, facecolor="none", edgecolor=colour, linewidth=linewidth, label="due")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    rows(axes, trace.nodes)
    axes.set(xlabel="inference step", ylim=(-0.5, n - 0.5))
    heat_scale(figure, cells, [axes])
    return figure


def wave(axes: Axes, energy: FloatArray, **options: Any) -> Any:
    """Draw energies (nodes, steps) as a map of their logarithms, blank where there is none; for :func:`heat_scale`."""
    shown = np.ma.masked_invalid(np.log10(positive(energy)))
    steps, nodes = np.arange(energy.shape[1]), np.arange(energy.shape[0])
    inferno = matplotlib.colormaps["inferno"](np.linspace(0.08, 0.96, 256))  # its ends look like ink and paper
    return axes.pcolormesh(steps, nodes, shown, cmap=ListedColormap(inferno), shading="nearest", **options)


def heat_scale(figure: Figure, cells: Any, beside: Sequence[Axes]) -> None:
    """Draw the colour scale of :func:`wave` at the right of the panels."""
    bar = figure.colorbar(cells, ax=list(beside), fraction=0.03, pad=0.02, label="log₁₀ energy")
    bar.outline.set_visible(False)
    bar.locator = MaxNLocator(nbins=7, integer=True)


@styled()
def reliability(tables: Mapping[str, Reliability]) -> Figure:
    """Draw accuracy by confidence, a line for each network; on the dashed diagonal it is as often right as sure."""
    title = "Is it as often right as it is sure?"
    if not tables:
        return sheet(title, empty="Nothing has been measured.")
    figure = sheet(title, "a dot for each bin; below the diagonal: too sure of itself", height=4.6)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=DASHED, label="calibrated", zorder=1)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy")
    ends = []
    for i, (name, table) in enumerate(tables.items()):
        axes.plot(table.confidence, table.accuracy, color=hue(i), label=name, linewidth=1.4, marker="o")
        ends.append((name, hue(i), float(table.confidence[-1]), float(table.accuracy[-1])))
    percent_axis(axes, "x")
    percent_axis(axes, "y")
    label_ends(axes, ends)
    return figure


# --- their parts -----------------------------------------------------------------------------------------------------


def dot(x: FloatArray) -> dict[str, Any]:
    """A single epoch is a dot, which a line would not show."""
    return {"marker": "o" if len(x) == 1 else ""}


def positive(values: FloatArray) -> FloatArray:
    """nan where a logarithm has no answer."""
    return np.where(values > 0, values, np.nan)


def _floor(values: FloatArray) -> tuple[float, float]:
    """The lower end of a logarithmic axis (an exponent), and the value at which to mark what is exactly 0.

    At least two decades, so that an even spread looks even.
    """
    low = min(-2.0, math.floor(math.log10(values[values > 0].min(initial=1.0)) - 0.05))
    if not (values == 0).any():
        return low, math.nan
    low -= max(1.0, 0.06 * -low)
    return low, 10.0 ** (low * 0.985)


def _lines_by_node(axes: Axes, table: ByNode, network: Sequence[str], floor: float = math.nan) -> None:
    """Draw and name a line for each node, coloured by its place in the network. On a floor, values of 0 stand on it.

    Nodes whose lines end on the floor share one name, from the first to the last of them.
    """
    colours = dict(zip(network, by_depth(len(network)), strict=True))
    ends: list[End] = []
    unreached: list[str] = []
    for v, y in zip(table.nodes, table.values.T, strict=True):
        colour, zero = colours.get(v, GREY), (y == 0) & math.isfinite(floor)
        axes.plot(table.epochs, np.where(zero, np.nan, y), color=colour, label=v, **dot(table.epochs))
        _mark_unreached(axes, table.epochs[zero], floor, colour)
        last = max(np.flatnonzero(np.isfinite(y)), default=None)
        if last is not None and zero[last]:
            unreached.append(v)
        elif last is not None:
            ends.append((v, colour, float(table.epochs[last]), float(y[last])))
    if unreached:
        name = "…".join(dict.fromkeys((unreached[0], unreached[-1])))
        ends.insert(0, (name, colours[unreached[0]], float(table.epochs[-1]), floor))
    label_ends(axes, ends)


def _mark_unreached(axes: Axes, x: FloatArray, floor: float, colour: Any) -> None:
    """Hollow triangles on the floor. Not without any: the layout would make room for a mark at the origin."""
    if x.size:
        look: dict[str, Any] = {"markersize": 6, "markerfacecolor": "none", "markeredgewidth": 1.2, "clip_on": False}
        axes.plot(x, np.full(x.size, floor), "v", color=colour, label=NOT_REACHED, **look)


def score_lines(axes: Axes, metrics: Metrics, looks: Mapping[str, Mapping[str, Any]]) -> list[End]:
    """Draw the score of each split that is known, and return the ends of the lines, for :func:`label_ends`."""
    ends, x, accuracy = [], epochs(metrics), records.score_name(metrics) == "accuracy"
    for split, y in records.scores(metrics).items():
        axes.plot(x, y, label=split, **looks[split], **dot(x))
        last = float(y[np.isfinite(y)][-1])
        value = f"{100 * last:.1f}%" if accuracy else f"{last:.3g}"
        ends.append((f"{split} {value}", looks[split]["color"], float(x.max()), last))
    if accuracy:
        percent_axis(axes, "y")
    return ends


def _seeds(axes: Axes, values: FloatArray, y: float, colour: str) -> None:
    """Every seed a dot; above them the mean, with a bar of one sample standard deviation to each side."""
    if not values.size:
        write(axes, "no result", 0.5, y, color=GREY, xycoords=axes.get_yaxis_transform())
        return
    axes.scatter(values, np.full(len(values), y - 0.14), s=26, color=colour, alpha=0.55, linewidth=0, label="seeds")
    mean = float(values.mean())
    deviation = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    axes.plot([mean - deviation, mean + deviation], [y + 0.12] * 2, color=colour, linewidth=3, label="std")
    axes.plot([mean], [y + 0.12], "|", color=INK, markersize=11, markeredgewidth=1.8, label="mean")
