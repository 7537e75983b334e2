"""Hyper-parameter search on Optuna: the paper's spaces, trials that survive kills, importances, transfer, presets.

>>> from deeppc.search import Plan, search
>>> from deeppc.training import TrainConfig
>>> search(Plan.of(TrainConfig(model="vgg5", epochs=5), trials=40, jobs=2)).best_config

Optuna is an extra, ``pip install 'deeppc[search]'``, imported when a study is opened. Presets need only this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeppc.search.plan import Plan
    from deeppc.search.study import SearchResult, search

__all__ = ["Plan", "SearchResult", "search"]

_LATE = {"Plan": "plan", "SearchResult": "study", "search": "study"}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
