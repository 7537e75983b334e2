"""Pictures of a hyper-parameter search: plain data in, a matplotlib ``Figure`` out, in the style of :mod:`plots`.

``trials`` is a list of one record per trial: ``number``, ``state`` (complete, pruned, failed), ``value`` (accuracy, a
fraction, or None), ``params`` by name and ``epochs`` (accuracy by epoch). ``scales`` says for each parameter whether it
was drawn on a logarithmic scale (``log``) or from ``choices``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from deeppc.diagnostics.energy import FloatArray
from deeppc.report import style
from deeppc.report.style import GREY, INK, PALE, SMALL, WIDE, Margins

__all__ = ["Scale", "history", "importances", "learning", "parallel", "slices"]

Trials = Sequence[Mapping[str, Any]]
NOTHING = "No trial has ended with an accuracy yet."
BLUE, ORANGE, GREEN = style.HUES[:3]


@dataclass(frozen=True)
class Scale:
    """How a parameter was drawn: from ``choices`` in this order, or as a number, evenly or by its logarithm."""

    log: bool = False
    choices: tuple[Any, ...] = ()

    def place(self, value: Any) -> float:
        """Where a value lies on its axis: the number itself, or the place of the choice."""
        return float(self.choices.index(value)) if self.choices else float(value)


def history(trials: Trials, *, width: float = WIDE) -> Figure:
    """The accuracy of each trial in the order they were drawn, with the best so far as a line."""
    note = "filled: complete; hollow: pruned, at the accuracy it had; cross: diverged; line: best so far"
    sheet = style.figure(
        width, 3.9, "The search, trial by trial", note if width >= WIDE else "hollow: pruned; ×: diverged"
    )
    complete, pruned = _of(trials, "complete"), _of(trials, "pruned")
    if not complete + pruned:
        return style.nothing_to_show(sheet, NOTHING)
    axes = style.panel(sheet, Margins(right=0.45))
    for some, fill, label in ((complete, BLUE, "complete"), (pruned, "none", "pruned")):
        x, y = [t["number"] for t in some], [t["value"] for t in some]
        axes.scatter(x, y, s=26, facecolor=fill, edgecolor=BLUE, linewidth=1.1, label=label, zorder=3)
    failed = [t["number"] for t in trials if t["state"] == "failed"]
    floor = min(t["value"] for t in complete + pruned)
    axes.scatter(failed, [floor] * len(failed), s=30, marker="x", color=ORANGE, linewidth=1.3, label="failed")
    if complete:
        best = np.maximum.accumulate([t["value"] for t in complete])
        numbers = [t["number"] for t in complete]
        end = max(t["number"] for t in trials)
        axes.step([*numbers, end], [*best, best[-1]], where="post", color=GREEN, linewidth=1.8, label="best")
        style.write(axes, f"{100 * best[-1]:.1f}%", end, best[-1], dx=5, color=GREEN, weight="bold")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    style.percent(axes, "y")
    style.label_axis(axes, "x", "trial")
    return sheet


def learning(trials: Trials, *, width: float = WIDE) -> Figure:
    """The accuracy of every trial by epoch: where the pruned ones were left, and how the best one went."""
    sheet = style.figure(width, 3.9, "Accuracy by epoch", "green: the best; blue: complete; grey: pruned")
    known = [t for t in trials if t["epochs"] and t["state"] in ("complete", "pruned")]
    if not known:
        return style.nothing_to_show(sheet, NOTHING)
    axes = style.panel(sheet, Margins(right=0.45))
    best = max(_of(trials, "complete"), key=lambda t: t["value"], default=None)
    for t in known:
        look = (GREEN, 2.2, 4) if t is best else (BLUE, 0.9, 3) if t["state"] == "complete" else (PALE, 0.9, 2)
        x, y = [int(e) for e in t["epochs"]], list(t["epochs"].values())
        marker = "o" if len(x) == 1 else ""
        axes.plot(x, y, color=look[0], linewidth=look[1], zorder=look[2], marker=marker, markersize=3, label=t["state"])
    style.whole_epochs(axes, [int(e) for t in known for e in t["epochs"]])
    style.percent(axes, "y")
    return sheet


def slices(trials: Trials, scales: Mapping[str, Scale], *, width: float = WIDE) -> Figure:
    """Accuracy against each parameter alone, a panel for each; later trials are darker, the best is green."""
    known = [t for t in _of(trials, "complete", "pruned") if t["params"]]
    names = [name for name in scales if any(name in t["params"] for t in known)]
    across = 4 if width >= WIDE else 2
    down = math.ceil(len(names) / across)
    height = 0.85 + 1.75 * max(1, down)
    sheet = style.figure(width, height, "Accuracy by setting", "dark: later trials; hollow: pruned; green: the best")
    if not names:
        return style.nothing_to_show(sheet, NOTHING)
    inner = (width - 0.6) / across
    for i, name in enumerate(names):
        row, column = divmod(i, across)
        left, top = 0.52 + column * inner, 0.85 + row * 1.75
        box = Margins(left=left, right=width - left - inner + 0.28, top=top, bottom=height - top - 1.2)
        axes = style.panel(sheet, box)
        _slice(axes, known, name, scales[name])
        if column:
            axes.tick_params(labelleft=False)
    return sheet


def parallel(trials: Trials, scales: Mapping[str, Scale], *, width: float = WIDE) -> Figure:
    """Every complete trial as a line through its settings, coloured by its accuracy: the good ones lie on top."""
    known = sorted(_of(trials, "complete"), key=lambda t: t["value"])
    names = [name for name in scales if known and all(name in t["params"] for t in known)]
    short = width < WIDE
    sheet = style.figure(width, 4.2, "Settings and accuracy together", "a line for each complete trial; dark: accurate")
    if len(known) < 2 or not names:
        return style.nothing_to_show(sheet, "Fewer than two trials are complete.")
    axes = style.panel(sheet, Margins(left=0.5, right=0.6, bottom=0.85 if short else 0.45))
    columns = [_unit(np.array([scales[n].place(t["params"][n]) for t in known]), scales[n]) for n in names]
    values = np.array([t["value"] for t in known])
    columns.append(_unit(values, Scale()))
    shades = matplotlib.colormaps["viridis_r"](0.05 + 0.9 * columns[-1])
    lines = [np.column_stack([np.arange(len(columns)), row]) for row in np.column_stack(columns)]
    axes.add_collection(LineCollection(lines, colors=shades, linewidths=1.2, alpha=0.8))
    axes.set_xlim(-0.1, len(columns) - 0.9)
    axes.set_ylim(-0.04, 1.04)
    axes.set_yticks([])
    axes.grid(True, axis="x", color=PALE, linewidth=1)
    axes.set_xticks(range(len(columns)), [*names, "accuracy"], parse_math=False, rotation=35 if short else 0)
    axes.tick_params(axis="x", labelsize=SMALL - (1 if short else 0))
    for i, name in enumerate([*names, ""]):
        raw = [t["params"][name] if name else t["value"] for t in known]
        _name_ends(axes, i, raw, scales[name] if name else Scale(), percent=not name)
    return sheet


def importances(rows: Mapping[str, Mapping[str, float]], *, width: float = WIDE) -> Figure:
    """Per cent by setting: ``rows`` are fANOVA (bars) and, if known, PED-ANOVA and the paper's (marks)."""
    bars = rows.get("fANOVA", {})
    names = sorted(bars, key=lambda name: bars[name])
    note = "bars: fANOVA; ring: PED-ANOVA" + ("; diamond: the paper's fANOVA" if rows.get("paper") else "")
    sheet = style.figure(width, 1.5 + 0.3 * max(4, len(names)), "Importance of each setting", note)
    if not names:
        return style.nothing_to_show(sheet, "Too few trials to tell.")
    axes = style.panel(sheet, Margins(left=0.42 + 0.085 * max(len(style.plain(n)) for n in names), right=0.4))
    y = np.arange(len(names))
    axes.barh(y, [bars[n] for n in names], height=0.62, color=BLUE, alpha=0.75, label="fANOVA")
    for key, marker, colour, fill in (("PED-ANOVA", "o", ORANGE, "none"), ("paper", "D", INK, INK)):
        points = [(rows[key][n], i) for i, n in enumerate(names) if n in rows.get(key, {})]
        if points:
            x, at = zip(*points, strict=True)
            axes.scatter(
                x, at, s=34, marker=marker, facecolor=fill, edgecolor=colour, linewidth=1.4, label=key, zorder=3
            )
    axes.set_xlim(0, max(5.0, 1.05 * max(max(row.values(), default=0.0) for row in rows.values())))
    axes.set_yticks(y, [style.plain(n) for n in names], parse_math=False)
    axes.grid(False, axis="y")
    style.label_axis(axes, "x", "%")
    return sheet


