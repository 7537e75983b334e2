"""What a run tells while it goes: the loop prints nothing, callbacks decide what to show or keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeppc.training.result import RunResult
    from deeppc.training.scores import Metric, Sums


@dataclass(frozen=True)
class Started:
    """Everything is checked and built. ``epoch`` and ``batch`` are where it begins: (0, 0) unless it was resumed.

    ``settings`` is the flat table of the manifest; ``run_dir`` is None for a run without a folder.
    """

    settings: Mapping[str, Any]
    run_dir: Path | None
    dataset: str
    parameters: int
    device: str
    samples: int
    batches: int
    epochs: int
    epoch: int
    batch: int
    metric: Metric


@dataclass(frozen=True)
class BatchDone:
    """``sums`` are the epoch's so far, on the device: reading them waits for it, so do that seldom."""

    epoch: int
    batch: int
    sums: Sums


@dataclass(frozen=True)
class EpochDone:
    """``metrics`` is the line that ``metrics.jsonl`` got; ``selected``: the weights of this epoch are kept by now."""

    metrics: dict[str, Any]
    selected: bool = False


@dataclass(frozen=True)
class Finished:
    """The selected epoch has been evaluated."""

    result: RunResult


@dataclass(frozen=True)
class Ended:
    """The run is over, well or not (``status`` as in the manifest), and its files are in ``run_dir``."""

    run_dir: Path | None
    status: str


@dataclass(frozen=True)
class Note:
    """Something the user should know."""

    text: str


Event = Started | BatchDone | EpochDone | Finished | Ended | Note
Callback = Callable[[Event], None]


class StopRun(Exception):  # noqa: N818 - a wish, no error
    """Raised by a callback: the run ends here, with what it has written, and the manifest says ``stopped``."""


def together(callbacks: Sequence[Callback]) -> Callback:
    """Return one callback that calls several."""

    def tell(event: Event) -> None:
        for callback in callbacks:
            callback(event)

    return tell


def ignore(event: Event) -> None:
    """The callback that does nothing."""
