"""What the tests of training share. None of them looks at a report, which takes seconds to draw."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deeppc.runs.folder import RunFolder
from deeppc.training.events import BatchDone, Event

StopAfter = Callable[..., Callable[[Event], None]]


@pytest.fixture(autouse=True)
def no_reports(reports: list[tuple[str, Path]]) -> None:
    pass


@pytest.fixture
def stop_after() -> StopAfter:
    """A callback that sends this process a signal once so many batches are done."""

    def make(batches: int, number: int = signal.SIGINT) -> Callable[[Event], None]:
        seen = 0

        def listen(event: Event) -> None:
            nonlocal seen
            seen += isinstance(event, BatchDone)
            if isinstance(event, BatchDone) and seen == batches:
                os.kill(os.getpid(), number)

        return listen

    return make


@pytest.fixture
def timeless() -> Callable[[Path], list[dict[str, Any]]]:
    """The metrics of a run without the time they took."""
    return lambda run_dir: [{k: v for k, v in m.items() if k != "seconds"} for m in RunFolder(run_dir).metrics()]
