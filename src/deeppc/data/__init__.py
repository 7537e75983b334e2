"""Data sets as tensors on the device, and batches of them augmented there.

>>> dataset = load("cifar10", data_dir="data")
>>> for images, labels in Batches(dataset.train, dataset, batch_size=128, seed=0).epoch(0): ...

A data set of your own comes from a folder or file, ``load("path/to/folder")``, from tensors, ``from_tensors(...)``, or
under a name from a function decorated with ``@dataset("name")``.
"""

from __future__ import annotations

from deeppc.data import digits, mnist, cifar, tiny_imagenet  # noqa: F401 # isort: skip - so their names are listed
from deeppc.data.batches import Batches
from deeppc.data.registry import dataset, load, names
from deeppc.data.splits import Dataset, Split, from_tensors, holdout
from deeppc.errors import DataError

__all__ = ["Batches", "DataError", "Dataset", "Split", "dataset", "from_tensors", "holdout", "load", "names"]
