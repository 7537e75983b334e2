"""Hyper-parameter search on Optuna: the paper's spaces, trials that survive kills, importances, transfer, presets.

>>> from deeppc.search import Plan, search
>>> from deeppc.training import TrainConfig
>>> search(Plan.of(TrainConfig.of(model="vgg5", epochs=5), trials=40, jobs=2)).best_config

Optuna is an extra, ``pip install 'deeppc[search]'``, imported when a study is opened.
"""

from deeppc.search.plan import Plan
from deeppc.search.study import SearchResult, search

__all__ = ["Plan", "SearchResult", "search"]