def _of(trials: Trials, *states: str) -> list[Mapping[str, Any]]:
    return [t for t in trials if t["state"] in states and t["value"] is not None]


def _slice(axes: Axes, known: Trials, name: str, scale: Scale) -> None:
    own = [t for t in known if name in t["params"]]
    x = np.array([scale.place(t["params"][name]) for t in own])
    y = np.array([t["value"] for t in own])
    age = np.array([t["number"] for t in own], dtype=float)
    shades = matplotlib.colormaps["Blues"](0.35 + 0.65 * age / max(1.0, age.max()))
    hollow = np.array([t["state"] == "pruned" for t in own])
    faces = shades.copy()
    faces[hollow] = (0, 0, 0, 0)
    axes.scatter(x, y, s=16, facecolor=faces, edgecolor=shades, linewidth=0.9, label=name)
    if (~hollow).any():
        best = int(np.argmax(np.where(hollow, -np.inf, y)))
        axes.scatter(x[best], y[best], s=34, color=GREEN, zorder=3, label="best")
    if scale.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(base=10, numticks=4))
        axes.xaxis.set_minor_locator(NullLocator())
    elif scale.choices:
        turned = sum(len(str(c)) for c in scale.choices) > 16
        words = [style.plain(c, 10) for c in scale.choices]
        axes.set_xticks(range(len(words)), words, parse_math=False, rotation=30 if turned else 0)
        axes.set_xlim(-0.5, len(words) - 0.5)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(nbins=4))
    style.percent(axes, "y")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.tick_params(labelsize=SMALL - 1, pad=3)
    axes.set_title(style.plain(name), size=SMALL, color=GREY, family=style.FONT, loc="left", pad=4, parse_math=False)


def _unit(values: FloatArray, scale: Scale) -> FloatArray:
    """From 0, the lowest, to 1, the highest."""
    places = np.log10(values) if scale.log else values
    low, high = places.min(), places.max()
    return np.full(len(places), 0.5) if low == high else (places - low) / (high - low)


def _name_ends(axes: Axes, at: int, raw: Sequence[Any], scale: Scale, *, percent: bool) -> None:
    """The lowest and the highest value beside the axis; of choices, each one."""
    places = _unit(np.array([scale.place(v) for v in raw]), scale)
    for value, place in {(str(v), round(float(p), 6)): (v, p) for v, p in zip(raw, places, strict=True)}.values():
        if scale.choices or place in (0.0, 1.0):
            words = f"{100 * value:.1f}%" if percent else f"{value:.2g}" if isinstance(value, float) else str(value)
            style.write(axes, words, at, float(place), dx=3, dy=5 if place < 1 else -6, color=INK, size=SMALL - 1.5)
