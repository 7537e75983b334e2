"""What a search looks like: live in a terminal, a plain line per trial elsewhere, JSON per trial on request."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deeppc.models import described
from deeppc.report.tables import duration
from deeppc.search.study import Listener
from deeppc.search.trials import Progress, Trial, budget, judged_by, score, settings
from deeppc.training.interruption import heard_by


@contextmanager
def display(as_json: bool, console: Console | None = None) -> Iterator[Listener]:
    """Yield the listener that fits where the output goes."""
    if as_json:
        yield json_lines
        return
    with Live(console=console or Console(highlight=False), transient=True) as live:  # only a terminal shows it
        opened = False

        def show(progress: Progress) -> None:
            nonlocal opened
            lines = [line(trial, progress) for trial in progress.news]
            for text in lines if opened else [opening(progress), *lines]:
                live.console.print(Text(text), soft_wrap=True)
            opened = True
            live.update(panel(progress))

        with heard_by(live.console.print):
            yield show


def json_lines(progress: Progress) -> None:
    """Print one object per trial; the result follows when all is done."""
    for trial in progress.news:
        print(json.dumps({"event": "trial", **dataclasses.asdict(trial)}), flush=True)


def opening(progress: Progress) -> str:
    """What is searched, and how far it is if it resumes."""
    plan, c, table = progress.plan, progress.plan.config, progress.plan.space.table()
    lines = [
        f"search {plan.folder}: {plan.trials} trials of {c.algorithm} on {c.dataset}, {described(c.model, c.width)}, "
        f"{budget(c)}",
        f"judged by the best epoch on {judged_by(c)}; pruner {plan.pruner}; {plan.jobs} at a time",
        *(f"  {name:<{max(map(len, table))}}  {text}" for name, text in table.items()),
        *(f"  {name} is not drawn: {why}" for name, why in plan.space.idle.items()),
    ]
    if progress.ended:
        lines.append(f"resuming: {progress.ended} of {plan.trials} trials have ended")
    return "\n".join(lines)


def line(trial: Trial, progress: Progress) -> str:
    """A trial that ended, and the best one so far."""
    said = f"{trial.state}: {trial.reason}" if trial.reason else f"{score(trial.value):>7}  {trial.state}"
    if trial.state == "pruned":
        said += f" at epoch {len(trial.epochs)}"
    time = "" if trial.seconds is None else f"  {duration(trial.seconds)}"
    best = "" if (top := progress.best) is None else f"  best {score(top.value)} (trial {top.number})"
    head = f"[{progress.ended}/{progress.plan.trials}] trial {trial.number}"
    return f"{head}  {said}{time}{best}  {settings(trial.params)}"


def panel(progress: Progress) -> RenderableType:
    """What there is to know while it runs."""
    head, wanted = Table.grid(padding=(0, 2)), progress.plan.trials
    left = f"about {duration(progress.seconds_left)} left" if progress.seconds_left else ""
    head.add_row(ProgressBar(wanted, progress.ended, width=40), f"{progress.ended} of {wanted}", left)
    running = [t for t in progress.trials if t.state == "running"]
    parts: list[RenderableType] = [head, Text(f"{progress.summary()}, {len(running)} running", style="dim")]
    if (best := progress.best) is not None:
        words = f"best so far {score(best.value)}, trial {best.number}: {settings(best.params)}"
        parts.append(Text(words, style="green"))
    for t in running:
        last = f", {score(list(t.epochs.values())[-1])}" if t.epochs else ""
        words = f"trial {t.number} in epoch {len(t.epochs) + 1}{last}: {settings(t.params)}"
        parts.append(Text(words, style="cyan", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)
