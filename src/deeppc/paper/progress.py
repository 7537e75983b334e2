"""How a grid goes: bars and an estimate of the time left in a terminal, a plain line for each run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import TaskID, TextColumn
from rich.text import Text

from deeppc.paper.run import Job
from deeppc.report.tables import duration, percent
from deeppc.training.display import progress_bars
from deeppc.training.interruption import heard_by
from deeppc.training.pool import Begun, Done, Failed


class Display:
    """A line for each run that is over; in a terminal, below them, a bar for the grid and each run under way.

    Runs count by their estimated cost, so that the time left is that of the work left, at the speed so far.
    """

    def __init__(self, jobs: Sequence[Job], console: Console) -> None:
        self.bars = progress_bars(console, TextColumn("{task.fields[note]}"))
        self.bars.disable = not console.is_terminal
        self._all = self.bars.add_task("all", total=100, note="")
        self._tasks: dict[Path, TaskID] = {}
        self._cost = sum(job.cost for job in jobs)
        self._done: dict[Path, float] = {}  # seconds, of the estimated cost
        self._total, self._over, self._start = len(jobs), 0, time.monotonic()

    def __call__(self, job: Job, message: Any) -> None:
        if isinstance(message, Begun) and job.folder not in self._tasks:
            self._tasks[job.folder] = self.bars.add_task(job.name, total=100, note="%")
        elif isinstance(message, float):
            self._done[job.folder] = message * job.cost
            self.bars.update(self._tasks[job.folder], completed=100 * message)
        elif isinstance(message, Done | Failed):
            self._done[job.folder] = job.cost
            self.bars.remove_task(self._tasks.pop(job.folder))
            self._over += 1
            left = f"; about {duration(self.left)} left" if self._over < self._total else ""
            words = f"[{self._over}/{self._total}] {job.name}: {_outcome(message)}{left}"
            self.bars.console.print(Text(words), soft_wrap=True)
        self.bars.update(self._all, completed=100 * self.share, note=f"%, {self._over} of {self._total} runs")

    @property
    def share(self) -> float:
        """How much of the work is done."""
        return sum(self._done.values()) / self._cost

    @property
    def left(self) -> float:
        """Seconds until all is done."""
        return (time.monotonic() - self._start) * (1 / self.share - 1)


@contextmanager
def display(jobs: Sequence[Job], console: Console | None = None) -> Iterator[Callable[[Job, Any], None]]:
    """Yield what is to be told of every message of the pool."""
    shown = Display(jobs, console or Console(highlight=False))
    with shown.bars, heard_by(shown.bars.console.print):
        yield shown


def _outcome(message: Done | Failed) -> str:
    if isinstance(message, Failed):
        return f"failed: {message.reason}"
    record = message.value
    if record.status == "finished":
        return f"test {percent(record.result['test_accuracy'])}, {duration(record.result['seconds'])}"
    return f"{record.status}: {record.reason}"
