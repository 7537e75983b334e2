"""deeppc: train deep predictive coding networks. A drop-in for ``loss.backward()``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeppc.core.algorithms import Algorithm, Result, register
    from deeppc.core.energies import Bernoulli, CrossEntropy, Energy, Gaussian
    from deeppc.core.graph import Chain, Graph, Latent, Sum
    from deeppc.core.infer import infer
    from deeppc.models.from_torch import from_torch
    from deeppc.training.builder import train
    from deeppc.training.config import TrainConfig
    from deeppc.training.fit import fit

__version__ = "0.1.0"
__all__ = [
    "Algorithm",
    "Bernoulli",
    "Chain",
    "CrossEntropy",
    "Energy",
    "Gaussian",
    "Graph",
    "Latent",
    "Result",
    "Sum",
    "TrainConfig",
    "__version__",
    "fit",
    "from_torch",
    "infer",
    "register",
    "train",
]

# Imported on first use, so that the command line can answer --help without importing torch.
_NAMES = {
    **dict.fromkeys(("Algorithm", "Result", "register"), "core.algorithms"),
    **dict.fromkeys(("Bernoulli", "CrossEntropy", "Energy", "Gaussian"), "core.energies"),
    **dict.fromkeys(("Chain", "Graph", "Latent", "Sum"), "core.graph"),
    "infer": "core.infer",
    "TrainConfig": "training.config",
    "fit": "training.fit",
    "from_torch": "models.from_torch",
    "train": "training.builder",
}
_PACKAGES = (
    *("errors", "files", "core", "models", "data", "diagnostics", "runs", "report", "training"),
    *("presets", "bench", "search", "paper", "cli"),
)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"deeppc.{_NAMES[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"deeppc.{name}")
    raise AttributeError(f"module 'deeppc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, *_PACKAGES]
