"""``search.html``: what a search did and found, in one page that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from deeppc.report import page, plots, study_plots
from deeppc.report.files import write_whole
from deeppc.report.page import Html, element
from deeppc.report.study_plots import Scale
from deeppc.report.style import NARROW
from deeppc.search import importance as importances
from deeppc.search.display import duration, settings
from deeppc.search.importance import Importance
from deeppc.search.plan import PAGE, Plan
from deeppc.search.records import Progress, Trial, progress_of
from deeppc.training.config import to_table

PICTURES = "pictures"
LONGEST = 300  # trials in the table; the storage has them all


def write(plan: Plan, trials: Sequence[Trial], found: Importance) -> Path:
    """Draw the pictures of a search and its page, whose path is returned."""
    folder = plan.folder / PICTURES
    folder.mkdir(exist_ok=True)
    c, progress = plan.config, progress_of(plan, trials)
    title = f"Search: {c.algorithm} on {c.model}, {c.dataset}"
    records: list[dict[str, Any]] = [t.table() for t in trials if t.state != "lost"]
    scales = {d.name: Scale(d.log, d.choices) for d in plan.space.dimensions}
    content = [
        element("p", "deeppc search", class_="eyebrow"),
        element("h1", title),
        *_verdict(plan, progress),
        page.cards(_headline(progress)),
        element("h2", "Progress"),
        _picture(folder, "history", lambda **size: study_plots.history(records, **size), _HISTORY),
        _picture(folder, "learning", lambda **size: study_plots.learning(records, **size), _LEARNING),
        element("h2", "Settings"),
        _picture(folder, "slices", lambda **size: study_plots.slices(records, scales, **size), _SLICES),
        _picture(folder, "parallel", lambda **size: study_plots.parallel(records, scales, **size), _PARALLEL),
        element("h2", "Importance"),
        *_importance(folder, found),
        element("h2", "Trials"),
        _trials(trials, progress.best),
        page.side_by_side(_space(plan), _config(plan)),
    ]
    path = plan.folder / PAGE
    write_whole(path, page.document(f"{title} · deeppc", *content))
    return path


_HISTORY = "Best selection accuracy of each trial."
_LEARNING = "Selection accuracy by epoch."
_SLICES = "Each setting alone. Where the points do not rise or fall, it matters little."
_PARALLEL = "All settings of the complete trials. Axes run from the lowest value drawn to the highest."
_IMPORTANCE = "Per cent of the variance that each setting explains by itself (fANOVA)."


def _verdict(plan: Plan, progress: Progress) -> list[Html]:
    found = []
    if progress.settled < progress.wanted:
        words = f"Unfinished: {progress.settled} of {progress.wanted} trials are settled."
        found.append(page.notice(words, "warn"))
    if plan.config.select == "test":
        words = "Trials were judged on the test set, as in the paper: the best accuracy is that of the luckiest trial."
        found.append(page.notice(words, "warn"))
    else:
        found.append(page.notice("Trials were judged on held-out images; the test set had no part in it.", "good"))
    return found


def _headline(progress: Progress) -> dict[str, str]:
    best, counts = progress.best, progress.counts
    shown = {} if best is None else {f"best accuracy, trial {best.number}": f"{100 * (best.value or 0.0):.2f}%"}
    return shown | {
        "complete": str(counts["complete"]),
        "pruned": str(counts["pruned"]),
        "diverged": str(counts["failed"]),
    }


def _importance(folder: Path, found: Importance) -> list[Html]:
    head, lines = importances.rows([found])
    named = {"fANOVA": found.fanova, "PED-ANOVA": found.ped_anova, "paper": _by_setting(found)}
    return [
        *([page.notice(found.warning, "warn")] if found.warning else []),
        _picture(folder, "importance", lambda **size: study_plots.importances(named, **size), _IMPORTANCE),
        page.table(head, lines),
    ]


def _by_setting(found: Importance) -> dict[str, float]:
    """The paper's column ``alpha/k`` under the name of the one that this algorithm has."""
    merged = next((name for name in ("alpha", "k") if name in found.fanova), "alpha")
    return {merged if name == "alpha/k" else name: share for name, share in (found.paper or {}).items()}


def _trials(trials: Sequence[Trial], best: Trial | None) -> Html:
    """The best first."""
    order = sorted(trials, key=lambda t: (t.state != "complete", -(t.value or 0.0), t.number))[:LONGEST]
    rows = [
        (
            t.number,
            t.state,
            "–" if t.value is None else f"{100 * t.value:.2f}",
            len(t.epochs),
            "–" if t.seconds is None else duration(t.seconds),
            t.reason or settings(t.params),
        )
        for t in order
    ]
    chosen = next((i for i, t in enumerate(order) if best is not None and t.number == best.number), None)
    return page.table(("trial", "state", "accuracy, %", "epochs", "time", "settings"), rows, chosen)


def _space(plan: Plan) -> Html:
    return element("div", element("h2", "Space"), page.facts(plan.space.table().items()))


def _config(plan: Plan) -> Html:
    searched = plan.space.table()
    rest = {name: value for name, value in to_table(plan.config).items() if name not in searched}
    return element("div", element("h2", "Not searched"), page.facts(page.flat({**rest, "pruner": plan.pruner})))


def _picture(folder: Path, stem: str, draw: Callable[..., Figure], caption: str) -> Html:
    svg, _ = plots.save(draw(), folder / stem)
    narrow = plots.as_svg(draw(width=NARROW))
    return page.picture(svg.read_bytes(), narrow, f"{folder.name}/{stem}", caption, caption)
