"""What a search looks like: live in a terminal, a plain line per trial elsewhere, JSON per trial on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deeppc.search.events import Began, Looked, SearchEvent, SearchListener, TrialEnded
from deeppc.search.plan import Plan
from deeppc.search.records import Progress, Trial
from deeppc.search.space import Value
from deeppc.training.display import percent
from deeppc.training.events import Note

BAR = 40  # characters


@contextmanager
def display(as_json: bool, console: Console | None = None) -> Iterator[SearchListener]:
    """The listener that fits where the output goes."""
    if as_json:
        yield json_lines
        return
    console = console or Console(highlight=False)
    if not console.is_terminal:
        yield Lines(console)
        return
    view = LiveView(console)
    try:
        yield view
    finally:
        view.stop()


def json_lines(event: SearchEvent) -> None:
    """On stdout nothing but one object per trial; the result follows when all is done."""
    match event:
        case TrialEnded():
            print(json.dumps({"event": "trial", **event.trial.table()}), flush=True)
        case Note():
            print(event.text, file=sys.stderr)


class Lines:
    """One plain line per trial."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __call__(self, event: SearchEvent) -> None:
        match event:
            case Began():
                self.say(opening(event.plan, event.progress))
            case TrialEnded():
                self.say(line(event.trial, event.progress))
            case Note():
                self.say(event.text, style="bold")

    def say(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)


class LiveView(Lines):
    """Under the lines of the trials that ended: how far it is, the best so far, and what runs."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None

    def __call__(self, event: SearchEvent) -> None:
        super().__call__(event)
        match event:
            case Began():
                self._live = Live(panel(event.progress), console=self.console, transient=True, refresh_per_second=4)
                self._live.start()
            case TrialEnded() | Looked():
                if self._live is not None:
                    self._live.update(panel(event.progress))

    def stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def opening(plan: Plan, progress: Progress) -> str:
    c = plan.config
    images = "all training images" if c.limit is None else f"{c.limit:,} images"
    by = "the test set (the paper's protocol)" if c.select == "test" else "held-out images"
    lines = [
        f"search {plan.folder}: {plan.trials} trials of {c.algorithm} on {c.dataset}, {c.model} at width {c.width:g}, "
        f"{images}, {c.epochs} epochs",
        f"judged by the best epoch on {by}; pruner {plan.pruner}; {plan.jobs} at a time",
        *(f"  {name:<{max(map(len, plan.space.table()))}}  {text}" for name, text in plan.space.table().items()),
        *(f"  {name} is not drawn: it needs {need}" for name, need in plan.space.idle.items()),
    ]
    if progress.settled:
        lines.append(f"going on: {progress.settled} of {plan.trials} trials are settled")
    return "\n".join(lines)


def line(trial: Trial, progress: Progress) -> str:
    top = progress.best
    best = "" if top is None else f"  best {percent(top.value or 0.0)} (trial {top.number})"
    if trial.state in ("failed", "lost"):
        said = f"{'lost, to be replaced' if trial.state == 'lost' else 'failed'}: {trial.reason}"
    else:
        at = f" at epoch {len(trial.epochs)}" if trial.state == "pruned" else ""
        said = f"{percent(trial.value or 0.0):>7}  {trial.state}{at}"
    time = "" if trial.seconds is None else f"  {duration(trial.seconds)}"
    return f"[{progress.settled}/{progress.wanted}] trial {trial.number}  {said}{time}{best}  {settings(trial.params)}"


def panel(progress: Progress) -> RenderableType:
    """What there is to know while it goes."""
    head = Table.grid(padding=(0, 2))
    counts = ", ".join(f"{n} {state}" for state, n in progress.counts.items() if n)
    left = f"about {duration(progress.seconds_left)} left" if progress.seconds_left else ""
    bar = ProgressBar(total=progress.wanted, completed=progress.settled, width=BAR)
    head.add_row(bar, f"{progress.settled} of {progress.wanted}", left)
    parts: list[RenderableType] = [head, Text(counts, style="dim")]
    if (best := progress.best) is not None:
        words = f"best so far {percent(best.value or 0.0)}, trial {best.number}: {settings(best.params)}"
        parts.append(Text(words, style="green"))
    for trial in progress.running:
        accuracy = f", {percent(list(trial.epochs.values())[-1])}" if trial.epochs else ""
        words = f"trial {trial.number} in epoch {len(trial.epochs) + 1}{accuracy}: {settings(trial.params)}"
        parts.append(Text(words, style="cyan", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def settings(params: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={short(value)}" for name, value in params.items())


def short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
