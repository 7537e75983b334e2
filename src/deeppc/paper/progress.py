"""How a grid goes: bars and an estimate of the time left in a terminal, a plain line for each run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from deeppc.paper.grid import Began, Done, GridEvent, GridListener, Job, Went
from deeppc.training.display import percent


class Clock:
    """How much of the grid is done, by the jobs' estimated costs, and how long the rest takes at the speed so far."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.total = sum(job.cost for job in jobs)
        self.done = 0.0
        self._under_way: dict[Job, float] = {}
        self._start = time.monotonic()

    def hear(self, event: GridEvent) -> None:
        match event:
            case Went():
                self._under_way[event.job] = event.share
            case Done():
                self._under_way.pop(event.job, None)
                self.done += event.job.cost

    @property
    def share(self) -> float:
        """Of the work, not of the number of runs."""
        done = self.done + sum(share * job.cost for job, share in self._under_way.items())
        return min(1.0, done / self.total) if self.total else 1.0

    @property
    def left(self) -> float | None:
        """Seconds; None while nothing is known."""
        share = self.share
        return (time.monotonic() - self._start) * (1 - share) / share if share > 0 else None


class Lines:
    """One line for each run that is over."""

    def __init__(self, console: Console, jobs: Sequence[Job]) -> None:
        self.console, self.clock = console, Clock(jobs)
        self._total, self._over = len(jobs), 0

    def __call__(self, event: GridEvent) -> None:
        self.clock.hear(event)
        if isinstance(event, Done):
            self._over += 1
            words = f"[{self._over}/{self._total}] {event.job.name}: {outcome(event)}"
            if self._over < self._total:
                words += f"; {left(self.clock.left)} left"
            self.console.print(Text(words), soft_wrap=True)


class Bars(Lines):
    """A bar for the grid and one for each run under way, below the lines of those that are over."""

    def __init__(self, console: Console, jobs: Sequence[Job]) -> None:
        super().__init__(console, jobs)
        self._bars = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %  {task.fields[note]}")
        )
        self._grid = self._bars.add_task("all", total=1.0, note="")
        self._tasks: dict[Job, TaskID] = {}
        self.live = Live(self._bars, console=console, transient=True, refresh_per_second=4)

    def __call__(self, event: GridEvent) -> None:
        super().__call__(event)
        match event:
            case Began() if event.job not in self._tasks:
                self._tasks[event.job] = self._bars.add_task(event.job.name, total=1.0, note="")
            case Went():
                self._bars.update(self._tasks[event.job], completed=event.share)
            case Done():
                self._bars.remove_task(self._tasks.pop(event.job))
        note = f"{self._over} of {self._total} runs, {left(self.clock.left)} left"
        self._bars.update(self._grid, completed=self.clock.share, note=note)


@contextmanager
def display(jobs: Sequence[Job], console: Console | None = None) -> Iterator[GridListener]:
    """The listener that fits where the output goes."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        yield Lines(console, jobs)
        return
    bars = Bars(console, jobs)
    with bars.live:
        yield bars


def outcome(event: Done) -> str:
    run = event.run
    if run.finished:
        return f"test {percent(run.result['test_accuracy'])}, {duration(run.result['seconds'])}"
    return f"{run.status}: {run.reason}"


def left(seconds: float | None) -> str:
    return "unknown time" if seconds is None else f"about {duration(seconds)}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
