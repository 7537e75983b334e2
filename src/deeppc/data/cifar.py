"""CIFAR-10 and CIFAR-100 in the official "python version": pickled batches of 3,072-byte rows.

A row is one image, channels first: 1,024 red, 1,024 green, 1,024 blue.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
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
    """The files of a CIFAR set, and the keys under which they keep labels and class names."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    label_keys: dict[str, str]
    name_keys: dict[str, str]

    def wanted(self, name: str) -> bool:
        return name in (*self.train, *self.test, self.meta)

    def decode(self, files: Mapping[str, bytes]) -> Decoded:
        meta = _unpickle(files, self.meta)
        classes = {kind: _class_names(meta, key, self.meta) for kind, key in self.name_keys.items()}
        arrays: dict[str, NDArray[Any]] = {}
        for split, names in (("train", self.train), ("test", self.test)):
            batches = {name: _unpickle(files, name) for name in names}
            images = [_images(batch, name, meta) for name, batch in batches.items()]
            arrays[f"{split}.images"] = np.concatenate(images)
            for kind, key in self.label_keys.items():
                labels = [
                    _labels(batch, key, name, len(rows), len(classes[kind]))
                    for (name, batch), rows in zip(batches.items(), images, strict=True)
                ]
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
    width = int(np.prod(SHAPE))
    if not isinstance(rows, np.ndarray) or rows.dtype != np.uint8 or rows.shape[1:] != (width,):
        raise BadFileError(f"{file} has no images: 'data' is not an array of uint8 rows of {width}")
    expected = meta.get("num_cases_per_batch", len(rows))  # CIFAR-10 states it, CIFAR-100 does not
    if not len(rows) or len(rows) != expected:
        raise BadFileError(f"{file} holds {len(rows)} images where {expected or 'some'} are expected")
    return rows.reshape(-1, *SHAPE)


def _labels(batch: dict[str, Any], key: str, file: str, images: int, classes: int) -> NDArray[np.int64]:
    labels = batch.get(key)
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise BadFileError(f"{file} has no list of integer labels {key!r}")
    if len(labels) != images:
        raise BadFileError(f"{file} holds {images} images but {len(labels)} labels {key!r}")
    if outside := [label for label in labels if not 0 <= label < classes]:
        raise BadFileError(f"{file} has a label {outside[0]} where only 0 to {classes - 1} exist")
    return np.array(labels, dtype=np.int64)


LAYOUT_10 = Layout(
    train=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test=("test_batch",),
    meta="batches.meta",
    label_keys={"fine": "labels"},
    name_keys={"fine": "label_names"},
)
LAYOUT_100 = Layout(
    train=("train",),
    test=("test",),
    meta="meta",
    label_keys={"fine": "fine_labels", "coarse": "coarse_labels"},
    name_keys={"fine": "fine_label_names", "coarse": "coarse_label_names"},
)

CIFAR10 = Archive(
    name="cifar10",
    archive="cifar-10-python.tar.gz",
    folder="cifar-10-batches-py",
    url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    md5="c58f30108f718f92721af3b95e74349a",
    wanted=LAYOUT_10.wanted,
    decode=LAYOUT_10.decode,
    mean=(0.4914, 0.4822, 0.4465),
    std=(0.2023, 0.1994, 0.2010),
    padding=4,
    flip=True,
    sizes=(50_000, 10_000),
)
CIFAR100 = Archive(
    name="cifar100",
    archive="cifar-100-python.tar.gz",
    folder="cifar-100-python",
    url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    md5="eb9058c3a382ffc7106e4002c42a8d85",
    wanted=LAYOUT_100.wanted,
    decode=LAYOUT_100.decode,
    mean=(0.5071, 0.4867, 0.4408),
    std=(0.2675, 0.2565, 0.2761),
    padding=4,
    flip=True,
    sizes=(50_000, 10_000),
)

for _archive in (CIFAR10, CIFAR100):
    dataset(_archive.name)(_archive)
