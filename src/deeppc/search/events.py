"""What a search tells while it goes, beside the notes of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deeppc.search.plan import Plan
from deeppc.search.records import Progress, Trial
from deeppc.training.events import Note


@dataclass(frozen=True)
class Began:
    """The study is open; ``progress`` is not empty if it goes on."""

    plan: Plan
    progress: Progress


@dataclass(frozen=True)
class TrialEnded:
    trial: Trial
    progress: Progress


@dataclass(frozen=True)
class Looked:
    """About once a second."""

    progress: Progress


SearchEvent = Began | TrialEnded | Looked | Note
SearchListener = Callable[[SearchEvent], None]


def nobody(event: SearchEvent) -> None:
    """The listener that does not care."""
