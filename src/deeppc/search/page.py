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
BLUE, ORANGE, GREEN = plots.HUES[:3]


def write(plan: Plan, trials: Sequence[Trial], found: Importance) -> Path:
    """Draw the pictures of a search and its page, whose path is returned."""
    known = [t for t in trials if t.state in ("complete", "pruned") and t.value is not None]
    figures: dict[str, tuple[Figure, str]] = {}
    if known:
        figures["history"] = history(trials, known), "Best selection score of each trial."
        figures["learning"] = learning(known), "Selection score by epoch."
        figures["slices"] = slices(known, plan.space.dimensions), "Each setting alone. A flat one matters little."
    if found.fanova:
        figures["importance"] = importances(found), "Per cent of the variance that each setting explains by itself."
    pictures = [pages.picture(f, plan.folder, f"pictures/{name}", words) for name, (f, words) in figures.items()]
    c, progress, space = plan.config, Progress(plan, trials), plan.space.table()
    return pages.write(
        plan.folder / PAGE,
        "sections.html",
        title=f"Search: {c.algorithm} on {c.model}, {c.dataset}",
        eyebrow="deeppc search",
        notes=_notes(progress),
        numbers=_headline(progress),
        sections=[
            *([("Pictures", pictures)] if pictures else []),
            ("Importance", [as_table([found])]),
            ("Trials", [_trials(trials)]),
            ("Space", [space]),
            ("Not searched", [{k: v for k, v in to_table(c).items() if k not in space} | {"pruner": plan.pruner}]),
        ],
    )


def _notes(progress: Progress) -> list[pages.Notice]:
    notes = [("Trials were judged on held-out images; the test set had no part in it.", "good")]
    if progress.plan.config.select == "test":
        words = "Trials were judged on the test set, as in the paper: the best score is that of the luckiest trial."
        notes = [(words, "warn")]
    if progress.ended < progress.plan.trials:
        notes.insert(0, (f"Unfinished: {progress.ended} of {progress.plan.trials} trials have ended.", "warn"))
    return notes


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
    figure = plots.sheet("The search, trial by trial", note)
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
    figure = plots.sheet("Score by epoch", "green: the best; blue: complete; grey: pruned")
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
    note, height = "dark: later trials; hollow: pruned; green: the best", 0.9 + 1.9 * math.ceil(len(drawn) / 4)
    figure = plots.sheet("Score by setting", note, height=height)
    best, blues = best_of(known), matplotlib.colormaps["Blues"]
    for axes, d in zip(plots.panels(figure, len(drawn), 4, sharey=True), drawn, strict=True):
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
def importances(found: Importance) -> Figure:
    """Draw the per cent by setting: fANOVA as bars, PED-ANOVA and the paper's, if known, as marks."""
    names = sorted(found.fanova, key=lambda name: found.fanova[name])
    own = next((name for name in ("alpha", "k") if name in names), "alpha")  # which the paper's alpha/k is here
    paper = {own if name == "alpha/k" else name: share for name, share in (found.paper or {}).items()}
    note = "bars: fANOVA; ring: PED-ANOVA" + ("; diamond: the paper's fANOVA" if paper else "")
    figure = plots.sheet("Importance of each setting", note, height=1.6 + 0.3 * max(4, len(names)))
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
