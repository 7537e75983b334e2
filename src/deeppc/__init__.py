"""deeppc: train deep predictive coding networks where ``loss.backward()`` stood."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeppc.algorithms import Algorithm, Result
    from deeppc.graph import Chain, Graph, Sum

__version__ = "0.1.0"
__all__ = ["Algorithm", "Chain", "Graph", "Result", "Sum", "__version__"]

# By name on first use, so that the command line can answer --help without importing torch.
_HOMES = {"Algorithm": "algorithms", "Result": "algorithms", "Chain": "graph", "Graph": "graph", "Sum": "graph"}
_ROOMS = (
    "algorithms",
    "analysis",
    "bench",
    "data",
    "drawing",
    "engine",
    "graph",
    "memory",
    "models",
    "norm",
    "paper",
    "precision",
    "probe",
    "training",
)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"deeppc.{_HOMES[name]}"), name)
    if name in _ROOMS:
        return importlib.import_module(f"deeppc.{name}")
    raise AttributeError(f"module 'deeppc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_ROOMS]
