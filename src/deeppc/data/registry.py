"""Data sets by name, and ``load``."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from deeppc.core.arguments import checked
from deeppc.data import folders
from deeppc.data.splits import Dataset
from deeppc.errors import DataError, nearest

Loader = Callable[[Path, str], Dataset]
L = TypeVar("L", bound=Loader)

DATASETS: dict[str, Loader] = {}


def dataset(name: str) -> Callable[[L], L]:
    """Register a function of (data_dir, labels) that returns a :class:`Dataset` under ``name``."""

    def register(loader: L) -> L:
        DATASETS[name] = loader
        return loader

    return register


def names() -> tuple[str, ...]:
    """Return the names that :func:`load` knows; the first needs no download."""
    return tuple(DATASETS)


@checked
def load(name: str | os.PathLike[str], data_dir: str | os.PathLike[str] = "data", labels: str = "fine") -> Dataset:
    """Load a data set by name, or from a folder of class folders with images, or from an ``.npz`` file.

    A named set is read from its official archive or unpacked folder in ``data_dir``. The first call decodes and
    caches, later ones map the cache. ``labels`` is "fine", or for cifar100 also "coarse" (its 20 superclasses). For
    folders and files see :mod:`deeppc.data.folders`. Raises :class:`DataError` when the data are missing, damaged or
    contradict themselves.
    """
    name = os.fspath(name)
    if name in DATASETS:
        return DATASETS[name](Path(data_dir), labels)
    path = Path(name)
    if path.exists() or path.suffix == ".npz" or path.name != name:
        require_labels(name, labels, ("fine",))
        return folders.load(path)
    raise DataError(f"There is no data set, folder or file {name!r}: {nearest(name, names())}")


def require_labels(name: str, labels: str, known: tuple[str, ...]) -> None:
    """Raise an error unless ``labels`` are among those that the data set ``name`` has."""
    if labels not in known:
        raise DataError(f"{name} has no labels {labels!r}: choose {' or '.join(known)}.")
