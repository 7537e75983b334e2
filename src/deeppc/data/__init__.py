"""Data sets as uint8 tensors, and batches of them augmented on the device.

dataset = load("cifar10", data_dir="data")
for images, labels in Batches(dataset.train, dataset, batch_size=128, seed=0).epoch(0):
    ...
"""

from deeppc.data.augment import Batches
from deeppc.data.catalogue import load, names
from deeppc.data.dataset import Dataset, Split, holdout
from deeppc.errors import DataError

__all__ = ["Batches", "DataError", "Dataset", "Split", "holdout", "load", "names"]
