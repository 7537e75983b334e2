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

import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from deeppc.data.cache import Decoded, cached
from deeppc.data.splits import Dataset, Split, check, from_tensors, holdout
from deeppc.errors import DataError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
PARTS = {"train": ("train",), "test": ("test", "val", "valid", "validation")}
ARRAYS = {
    "train": (("x_train", "y_train"), ("train_images", "train_labels"), ("images", "labels"), ("x", "y")),
    "test": (("x_test", "y_test"), ("test_images", "test_labels")),
}


def load(path: Path) -> Dataset:
    """Load the data set at ``path``. Raises :class:`DataError` in words where it does not fit."""
    if path.is_dir():
        arrays, classes = cached(path, lambda: _read_folder(path))
    elif path.is_file():
        arrays, classes = _read_npz(path).tensors()
    else:
        raise DataError(f"There is no folder or file {path}.")
    splits = {part: (arrays[f"{part}.images"], arrays[f"{part}.fine"]) for part in PARTS if f"{part}.fine" in arrays}
    note = ""
    try:
        if "test" not in splits:
            splits["train"], splits["test"] = _divided(*splits["train"])
            note = "it has no test set: one sample in five was taken for it, always the same"
        return from_tensors(**splits, name=path.resolve().stem, classes=classes["fine"] or None, note=note)
    except DataError as error:
        raise DataError(f"{path} cannot be used. {error}") from error


def _divided(images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    check("train", images, labels)
    if not labels.is_floating_point() and 1 in np.unique(labels, return_counts=True)[1]:
        raise DataError("There is no test set, and a class of one sample, which cannot be divided to make one.")
    return [(part.images, part.labels) for part in holdout(Split(images, labels), fraction=0.2, seed=0)]


# ---- folders of images ----


def _read_folder(path: Path) -> Decoded:
    classes, labels = _find_images(path)
    images: dict[Path, NDArray[np.uint8]] = {}
    for file in (file for part in labels.values() for file in part):
        images[file] = _pixels(file)
        first, (_, height, width) = next((file, image.shape) for file, image in images.items())
        if images[file].shape[1:] != (height, width):
            raise DataError(f"{file} has another size than {first}, {width}x{height}: resize all images to one size.")
    shape = (max(len(image) for image in images.values()), height, width)  # one in colour makes all RGB
    arrays: dict[str, NDArray[Any]] = {}
    for part, label_of in labels.items():
        pixels = (np.broadcast_to(images[file], shape) for file in label_of)
        arrays[f"{part}.images"] = np.fromiter(pixels, np.dtype((np.uint8, shape)), len(label_of))
        arrays[f"{part}.fine"] = np.array([*label_of.values()], dtype=np.int64)
    return Decoded(arrays, {"fine": classes})


def _find_images(path: Path) -> tuple[tuple[str, ...], dict[str, dict[Path, int]]]:
    """Return the classes, and for train and test (if there is one) the label of each image."""
    there = {part: [path / name for name in names if (path / name).is_dir()] for part, names in PARTS.items()}
    parts = {part: found[0] for part, found in there.items() if found} if there["train"] else {"train": path}
    classes = tuple(folder.name for folder in _subfolders(parts["train"]))
    labels: dict[str, dict[Path, int]] = {}
    for part, parent in parts.items():
        labels[part] = {}
        for folder in _subfolders(parent):
            if folder.name not in classes:
                raise DataError(f"{folder} is a class that {parts['train']} does not have.")
            found = (file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)
            files = sorted(
                file for file in found if file.is_file() or not file.exists()
            )  # a link to nowhere is refused
            if not files:
                raise DataError(f"{folder} has no images: expected files such as .png in the folder of a class.")
            labels[part] |= dict.fromkeys(files, classes.index(folder.name))
        if not labels[part]:
            raise DataError(f"{parent} has no folders with images: expected one for each class.")
    return classes, labels


def _subfolders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _pixels(file: Path) -> NDArray[np.uint8]:
    """Decode one image as (C, H, W), in grey or RGB."""
    try:
        with (
            warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning),
            Image.open(file) as image,
        ):
            if image.mode.startswith(("I", "F")):
                raise DataError(
                    f"{file} is an image of mode {image.mode}: convert it to 8 bits a channel, grey or RGB."
                )
            pixels = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
            return np.atleast_3d(pixels).transpose(2, 0, 1)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise DataError(f"{file} is too large an image: resize it. ({error})") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{file} is not a readable image ({error}): replace or remove it.") from error


# ---- files of arrays ----


def _read_npz(path: Path) -> Decoded:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not an .npz file, or it is damaged: write one with numpy.savez.")
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except MemoryError as error:
        raise DataError(f"{path} does not fit into memory, or it is damaged ({error}).") from error
    except (
        OSError,
        ValueError,
        EOFError,
        TypeError,
        SyntaxError,
        NotImplementedError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise DataError(f"{path} is not a readable .npz file of plain arrays ({error}).") from error
    arrays: dict[str, NDArray[Any]] = {}
    for part, pairs in ARRAYS.items():
        for x, y in (pair for pair in pairs if f"{part}.fine" not in arrays and found.keys() >= set(pair)):
            arrays[f"{part}.images"] = _inputs(f"{path}: {x}", found[x])
            arrays[f"{part}.fine"] = _labels(f"{path}: {y}", found[y])
    if "train.fine" not in arrays:
        raise DataError(f"{path} holds {', '.join(found) or 'nothing'}: expected x_train, y_train, x_test, y_test.")
    classes = found.get("classes", np.array([]))
    if classes.ndim != 1:
        raise DataError(f"{path}: classes has {classes.ndim} dimensions, but must be a list of names.")
    return Decoded(arrays, {"fine": tuple(map(str, classes))})


def _inputs(what: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "f":
        return _single(array)
    if array.dtype == np.uint8 and array.ndim == 3:
        return array[:, None]
    if array.dtype == np.uint8 and array.ndim == 4 and array.shape[1] in (1, 3):
        return array
    if array.dtype == np.uint8 and array.ndim == 4 and array.shape[3] in (1, 3):
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2))
    shapes = "(N, H, W), (N, H, W, C) or (N, C, H, W), with 1 or 3 channels"
    raise DataError(f"{what} is {array.dtype} of {array.shape}, but must be floats, or uint8 images {shapes}.")


def _labels(what: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "f":
        return _single(array)
    if array.dtype.kind not in "iub":
        raise DataError(f"{what} is {array.dtype}, but must be integer labels, or float targets.")
    return (array.ravel() if array.shape[1:] == (1,) else array).astype(np.int64)


def _single(array: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # becomes infinite, which is refused in words
        return array.astype(np.float32)
