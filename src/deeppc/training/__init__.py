"""Training: a typed config, a loop that can be killed and resumed, and the run folder that it writes.

>>> from deeppc.training import TrainConfig, train
>>> result = train(TrainConfig.of(dataset="digits", algorithm="pc+s+f", lr_x=0.3, epochs=3))
>>> result.test_accuracy

:func:`deeppc.fit` does the same for objects: your network, your data, your optimiser. What needs torch is imported when
it is asked for, which keeps ``deeppc --help`` quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deeppc.training.config import TrainConfig

if TYPE_CHECKING:
    from deeppc.training.builder import train
    from deeppc.training.result import RunResult
    from deeppc.training.scores import evaluate

__all__ = ["RunResult", "TrainConfig", "evaluate", "train"]

_LATE = {"RunResult": "result", "evaluate": "scores", "train": "builder"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
