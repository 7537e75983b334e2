"""Training: a typed config, a loop that can be killed and resumed, and the run folder that it writes.

>>> from deeppc.training import TrainConfig, train
>>> result = train(TrainConfig(dataset="digits", algorithm="pc+s+f", epochs=3))
>>> result.test_accuracy

The loop needs torch, the config does not; it is imported when it is asked for, which keeps ``deeppc --help`` quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deeppc.errors import ConfigError, DivergedError, Interrupted, RunError, UserError
from deeppc.training.config import TrainConfig

if TYPE_CHECKING:
    from deeppc.training.fit import RunResult, train
    from deeppc.training.scores import evaluate

__all__ = [
    "ConfigError",
    "DivergedError",
    "Interrupted",
    "RunError",
    "RunResult",
    "TrainConfig",
    "UserError",
    "evaluate",
    "train",
]

_LATE = {"RunResult": "fit", "evaluate": "scores", "train": "fit"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
