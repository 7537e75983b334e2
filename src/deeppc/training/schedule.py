"""The learning rate of the weights: the paper's schedule, or any torch scheduler.

1.1 lr      .·'¨'·.
 lr      .·'       '·.
                      '·.
0.1 lr                   '·.............
        0   10 %       horizon

The paper's is a pure function of the step, so that there is nothing to save or restore.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

WARM, PEAK, FLOOR = 0.1, 1.1, 0.1  # share of the horizon that warms; highest and lowest factor


def learning_rate(lr: float, step: int, horizon: int) -> float:
    """Return the rate for ``step`` (from 0): linear from ``lr`` to ``1.1 lr`` over the first tenth of ``horizon``
    steps, by a cosine to ``0.1 lr`` at ``horizon``, constant after it."""
    if step >= horizon:
        return FLOOR * lr
    warm = WARM * horizon
    if step < warm:
        return lr * (1 + (PEAK - 1) * step / warm)
    fallen = (step - warm) / (horizon - warm)  # 0 at the peak, 1 at the horizon
    return lr * (FLOOR + (PEAK - FLOOR) * (1 + math.cos(math.pi * fallen)) / 2)


class Schedule:
    """What the loop asks of a schedule. This one leaves the rates alone."""

    def before_step(self, step: int) -> None: ...
    def after_step(self) -> None: ...
    def after_epoch(self, score: float) -> None: ...
    def load(self, state: dict[str, Any]) -> None: ...
    def end(self) -> None: ...
    def state(self) -> dict[str, Any]:
        return {}


class PaperSchedule(Schedule):
    """:func:`learning_rate` for each group of the optimiser, from the rate that it was built with."""

    def __init__(self, optimizer: Optimizer, horizon: int) -> None:
        self._optimizer, self._horizon = optimizer, horizon
        self._rates = [group["lr"] for group in optimizer.param_groups]

    def state(self) -> dict[str, Any]:
        return {"rates": self._rates}

    def load(self, state: dict[str, Any]) -> None:
        self._rates = state.get("rates", self._rates)

    def end(self) -> None:
        """Give the optimiser its rates back: used again, it starts from them."""
        for group, lr in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = lr

    def before_step(self, step: int) -> None:
        for group, lr in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = learning_rate(lr, step, self._horizon)


class TorchSchedule(Schedule):
    """A torch scheduler, stepped after each epoch (``ReduceLROnPlateau`` with the selection score) or each batch."""

    def __init__(self, scheduler: LRScheduler, every: Literal["epoch", "batch"]) -> None:
        self._scheduler, self._every = scheduler, every

    def after_step(self) -> None:
        if self._every == "batch":
            self._scheduler.step()

    def after_epoch(self, score: float) -> None:
        if self._every == "epoch":
            if isinstance(self._scheduler, ReduceLROnPlateau):
                self._scheduler.step(score)
            else:
                self._scheduler.step()

    def load(self, state: dict[str, Any]) -> None:
        self._scheduler.load_state_dict(state)
        setattr(self._scheduler.optimizer, "_opt_called", True)  # noqa: B010 - it was, in an earlier process

    def state(self) -> dict[str, Any]:
        return dict(self._scheduler.state_dict())
