"""deeppc: train deep predictive coding networks. A drop-in for ``loss.backward()``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeppc.core.algorithms import Algorithm, Result
    from deeppc.core.graph import Chain, Graph, Sum

__version__ = "0.1.0"
__all__ = ["Algorithm", "Chain", "Graph", "Result", "Sum", "__version__"]

# Imported on first use, so that the command line can answer --help without importing torch.
_NAMES = {
    "Algorithm": "core.algorithms",
    "Result": "core.algorithms",
    "Chain": "core.graph",
    "Graph": "core.graph",
    "Sum": "core.graph",
}
_PACKAGES = (
    *("core", "models", "data", "diagnostics", "runs", "report", "training"),
    *("presets", "search", "paper", "bench", "cli", "errors", "files"),
)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(importlib.import_module(f"deeppc.{_NAMES[name]}"), name)
    if name in _PACKAGES:
        return importlib.import_module(f"deeppc.{name}")
    raise AttributeError(f"module 'deeppc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES]
