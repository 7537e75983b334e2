"""A study's trials as displays, pages and tables need them, and how far a search is."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from deeppc.report.tables import percent
from deeppc.search.plan import Plan
from deeppc.search.space import Value, on_grid
from deeppc.training.config import TrainConfig, replace

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

REASON, LOST = "reason", "lost"  # attributes of a trial that Optuna calls failed: why it failed, or why it was lost
State = Literal["complete", "pruned", "failed", "running", "lost"]
STATES: dict[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned", "RUNNING": "running"}
ENDED = ("complete", "pruned", "failed")


@dataclass(frozen=True)
class Trial:
    """One trial. A ``failed`` one diverged, as ``reason`` says; a ``lost`` one was killed, and another takes its place.

    A score is an accuracy, or minus an error: more is better. ``value`` is the best one (of a pruned trial: so far),
    ``epochs`` has it by epoch.
    """

    number: int
    state: State
    value: float | None
    params: dict[str, Value]
    epochs: dict[int, float]
    seconds: float | None
    reason: str = ""

    @classmethod
    def of(cls, trial: FrozenTrial) -> Trial:
        attributes, epochs = trial.user_attrs, dict(sorted(trial.intermediate_values.items()))
        state = STATES.get(trial.state.name, "failed" if REASON in attributes else "lost")
        reason = attributes.get(REASON, attributes.get(LOST, "its worker died")) if state in ("failed", "lost") else ""
        steps = {name: getattr(distribution, "step", None) for name, distribution in trial.distributions.items()}
        return cls(
            number=trial.number,
            state=state,
            value=trial.value if state == "complete" else max(epochs.values(), default=None),
            params={name: on_grid(value, steps[name]) for name, value in trial.params.items()},
            epochs=epochs,
            seconds=trial.duration.total_seconds() if trial.duration is not None else None,
            reason=reason,
        )

    def config(self, base: TrainConfig) -> TrainConfig:
        """The settings that it was trained with, ready for another run."""
        return replace(base, **self.params, run_dir=None, resume=False)


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Of the complete ones the best, of those the first. Not a pruned one: it never had all its epochs."""
    complete = [t for t in trials if t.state == "complete" and t.value is not None]
    return max(complete, key=lambda t: (t.value or 0.0, -t.number), default=None)


@dataclass(frozen=True)
class Progress:
    """How far a search is. ``news`` are the trials that ended or were lost since the last time."""

    plan: Plan
    trials: Sequence[Trial]
    news: Sequence[Trial] = ()

    def count(self, *states: str) -> int:
        return sum(t.state in states for t in self.trials)

    @property
    def ended(self) -> int:
        return self.count(*ENDED)

    @property
    def best(self) -> Trial | None:
        return best_of(self.trials)

    @property
    def seconds_left(self) -> float | None:
        """An estimate; None before there is anything to go by."""
        times = [t.seconds for t in self.trials if t.seconds is not None and t.state in ENDED]
        missing = self.plan.trials - self.ended
        return missing * statistics.fmean(times) / min(self.plan.jobs, self.plan.trials) if times else None

    def summary(self) -> str:
        """``12 complete, 3 pruned, 1 diverged``."""
        return f"{self.count('complete')} complete, {self.count('pruned')} pruned, {self.count('failed')} diverged"


def judged_by(config: TrainConfig) -> str:
    return "the test set (the paper's protocol)" if config.select == "test" else "held-out images"


def budget(config: TrainConfig) -> str:
    """``25 epochs on 4,000 images``."""
    images = "all training images" if config.limit is None else f"{config.limit:,} images"
    return f"{config.epochs} epochs on {images}"


def score(value: float | None) -> str:
    """A score in words: an accuracy, or the error that it is minus of."""
    return f"error {-value:.4g}" if value is not None and value < 0 else percent(value)


def settings(params: Mapping[str, Value]) -> str:
    """``lr_x=0.123 T=5``."""
    shown = {name: f"{value:.3g}" if isinstance(value, float) else str(value) for name, value in params.items()}
    return " ".join(f"{name}={value}" for name, value in shown.items())
