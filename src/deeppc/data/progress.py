"""Progress of a download."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how many bytes of it are done, and of how many (None: not known)."""


def silent(task: str, done: int, total: int | None) -> None:
    """Show nothing."""


@contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show a progress bar in the terminal."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()) as bar:
        line = bar.add_task("")
        yield lambda task, done, total: bar.update(line, description=task, completed=done, total=total)
