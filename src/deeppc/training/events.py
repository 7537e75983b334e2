"""What a run tells while it goes: the loop prints nothing, whoever listens decides what to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeppc.training.config import TrainConfig
    from deeppc.training.fit import RunResult
    from deeppc.training.scores import Sums


@dataclass(frozen=True)
class Started:
    """Everything is checked and built. ``epoch`` and ``batch`` are where it begins: (0, 0) unless it was resumed."""

    config: TrainConfig
    run_dir: Path
    dataset: str
    nodes: tuple[str, ...]
    parameters: int
    device: str
    training_images: int
    batches: int
    epoch: int
    batch: int


@dataclass(frozen=True)
class BatchDone:
    """``sums`` are the epoch's so far, on the device: reading them waits for it, so do that seldom."""

    epoch: int
    batch: int
    sums: Sums


@dataclass(frozen=True)
class EpochDone:
    """``metrics`` is the line that ``metrics.jsonl`` got."""

    metrics: dict[str, Any]


@dataclass(frozen=True)
class Finished:
    result: RunResult


@dataclass(frozen=True)
class Ended:
    """The run is over, well or not (``status`` as in the manifest), and its files are in ``run_dir``."""

    run_dir: Path
    status: str


@dataclass(frozen=True)
class Note:
    """Something the user should know."""

    text: str


Event = Started | BatchDone | EpochDone | Finished | Ended | Note
Listener = Callable[[Event], None]


class StopRun(Exception):  # noqa: N818 - a listener's wish, no error
    """Raised by a listener: the run ends here, with what it has written, and the manifest says ``stopped``."""


def nobody(event: Event) -> None:
    """The listener that does not care."""
