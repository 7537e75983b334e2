"""Data sets of your own: a folder of class folders with images, or an ``.npz`` file with named arrays.

A folder is

    flowers/train/daisy/0001.png  flowers/train/rose/...  flowers/test/daisy/...        (or val/ for test/)
    flowers/daisy/0001.png        flowers/rose/...                                      (no train/: see below)

with images of one size, grey or RGB. A file has ``x_train, y_train, x_test, y_test`` (or ``train_images, train_labels,
test_images, test_labels``), and may have ``classes``, their names:

    x   uint8 images (N, H, W), (N, H, W, C) or (N, C, H, W), with 1 or 3 channels; or floats (N, ...), as they are
    y   integer labels (N,) from 0; or float targets (N, ...)

Where there is no test set (``x, y`` or ``images, labels`` in a file), one in five of each class becomes it, always the
same. Images are normalised by the mean and standard deviation of the training images, and are not augmented.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from deeppc.data.cache import Decoded, cached, fingerprint, folders
from deeppc.data.splits import Dataset, Split, from_tensors, holdout
from deeppc.errors import DataError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
GREY, COLOUR = ("1", "L"), ("RGB", "RGBA", "P", "LA", "PA", "CMYK", "YCbCr", "LAB", "HSV")  # modes of 8 bits a channel
PARTS = {"train": ("train",), "test": ("test", "val", "valid", "validation")}
ARRAYS = {
    "train": (("x_train", "y_train"), ("train_images", "train_labels"), ("images", "labels"), ("x", "y")),
    "test": (("x_test", "y_test"), ("test_images", "test_labels")),
}
Arrays = Mapping[str, NDArray[Any]]


def load(path: Path) -> Dataset:
    """Load the data set at ``path``. Raises :class:`DataError` in words where it does not fit."""
    if path.is_dir():
        # Cached for the user, not beside the images: the folder stays as it is.
        decoded = cached("images", fingerprint(path), folders(path)[1:], lambda: _read_folder(path))
        tensors, classes = decoded.arrays, decoded.classes["fine"]
    elif path.is_file():
        arrays, names = _read_npz(path)
        tensors, classes = {name: torch.from_numpy(array) for name, array in arrays.items()}, names
    else:
        raise DataError(f"There is no folder or file {path}.")
    train = Split(tensors["train.images"], tensors["train.fine"])
    if "test.images" in tensors:
        test, note = Split(tensors["test.images"], tensors["test.fine"]), ""
    else:
        if not train.labels.is_floating_point() and 1 in train.labels.unique(return_counts=True)[1]:
            raise DataError(f"{path} has no test set, and a class of one sample, which cannot be divided to make one.")
        train, test = holdout(train, fraction=0.2, seed=0)
        note = "it has no test set: one sample in five was taken for it, always the same"
    try:
        return from_tensors(
            (train.images, train.labels), (test.images, test.labels), name=path.stem, classes=classes or None, note=note
        )
    except DataError as error:
        raise DataError(f"{path} cannot be used. {error}") from error


# ---- folders of images ----


def _read_folder(path: Path) -> Decoded:
    parts = {
        part: next((path / name for name in names if (path / name).is_dir()), None) for part, names in PARTS.items()
    }
    if parts["train"] is None:
        parts = {"train": path}
    classes = tuple(sorted(folder.name for folder in _subfolders(parts["train"])))
    files: dict[str, list[tuple[Path, int]]] = {}
    for part, folder in parts.items():
        if folder is None:
            continue
        if unknown := [each for each in _subfolders(folder) if each.name not in classes]:
            raise DataError(f"{unknown[0]} is a class that {parts['train']} does not have.")
        files[part] = [(file, classes.index(each.name)) for each in _subfolders(folder) for file in _images(each)]
    colour = _check_alike([file for listed in files.values() for file, _ in listed])
    arrays: dict[str, NDArray[Any]] = {}
    for part, listed in files.items():
        if not listed:
            raise DataError(f"{parts[part]} has no folders with images: expected one for each class.")
        arrays[f"{part}.images"] = np.stack([_pixels(file, colour) for file, _ in listed])
        arrays[f"{part}.fine"] = np.array([label for _, label in listed], dtype=np.int64)
    return Decoded(arrays, {"fine": classes})


def _subfolders(folder: Path | None) -> list[Path]:
    assert folder is not None
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise DataError(f"{folder} has no images: expected files such as .png or .jpg in the folder of a class.")
    return files


def _check_alike(files: list[Path]) -> bool:
    """Raise an error unless all images have one size; return whether any has colours. Reads headers only."""
    colour, first = False, None
    for file in files:
        try:
            with Image.open(file) as image:
                size, mode = image.size, image.mode
        except (OSError, SyntaxError, ValueError) as error:
            raise DataError(f"{file} is not a readable image ({error}): replace or remove it.") from error
        if mode not in GREY + COLOUR:
            raise DataError(f"{file} is an image of mode {mode}: convert it to 8 bits a channel, grey or RGB.")
        first = first or (file, size)
        if size != first[1]:
            sizes = "{}x{} pixels, but {} of {}x{}".format(*size, first[0], *first[1])
            raise DataError(f"{file} is of {sizes}: resize all images to one size first.")
        colour |= mode in COLOUR
    return colour


def _pixels(file: Path, colour: bool) -> NDArray[np.uint8]:
    """Decode one image as (C, H, W)."""
    try:
        with Image.open(file) as image:
            pixels = np.asarray(image.convert("RGB" if colour else "L"))
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{file} is not a readable image ({error}): replace or remove it.") from error
    return pixels.transpose(2, 0, 1) if colour else pixels[None]


# ---- files of arrays ----


def _read_npz(path: Path) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a readable .npz file of plain arrays ({error}).") from error
    arrays: dict[str, NDArray[Any]] = {}
    for part, pairs in ARRAYS.items():
        x, y = next((pair for pair in pairs if pair[0] in found and pair[1] in found), ("", ""))
        if x:
            arrays |= {f"{part}.images": _inputs(path, x, found[x]), f"{part}.fine": _labels(path, y, found[y])}
    if "train.images" not in arrays:
        raise DataError(
            f"{path} has the arrays {', '.join(found) or 'none'}: expected x_train, y_train, x_test, y_test."
        )
    return arrays, tuple(map(str, found.get("classes", ())))


def _inputs(path: Path, name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "f":
        return _floats(path, name, array)
    if array.dtype != np.uint8:
        raise DataError(f"{path}: {name} is {array.dtype}, but must be uint8 images, or floats.")
    if array.ndim == 3:
        return array[:, None]
    if array.ndim == 4 and array.shape[1] in (1, 3):
        return array
    if array.ndim == 4 and array.shape[3] in (1, 3):
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    raise DataError(
        f"{path}: {name} is of {array.shape}, but images must be (N, H, W), (N, H, W, C) or (N, C, H, W), with 1 or 3 "
        "channels."
    )


def _labels(path: Path, name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "f":
        return _floats(path, name, array)
    if array.dtype.kind not in "iub":
        raise DataError(f"{path}: {name} is {array.dtype}, but must be integer labels, or float targets.")
    return array.reshape(len(array)).astype(np.int64) if array.shape[1:] == (1,) else array.astype(np.int64)


def _floats(path: Path, name: str, array: NDArray[Any]) -> NDArray[Any]:
    if not np.isfinite(array).all():
        raise DataError(f"{path}: {name} has values that are not finite.")
    return array.astype(np.float32)
