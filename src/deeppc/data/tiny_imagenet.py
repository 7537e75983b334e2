"""Tiny ImageNet in the official layout: 64x64 JPEGs, one folder a class for training, a table for validation.

The official test images have no published labels, so the official validation set is our test set. About two in a
hundred of the JPEGs are greyscale; they become RGB.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deeppc.data.archives import Archive, BadFileError
from deeppc.data.cache import Decoded
from deeppc.data.registry import dataset

SIDE = 64
ANNOTATIONS = "val/val_annotations.txt"
_WANTED = re.compile(
    r"wnids\.txt|words\.txt|val/val_annotations\.txt|val/images/[^/]+\.JPEG"
    r"|train/[^/]+/images/[^/]+\.JPEG|train/[^/]+/[^/]+_boxes\.txt"
)


def decode(files: Mapping[str, bytes]) -> Decoded:
    """Return the training set, and the validation set as the test set."""
    wnids = _lines(files, "wnids.txt")
    arrays: dict[str, NDArray[Any]] = {}
    for split, table in (("train", _train_table(files, wnids)), ("test", _test_table(files, wnids))):
        pixels = (_decode_jpeg(files[name], name) for name, _ in table)
        arrays[f"{split}.images"] = np.fromiter(pixels, np.dtype((np.uint8, (3, SIDE, SIDE))), len(table))
        arrays[f"{split}.fine"] = np.array([label for _, label in table], dtype=np.int64)
    return Decoded(arrays, {"fine": _class_names(files, wnids)})


def _lines(files: Mapping[str, bytes], name: str) -> list[str]:
    if name not in files:
        raise BadFileError(f"{name} is missing")
    return [line for line in files[name].decode("utf-8", "replace").splitlines() if line.strip()]


def _class_names(files: Mapping[str, bytes], wnids: list[str]) -> tuple[str, ...]:
    """Return the first of the synonyms that words.txt has for each WordNet id."""
    words = dict(line.partition("\t")[::2] for line in _lines(files, "words.txt"))
    if unnamed := [wnid for wnid in wnids if wnid not in words]:
        raise BadFileError(f"words.txt has no line for the class {unnamed[0]}")
    return tuple(words[wnid].split(",")[0] for wnid in wnids)


def _train_table(files: Mapping[str, bytes], wnids: list[str]) -> list[tuple[str, int]]:
    """Return (file, label) of every training image, class by class in the order of wnids.txt."""
    images: dict[str, list[str]] = {wnid: [] for wnid in wnids}
    for name in sorted(name for name in files if name.startswith("train/") and name.endswith(".JPEG")):
        wnid = name.split("/")[1]
        if wnid not in images:
            raise BadFileError(f"{name} belongs to a class that wnids.txt does not list")
        images[wnid].append(name)
    for wnid, names in images.items():
        if not names:
            raise BadFileError(f"train/{wnid}/images holds no images")
        boxes = f"train/{wnid}/{wnid}_boxes.txt"  # the official list of its images tells a half-unpacked folder
        listed = [f"train/{wnid}/images/{line.split()[0]}" for line in _lines(files, boxes)] if boxes in files else []
        if missing := set(listed) - set(names):
            raise BadFileError(f"{min(missing)} is missing, though {boxes} lists it")
    return [(name, label) for label, wnid in enumerate(wnids) for name in images[wnid]]


def _test_table(files: Mapping[str, bytes], wnids: list[str]) -> list[tuple[str, int]]:
    """Return (file, label) of every validation image, in the order of its table."""
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    table: dict[str, int] = {}
    for line in _lines(files, ANNOTATIONS):
        image, wnid, *_ = [*line.split("\t"), ""]
        name = f"val/images/{image}"
        if wnid not in label_of:
            raise BadFileError(f"{ANNOTATIONS} gives {image} the class {wnid!r}, which wnids.txt does not list")
        if name not in files or name in table:
            raise BadFileError(f"{ANNOTATIONS} lists {name}, which is missing or listed twice")
        table[name] = label_of[wnid]
    there = sum(name.startswith("val/images/") for name in files)
    if not table or len(table) != there:
        raise BadFileError(f"{ANNOTATIONS} lists {len(table)} images, but val/images holds {there}")
    return list(table.items())


def _decode_jpeg(data: bytes, name: str) -> NDArray[np.uint8]:
    """Return (3, H, W). The size is compared before the pixels are decoded, so a giant image costs nothing."""
    try:
        with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
            if image.size != (SIDE, SIDE):
                width, height = image.size
                raise BadFileError(f"{name} is {width}x{height} where {SIDE}x{SIDE} is expected")
            return np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    except (OSError, SyntaxError, ValueError) as error:
        raise BadFileError(f"{name} is not a readable JPEG ({error})") from error


TINY_IMAGENET = Archive(
    name="tiny-imagenet",
    places=("tiny-imagenet-200.zip", "tiny-imagenet-200"),
    url="http://cs231n.stanford.edu/",
    md5={"tiny-imagenet-200.zip": "90528d7ca1a48142e341f4ef8d21d0de"},
    wanted=lambda name: _WANTED.fullmatch(name) is not None,
    decode=decode,
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    padding=8,
    flip=True,
    sizes=(100_000, 10_000),
)

dataset(TINY_IMAGENET.name)(TINY_IMAGENET)
