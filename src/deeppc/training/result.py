"""What a run comes to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeppc.runs.folder import RunFolder

_PLAIN = ("selected_epoch", "select", "epochs", "steps", "seconds")


@dataclass(frozen=True)
class RunResult:
    """The weights of the selected epoch, on the whole test set. Accuracies are fractions; epochs count from 1.

    ``metric``      what selected the epoch: ``accuracy``, ``mse``.
    ``validation``  its value on held-out samples; None where those did not select.
    ``test``        all values on the test set: ``{"accuracy": ..., "top5": ...}``; empty where there is none.

    Values are attributes, too: ``result.test_accuracy``, ``result.validation_mse``.
    """

    run_dir: Path | None
    metric: str
    selected_epoch: int
    select: str
    validation: dict[str, float] | None
    test: dict[str, float]
    epochs: int
    steps: int
    seconds: float

    def table(self) -> dict[str, Any]:
        """Return what ``result.json`` holds."""
        return {
            "selected_epoch": self.selected_epoch,
            "select": self.select,
            "metric": self.metric,
            f"validation_{self.metric}": (self.validation or {}).get(self.metric),
            **{f"test_{name}": value for name, value in self.test.items()},
            "epochs": self.epochs,
            "steps": self.steps,
            "seconds": self.seconds,
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("test_", "validation_")) and name in (table := self.table()):
            return table[name]
        raise AttributeError(f"a result has no {name!r}")


def read_result(folder: RunFolder) -> RunResult | None:
    """Return what the run in ``folder`` came to; None if it is not finished."""
    if folder.status != "finished":
        return None
    table = folder.result()
    folder.require_own_result()
    metric = table.get("metric", "accuracy")
    value = table.get(f"validation_{metric}")
    return RunResult(
        run_dir=folder.path,
        metric=metric,
        validation=None if value is None else {metric: value},
        test={name.removeprefix("test_"): value for name, value in table.items() if name.startswith("test_")},
        **{name: table[name] for name in _PLAIN},
    )
