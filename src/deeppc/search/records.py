"""A study as plain data: what displays, pages and tables work with, none of which need to know Optuna."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from deeppc.search import ledger
from deeppc.search.plan import Plan
from deeppc.search.space import Value, on_grid
from deeppc.search.storage import Session
from deeppc.training.config import TrainConfig

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

State = Literal["complete", "pruned", "failed", "running", "lost"]


@dataclass(frozen=True)
class Trial:
    """``value`` is the best selection accuracy (of a pruned trial: so far); ``epochs`` has it by epoch.

    ``failed`` trials diverged, as ``reason`` says; ``lost`` ones were killed, and another trial took their place.
    """

    number: int
    state: State
    value: float | None
    params: dict[str, Value]
    epochs: dict[int, float]
    seconds: float | None
    reason: str = ""

    def config(self, base: TrainConfig) -> TrainConfig:
        """The settings that it was trained with, ready for another run."""
        return dataclasses.replace(base, **self.params, run_dir=None, resume=False)  # type: ignore[arg-type]

    def table(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Progress:
    """How far a search is. ``seconds_left`` is an estimate; None before there is anything to go by."""

    wanted: int
    counts: dict[State, int]
    running: list[Trial]
    best: Trial | None
    seconds_left: float | None = None

    @property
    def settled(self) -> int:
        return self.counts["complete"] + self.counts["pruned"] + self.counts["failed"]


def trials_of(session: Session) -> list[Trial]:
    """All trials that the search began, by number."""
    return [_trial(t) for t in session.trials() if ledger.SLOT in t.user_attrs]


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """Of the complete ones the most accurate, of those the first. Not a pruned one: it never had all its epochs."""
    complete = [t for t in trials if t.state == "complete" and t.value is not None]
    return max(complete, key=lambda t: (t.value or 0.0, -t.number), default=None)


def progress_of(plan: Plan, trials: Sequence[Trial]) -> Progress:
    states: tuple[State, ...] = ("complete", "pruned", "failed", "running", "lost")
    counts = {state: sum(t.state == state for t in trials) for state in states}
    running = [t for t in trials if t.state == "running"]
    progress = Progress(plan.trials, counts, running, best_of(trials))
    times = [t.seconds for t in trials if t.seconds is not None and t.state in ("complete", "pruned", "failed")]
    if not times:
        return progress
    left = max(0, plan.trials - progress.settled) * statistics.fmean(times) / max(1, min(plan.jobs, plan.trials))
    return dataclasses.replace(progress, seconds_left=left)


def _trial(trial: FrozenTrial) -> Trial:
    states: dict[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned", "RUNNING": "running", "FAIL": "failed"}
    attributes, state = trial.user_attrs, states.get(trial.state.name, "running")
    if state == "failed" and not ledger.is_settled(trial):
        state = "lost"
    epochs = dict(sorted(trial.intermediate_values.items()))
    return Trial(
        number=trial.number,
        state=state,
        value=trial.value if state == "complete" else max(epochs.values(), default=None),
        params={name: _as_drawn(trial, name) for name in trial.params},
        epochs=epochs,
        seconds=trial.duration.total_seconds() if trial.duration is not None else None,
        reason=str(attributes.get(ledger.LOST) or attributes.get(ledger.REASON) or ""),
    )


def _as_drawn(trial: FrozenTrial, name: str) -> Value:
    """The value as :meth:`Dimension.suggest` gave it."""
    value, step = trial.params[name], getattr(trial.distributions[name], "step", None)
    return on_grid(value) if isinstance(value, float) and step is not None else value
