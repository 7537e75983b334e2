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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

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


def load(path: Path) -> Dataset:
    """Load the data set at ``path``. Raises :class:`DataError` in words where it does not fit."""
    if path.is_dir():
        # Cached for the user, not beside the images: the folder stays as it is.
        arrays, classes = cached("images", fingerprint(path), folders(path)[1:], lambda: _read_folder(path))
    elif path.is_file():
        arrays, classes = _read_npz(path).tensors()
    else:
        raise DataError(f"There is no folder or file {path}.")
    there, note = [part for part in PARTS if f"{part}.fine" in arrays], ""
    splits = {part: (arrays[f"{part}.images"], arrays[f"{part}.fine"]) for part in there}
    try:
        if "test" not in splits:
            splits["train"], splits["test"] = _divided(*splits["train"])
            note = "it has no test set: one sample in five was taken for it, always the same"
        return from_tensors(**splits, name=path.resolve().stem, classes=classes["fine"] or None, note=note)
    except DataError as error:
        raise DataError(f"{path} cannot be used. {error}") from error


def _divided(images: Tensor, labels: Tensor) -> list[tuple[Tensor, Tensor]]:
    if not labels.is_floating_point() and 1 in np.unique(labels, return_counts=True)[1]:
        raise DataError("There is no test set, and a class of one sample, which cannot be divided to make one.")
    return [(part.images, part.labels) for part in holdout(Split(images, labels), fraction=0.2, seed=0)]


# ---- folders of images ----


def _read_folder(path: Path) -> Decoded:
    there = {part: [path / name for name in names if (path / name).is_dir()] for part, names in PARTS.items()}
    parts = {part: found[0] for part, found in there.items() if found} if there["train"] else {"train": path}
    classes = tuple(each.name for each in _subfolders(parts["train"]))
    files: dict[str, list[tuple[Path, int]]] = {}
    for part, folder in parts.items():
        if unknown := [each for each in _subfolders(folder) if each.name not in classes]:
            raise DataError(f"{unknown[0]} is a class that {parts['train']} does not have.")
        files[part] = [(file, classes.index(each.name)) for each in _subfolders(folder) for file in _images(each)]
        if not files[part]:
            raise DataError(f"{folder} has no folders with images: expected one for each class.")
    shape = _common_shape([file for listed in files.values() for file, _ in listed])
    arrays: dict[str, NDArray[Any]] = {}
    for part, listed in files.items():
        pixels = (_pixels(file, shape) for file, _ in listed)
        arrays[f"{part}.images"] = np.fromiter(pixels, np.dtype((np.uint8, shape)), len(listed))
        arrays[f"{part}.fine"] = np.array([label for _, label in listed], dtype=np.int64)
    return Decoded(arrays, {"fine": classes})


def _subfolders(folder: Path) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))


def _images(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        raise DataError(f"{folder} has no images: expected files such as .png or .jpg in the folder of a class.")
    return files


def _common_shape(files: list[Path]) -> tuple[int, int, int]:
    """Return the (C, H, W) of all images, from their headers; one in colour makes them RGB."""
    found = [(file, *_opened(file, lambda image: (image.size, image.mode))) for file in files]
    first, size, _ = found[0]
    for file, its_size, mode in found:
        if mode not in GREY + COLOUR:
            raise DataError(f"{file} is an image of mode {mode}: convert it to 8 bits a channel, grey or RGB.")
        if its_size != size:
            sizes = "{}x{} pixels, but {} of {}x{}".format(*its_size, first, *size)
            raise DataError(f"{file} is of {sizes}: resize all images to one size first.")
    return 3 if any(mode in COLOUR for *_, mode in found) else 1, size[1], size[0]


def _pixels(file: Path, shape: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Decode one image as (C, H, W)."""
    pixels: NDArray[np.uint8] = _opened(file, lambda image: np.asarray(image.convert("RGB" if shape[0] == 3 else "L")))
    return pixels.reshape(*shape[1:], shape[0]).transpose(2, 0, 1)


def _opened(file: Path, look: Callable[[Image.Image], Any]) -> Any:
    try:
        with Image.open(file) as image:
            return look(image)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{file} is not a readable image ({error}): replace or remove it.") from error


# ---- files of arrays ----


def _read_npz(path: Path) -> Decoded:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a readable .npz file of plain arrays ({error}).") from error
    arrays: dict[str, NDArray[Any]] = {}
    for part, pairs in ARRAYS.items():
        for x, y in (pair for pair in pairs if f"{part}.fine" not in arrays and found.keys() >= set(pair)):
            arrays[f"{part}.images"] = _inputs(f"{path}: {x}", found[x])
            arrays[f"{part}.fine"] = _labels(f"{path}: {y}", found[y])
    if "train.fine" not in arrays:
        raise DataError(f"{path} holds {', '.join(found) or 'nothing'}: expected x_train, y_train, x_test, y_test.")
    return Decoded(arrays, {"fine": tuple(map(str, found.get("classes", ())))})


def _inputs(what: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.kind == "f":
        return _floats(what, array)
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
        return _floats(what, array)
    if array.dtype.kind not in "iub":
        raise DataError(f"{what} is {array.dtype}, but must be integer labels, or float targets.")
    return (array.ravel() if array.shape[1:] == (1,) else array).astype(np.int64)


def _floats(what: str, array: NDArray[Any]) -> NDArray[Any]:
    if not np.isfinite(array).all():
        raise DataError(f"{what} has values that are not finite.")
    return array.astype(np.float32)
