"""How a grid goes: bars and an estimate of the time left in a terminal, a plain line for each run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from deeppc.paper.run import Job
from deeppc.report.tables import duration, percent
from deeppc.training.pool import Begun, Done, Failed


class Clock:
    """How much of the grid is done, by the jobs' estimated costs, and how long the rest takes at the speed so far."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._total = sum(job.cost for job in jobs)
        self._done: dict[Path, float] = {}
        self._start = time.monotonic()

    def note(self, job: Job, share: float) -> None:
        self._done[job.folder] = share * job.cost

    @property
    def share(self) -> float:
        """Of the work, not of the number of runs."""
        return min(1.0, sum(self._done.values()) / self._total) if self._total else 1.0

    @property
    def left(self) -> float | None:
        """Seconds; None while nothing is known."""
        return (time.monotonic() - self._start) * (1 - self.share) / self.share if self.share > 0 else None


class Display:
    """A line for each run that is over; in a terminal, below them, a bar for the grid and each run under way."""

    def __init__(self, jobs: Sequence[Job], console: Console) -> None:
        self.clock = Clock(jobs)
        note = TextColumn("{task.percentage:>3.0f} %  {task.fields[note]}")
        self.bars = Progress(
            *(TextColumn("{task.description}"), BarColumn(), note),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._all = self.bars.add_task("all", total=1.0, note="")
        self._tasks: dict[Path, TaskID] = {}
        self._total, self._over = len(jobs), 0

    def __call__(self, job: Job, message: Any) -> None:
        if isinstance(message, Begun) and job.folder not in self._tasks:
            self._tasks[job.folder] = self.bars.add_task(job.name, total=1.0, note="")
        elif isinstance(message, float):
            self.clock.note(job, message)
            self.bars.update(self._tasks[job.folder], completed=message)
        elif isinstance(message, Done | Failed):
            self.clock.note(job, 1.0)
            self.bars.remove_task(self._tasks.pop(job.folder))
            self._over += 1
            left = f"; {self._left()} left" if self._over < self._total else ""
            words = f"[{self._over}/{self._total}] {job.name}: {_outcome(message)}{left}"
            self.bars.console.print(Text(words), soft_wrap=True)
        note = f"{self._over} of {self._total} runs, {self._left()} left"
        self.bars.update(self._all, completed=self.clock.share, note=note)

    def _left(self) -> str:
        return "unknown time" if self.clock.left is None else f"about {duration(self.clock.left)}"


@contextmanager
def display(jobs: Sequence[Job], console: Console | None = None) -> Iterator[Callable[[Job, Any], None]]:
    """Yield what is to be told of every message of the pool."""
    shown = Display(jobs, console or Console(highlight=False))
    with shown.bars:
        yield shown


def _outcome(message: Done | Failed) -> str:
    if isinstance(message, Failed):
        return f"failed: {message.reason}"
    record = message.value
    if record.status == "finished":
        return f"test {percent(record.result['test_accuracy'])}, {duration(record.result['seconds'])}"
    return f"{record.status}: {record.reason}"
