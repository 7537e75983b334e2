"""``search.html``: what a search did and found, in one page that needs no network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from deeppc.report import pages, plots
from deeppc.report.tables import Table, duration, plain
from deeppc.search.importance import Importance, as_table
from deeppc.search.plan import PAGE, Plan
from deeppc.search.space import Dimension
from deeppc.search.trials import Progress, Trial, best_of, score, settings
from deeppc.training.config import to_table

LONGEST = 300  # trials in the table; the storage has them all
NOTHING = "No trial has ended with a score yet."
BLUE, ORANGE, GREEN = plots.HUES[:3]
Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]


def write(plan: Plan, trials: Sequence[Trial], found: Importance) -> Path:
    """Draw the pictures of a search and its page, whose path is returned."""
    known = [t for t in trials if t.state in ("complete", "pruned") and t.value is not None]
    space = plan.space.table()
    rest = {name: value for name, value in to_table(plan.config).items() if name not in space}
    pictures = {
        "history": (history(trials, known), "Best selection score of each trial."),
        "learning": (learning(known), "Selection score by epoch."),
        "slices": (slices(known, plan.space.dimensions), _SLICES),
        "parallel": (parallel(known, plan.space.dimensions), _PARALLEL),
        "importance": (importances(found), "Per cent of the variance that each setting explains by itself (fANOVA)."),
    }
    drawn = {name: pages.picture(f, plan.folder, f"pictures/{name}", words) for name, (f, words) in pictures.items()}
    c, progress = plan.config, Progress(plan, trials)
    return pages.write(
        plan.folder / PAGE,
        "sections.html",
        title=f"Search: {c.algorithm} on {c.model}, {c.dataset}",
        eyebrow="deeppc search",
        notes=_verdict(progress),
        numbers=_headline(progress),
        sections=[
            ("Progress", [drawn["history"], drawn["learning"]]),
            ("Settings", [drawn["slices"], drawn["parallel"]]),
            ("Importance", [drawn["importance"], as_table([found])]),
            ("Trials", [_trials(trials)]),
            ("Space", [space]),
            ("Not searched", [{**rest, "pruner": plan.pruner}]),
        ],
    )


_SLICES = "Each setting alone. Where the points do not rise or fall, it matters little."
_PARALLEL = "All settings of the complete trials. Axes run from the lowest value drawn to the highest."


def _verdict(progress: Progress) -> list[pages.Notice]:
    notes = []
    if progress.ended < progress.plan.trials:
        notes.append((f"Unfinished: {progress.ended} of {progress.plan.trials} trials have ended.", "warn"))
    if progress.plan.config.select == "test":
        words = "Trials were judged on the test set, as in the paper: the best score is that of the luckiest trial."
        return [*notes, (words, "warn")]
    return [*notes, ("Trials were judged on held-out images; the test set had no part in it.", "good")]


def _headline(progress: Progress) -> dict[str, str]:
    best, counts = progress.best, {"complete": "complete", "pruned": "pruned", "diverged": "failed"}
    shown = {} if best is None else {f"best score, trial {best.number}": score(best.value)}
    return shown | {name: str(progress.count(state)) for name, state in counts.items()}


def _trials(trials: Sequence[Trial]) -> Table:
    """The best first."""
    order = sorted(trials, key=lambda t: (t.state != "complete", -(t.value or 0.0), t.number))[:LONGEST]
    rows = [
        [t.number, t.state, score(t.value), len(t.epochs), duration(t.seconds), t.reason or settings(t.params)]
        for t in order
    ]
    chosen = 0 if order and order[0].state == "complete" else None
    return Table(["trial", "state", "score", "epochs", "time", "settings"], rows, chosen=chosen)


# --- pictures ------------------------------------------------------------------------------------------------------


@plots.styled()
def history(trials: Sequence[Trial], known: Sequence[Trial]) -> Figure:
    """Draw the score of each trial in the order they were drawn, with the best so far as a line."""
    note = "filled: complete; hollow: pruned, at the score it had; cross: diverged; line: best so far"
    figure = plots.sheet("The search, trial by trial", note, empty="" if known else NOTHING)
    if not known:
        return figure
    axes = figure.subplots()
    faces = [BLUE if t.state == "complete" else "none" for t in known]
    axes.scatter([t.number for t in known], _scores(known), s=26, facecolor=faces, edgecolor=BLUE, zorder=3)
    failed = [t.number for t in trials if t.state == "failed"]
    axes.scatter(failed, [min(_scores(known))] * len(failed), s=30, marker="x", color=ORANGE)
    complete = [t for t in known if t.state == "complete"]
    if complete:
        best, last = np.maximum.accumulate(_scores(complete)), max(t.number for t in trials)
        axes.step([*(t.number for t in complete), last], [*best, best[-1]], where="post", color=GREEN)
        plots.label_ends(axes, [(score(best[-1]), GREEN, last, best[-1])])
    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
    axes.set_xlabel("trial")
    _score_axis(axes, known)
    return figure


@plots.styled()
def learning(known: Sequence[Trial]) -> Figure:
    """Draw the score of every trial by epoch: where the pruned ones were left, and how the best one went."""
    known = [t for t in known if t.epochs]
    note = "green: the best; blue: complete; grey: pruned"
    figure = plots.sheet("Score by epoch", note, empty="" if known else NOTHING)
    if not known:
        return figure
    axes, best = figure.subplots(), best_of(known)
    for t in known:
        colour, width = (GREEN, 2.2) if t is best else (BLUE, 0.9) if t.state == "complete" else (plots.PALE, 0.9)
        axes.plot(list(t.epochs), list(t.epochs.values()), color=colour, linewidth=width, marker=".", zorder=2 + width)
    plots.epoch_axis(axes, [e for t in known for e in t.epochs])
    _score_axis(axes, known)
    return figure


@plots.styled()
def slices(known: Sequence[Trial], dimensions: Sequence[Dimension]) -> Figure:
    """Draw the score against each setting alone, a panel for each; later trials are darker, the best is green."""
    drawn = [d for d in dimensions if any(d.name in t.params for t in known)]
    note, height = "dark: later trials; hollow: pruned; green: the best", 0.9 + 1.9 * max(1, math.ceil(len(drawn) / 4))
    figure = plots.sheet("Score by setting", note, height=height, empty="" if drawn else NOTHING)
    best, blues = best_of(known), matplotlib.colormaps["Blues"]
    for axes, d in zip(plots.panels(figure, len(drawn), 4, sharey=True) if drawn else [], drawn, strict=True):
        own = [t for t in known if d.name in t.params]
        shades = [GREEN if t is best else blues(0.35 + 0.65 * t.number / max(1, known[-1].number)) for t in own]
        faces = ["none" if t.state == "pruned" else shade for t, shade in zip(own, shades, strict=True)]
        axes.scatter([_place(d, t) for t in own], _scores(own), s=16, facecolor=faces, edgecolor=shades)
        axes.set_title(plain(d.name), size=plots.SMALL, parse_math=False)
        if d.log:
            plots.log_axis(axes, "x", ticks=4)
        elif d.choices:
            axes.set_xticks(range(len(d.choices)), [plain(c, 10) for c in d.choices], rotation=30, parse_math=False)
        _score_axis(axes, known)
    return figure


@plots.styled()
def parallel(known: Sequence[Trial], dimensions: Sequence[Dimension]) -> Figure:
    """Draw every complete trial as a line through its settings, coloured by its score: the good ones lie on top."""
    complete = sorted((t for t in known if t.state == "complete"), key=lambda t: t.value or 0.0)
    drawn = [d for d in dimensions if all(d.name in t.params for t in complete)]
    why = "" if len(complete) > 1 and drawn else "Fewer than two trials are complete."
    figure = plots.sheet("Settings and score together", "a line for each complete trial; dark: good", empty=why)
    if why:
        return figure
    axes, shades = figure.subplots(), matplotlib.colormaps["viridis_r"]
    columns = [np.array([_place(d, t) for t in complete]) for d in drawn] + [np.array(_scores(complete))]
    heights = [_unit(np.log10(c) if i < len(drawn) and drawn[i].log else c) for i, c in enumerate(columns)]
    for line in np.column_stack(heights):
        axes.plot(range(len(heights)), line, color=shades(0.05 + 0.9 * line[-1]), linewidth=1.2, alpha=0.8)
    for i, (column, height) in enumerate(zip(columns, heights, strict=True)):
        names = [*(drawn[i].choices if i < len(drawn) else ())]
        for value, place in dict(zip(column, height, strict=True)).items():
            if names or place in (0, 1):
                words = names[int(value)] if names else score(value) if i == len(drawn) else f"{value:.2g}"
                plots.write(axes, str(words), i, place, dx=3, dy=5 if place < 1 else -6)
    axes.set_xticks(range(len(heights)), [*(plain(d.name) for d in drawn), "score"], parse_math=False)
    axes.set_yticks([])
    return figure


@plots.styled()
def importances(found: Importance) -> Figure:
    """Draw the per cent by setting: fANOVA as bars, PED-ANOVA and the paper's, if known, as marks."""
    names = sorted(found.fanova, key=lambda name: found.fanova[name])
    own = next((name for name in ("alpha", "k") if name in names), "alpha")  # which the paper's alpha/k is here
    paper = {own if name == "alpha/k" else name: share for name, share in (found.paper or {}).items()}
    note = "bars: fANOVA; ring: PED-ANOVA" + ("; diamond: the paper's fANOVA" if paper else "")
    empty = "" if names else "Too few trials to tell."
    figure = plots.sheet("Importance of each setting", note, height=1.6 + 0.3 * max(4, len(names)), empty=empty)
    if not names:
        return figure
    axes = figure.subplots()
    axes.barh(range(len(names)), [found.fanova[n] for n in names], height=0.62, color=BLUE, alpha=0.75)
    for shares, marker, face, edge in ((found.ped_anova, "o", "none", ORANGE), (paper, "D", plots.INK, plots.INK)):
        at = [i for i, name in enumerate(names) if name in shares]
        x = [shares[names[i]] for i in at]
        axes.scatter(x, at, s=34, marker=marker, facecolor=face, edgecolor=edge, zorder=3)
    axes.set_xlim(left=0)
    axes.set_xlabel("%")
    plots.rows(axes, names)
    return figure


def _scores(trials: Sequence[Trial]) -> list[float]:
    return [t.value or 0.0 for t in trials]


def _score_axis(axes: Axes, known: Sequence[Trial]) -> None:
    if min(_scores(known)) >= 0:  # accuracies; an error is a number
        plots.percent_axis(axes, "y", ticks=4)


def _place(dimension: Dimension, trial: Trial) -> float:
    """Where a value lies on its axis: the number itself, or the place of the choice."""
    value = trial.params[dimension.name]
    return float(dimension.choices.index(value)) if dimension.choices else float(value)  # type: ignore[arg-type]


def _unit(values: Numbers) -> Numbers:
    """From 0, the lowest, to 1, the highest."""
    low, high = values.min(), values.max()
    return np.full(len(values), 0.5) if low == high else (values - low) / (high - low)
