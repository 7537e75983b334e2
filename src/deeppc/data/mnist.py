"""MNIST and Fashion-MNIST in the official layout: four IDX files, gzipped or not.

An IDX file is a head of big-endian 32-bit numbers, then bytes: 0x08 for "bytes" and the number of dimensions, the size
of each, the values. The files lie in ``mnist`` or ``fashion-mnist``, or where torchvision puts them. Training images
are shifted by up to 2 pixels, of the 4 that are black around a digit; garments are mirrored too, digits are not.
"""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from collections.abc import Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeppc.data.archives import LARGEST, Archive, BadFileError
from deeppc.data.cache import Decoded
from deeppc.data.registry import dataset

SHAPE = (28, 28)
FILES = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))


def decode(files: Mapping[str, bytes], classes: tuple[str, ...]) -> Decoded:
    """Return both splits. Where a file is there in both forms, the gzipped one counts: it has a checksum."""
    arrays: dict[str, NDArray[Any]] = {}
    for split, part in (("train", "train"), ("test", "t10k")):
        images, file = read_idx(files, f"{part}-images-idx3-ubyte", 3)
        labels, labels_file = read_idx(files, f"{part}-labels-idx1-ubyte", 1)
        if not len(images) or images.shape[1:] != SHAPE:
            found = "x".join(map(str, images.shape[1:]))
            raise BadFileError(f"{file} holds {len(images)} images of {found} where some of 28x28 are expected")
        if len(labels) != len(images):
            raise BadFileError(f"{file} holds {len(images)} images but {labels_file} {len(labels)} labels")
        if labels.max() >= len(classes):
            raise BadFileError(f"{labels_file} has a label {labels.max()} where only 0 to {len(classes) - 1} exist")
        arrays |= {f"{split}.images": images[:, None], f"{split}.fine": labels.astype(np.int64)}
    return Decoded(arrays, {"fine": classes})


def read_idx(files: Mapping[str, bytes], name: str, dimensions: int) -> tuple[NDArray[np.uint8], str]:
    """Return the bytes in the IDX file ``name``, or ``name.gz``, in their shape; and which of the two it was."""
    file = next((form for form in (f"{name}.gz", name) if form in files), None)
    if file is None:
        raise BadFileError(f"{name}.gz is missing")
    stream: Any = io.BytesIO(files[file])
    try:
        stream = gzip.GzipFile(fileobj=stream) if file.endswith(".gz") else stream
        head = stream.read(4 * (1 + dimensions))
        if len(head) < 4 * (1 + dimensions):
            raise BadFileError(f"{file} ends within its head")
        magic, *shape = struct.unpack(f">{1 + dimensions}I", head)
        if magic != 0x0800 + dimensions:
            raise BadFileError(
                f"{file} is no IDX file of bytes: it begins with {head[:4].hex()}, not 0000080{dimensions}"
            )
        if (size := prod(shape)) > LARGEST:
            raise BadFileError(f"{file} claims {size:,} bytes, more than any official file has")
        content = stream.read(size + 1)  # one more, to get to the end, where the checksum of a gzipped file is
    except (OSError, EOFError, zlib.error) as error:
        raise BadFileError(f"{file} is damaged ({error})") from error
    if len(content) != size:
        held = "more" if len(content) > size else f"{len(content):,}"
        raise BadFileError(f"{file} is damaged: after its head it has {held} bytes where {size:,} are expected")
    return np.frombuffer(bytearray(content), np.uint8).reshape(shape), file


def _published(
    name: str, torchvision: str, url: str, md5: tuple[str, ...], classes: tuple[str, ...], **look: Any
) -> None:
    sums = {f"{name}/{file}.gz": each for file, each in zip(FILES, md5, strict=True)}
    facts: dict[str, Any] = {
        "wanted": lambda file: file.removesuffix(".gz") in FILES,
        "decode": partial(decode, classes=classes),
    }
    places = (name, f"{torchvision}/raw")
    dataset(name)(Archive(name, places, url, sums, padding=2, sizes=(60_000, 10_000), **facts, **look))


_published(
    "mnist",
    "MNIST",
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    (
        "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "d53e105ee54ea40749a09fcbcd1e9432",
        "9fb629c4189551a2d022fa330f9573f3",
        "ec29112dd5afa0611ce80d1b7f02629c",
    ),
    tuple(map(str, range(10))),
    mean=(0.1307,),
    std=(0.3081,),
    flip=False,
)
_published(
    "fashion-mnist",
    "FashionMNIST",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    (
        "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "25c81989df183df01b3e8a0aad5dffbe",
        "bef4ecab320f06d8554ea6380940ec79",
        "bb300cfdad3c16e7a12a480ee83cd310",
    ),
    ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    mean=(0.2860,),
    std=(0.3530,),
    flip=True,
)
