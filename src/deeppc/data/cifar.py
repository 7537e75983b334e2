"""CIFAR-10 and CIFAR-100 in the official "python version": pickled batches of 3,072-byte rows.

A row is one image, channels first: 1,024 red, 1,024 green, 1,024 blue.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppc.data.archives import Archive, BadFileError
from deeppc.data.cache import Decoded
from deeppc.data.registry import dataset
from deeppc.data.unpickle import load_dict

SHAPE = (3, 32, 32)


@dataclass(frozen=True)
class Layout:
    """The files of a CIFAR set, and for each kind of label the key that it has in them."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    keys: dict[str, str]

    def wanted(self, name: str) -> bool:
        """Return whether the file ``name`` is read."""
        return name in (*self.train, *self.test, self.meta)

    def decode(self, files: Mapping[str, bytes]) -> Decoded:
        """Return the batches put together, with class names from the file ``meta``."""
        content = {name: _unpickle(files, name) for name in (*self.train, *self.test, self.meta)}
        meta = content[self.meta]
        classes = {kind: _class_names(meta, f"{key[:-1]}_names", self.meta) for kind, key in self.keys.items()}
        arrays: dict[str, NDArray[Any]] = {}
        for split, names in (("train", self.train), ("test", self.test)):
            arrays[f"{split}.images"] = np.concatenate([_images(content[name], name, meta) for name in names])
            for kind, key in self.keys.items():
                labels = [_labels(content[name], key, name, len(classes[kind])) for name in names]
                arrays[f"{split}.{kind}"] = np.concatenate(labels)
        return Decoded(arrays, classes)


def _unpickle(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    if name not in files:
        raise BadFileError(f"{name} is missing")
    try:
        return load_dict(files[name])
    except pickle.UnpicklingError as error:
        raise BadFileError(f"{name} is damaged or not a CIFAR file: {error}") from error


def _class_names(meta: dict[str, Any], key: str, file: str) -> tuple[str, ...]:
    names = meta.get(key)
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise BadFileError(f"{file} has no list of class names {key!r}")
    return tuple(name if isinstance(name, str) else name.decode("latin1") for name in names)


def _images(batch: dict[str, Any], file: str, meta: dict[str, Any]) -> NDArray[np.uint8]:
    rows = batch.get("data")
    if not isinstance(rows, np.ndarray) or rows.shape[1:] != (prod(SHAPE),):
        raise BadFileError(f"{file} has no images: 'data' is not an array of rows of {prod(SHAPE)} bytes")
    expected = meta.get("num_cases_per_batch", len(rows))  # CIFAR-10 states it, CIFAR-100 does not
    if not len(rows) or len(rows) != expected:
        raise BadFileError(f"{file} holds {len(rows)} images where {expected or 'some'} are expected")
    return rows.reshape(-1, *SHAPE)


def _labels(batch: dict[str, Any], key: str, file: str, classes: int) -> NDArray[np.int64]:
    labels, images = batch.get(key), len(batch["data"])
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise BadFileError(f"{file} has no list of integer labels {key!r}")
    if len(labels) != images:
        raise BadFileError(f"{file} holds {images} images but {len(labels)} labels {key!r}")
    if outside := [label for label in labels if not 0 <= label < classes]:
        raise BadFileError(f"{file} has a label {outside[0]} where only 0 to {classes - 1} exist")
    return np.array(labels, dtype=np.int64)


def _archive(number: int, folder: str, layout: Layout, md5: str, **facts: Any) -> Archive:
    name, file = f"cifar{number}", f"cifar-{number}-python.tar.gz"
    facts |= {"url": "https://www.cs.toronto.edu/~kriz/", "md5": {file: md5}}
    facts |= {"wanted": layout.wanted, "decode": layout.decode, "sizes": (50_000, 10_000)}
    return dataset(name)(Archive(name, (file, folder), padding=4, flip=True, **facts))


LAYOUT_10 = Layout(
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test=("test_batch",),
    meta="batches.meta",
    keys={"fine": "labels"},
)
LAYOUT_100 = Layout(("train",), ("test",), "meta", keys={"fine": "fine_labels", "coarse": "coarse_labels"})
CIFAR10 = _archive(
    10,
    "cifar-10-batches-py",
    LAYOUT_10,
    md5="c58f30108f718f92721af3b95e74349a",
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
)
CIFAR100 = _archive(
    100,
    "cifar-100-python",
    LAYOUT_100,
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
)
