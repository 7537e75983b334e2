"""Decoded data sets on disk, so that a set is decoded once and then memory-mapped.

One safetensors file a data set. It carries the fingerprint of the source it was decoded from, and a checksum of each
part: a cache that is out of date, cut short or altered is decoded anew. It is written under another name and then
renamed, so a reader never meets half a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

_VERSION = "1"  # to be raised when decoding changes, so that older caches are not read


class Decoded(NamedTuple):
    """A data set as numpy arrays, or as tensors once it is :func:`cached`.

    ``arrays`` has ``train.images`` and ``test.images`` uint8 (N, C, H, W), and for each kind of label ``train.<kind>``
    and ``test.<kind>`` int64 (N,), whose class names are ``classes[<kind>]``.
    """

    arrays: dict[str, Any]
    classes: dict[str, tuple[str, ...]]

    def tensors(self) -> Decoded:
        """Return the same with tensors in the place of numpy arrays."""
        return Decoded({name: torch.from_numpy(array) for name, array in self.arrays.items()}, self.classes)


def folders(data_dir: Path) -> tuple[Path, Path]:
    """Return where to keep caches: beside the data, or else in the user's cache folder, apart for each data folder."""
    place = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return data_dir / ".deeppc-cache", user / "deeppc" / place


def fingerprint(path: Path) -> str:
    """Return a digest that changes whenever a file at or below ``path`` changes its name, size or time."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else walk(path):
        status = file.stat()
        name = file.relative_to(path.parent).as_posix()
        digest.update(repr((name, status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()


def walk(folder: Path) -> list[Path]:
    """Return all files below ``folder``, sorted."""
    return sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names)


def cached(name: str, key: str, places: Sequence[Path], decode: Callable[[], Decoded]) -> Decoded:
    """Return what ``decode`` returns, from the first of ``places`` that has it under ``key`` or can be written to.

    The tensors are mapped copy-on-write: changing one never changes the file.
    """
    key = f"{_VERSION}:{key}"
    files = [place / f"{name}.safetensors" for place in places]
    for file in files:
        if found := _read(file, key):
            return found
    decoded = decode()
    for file in files:
        if _write(file, key, decoded) and (found := _read(file, key)):
            return found
    return decoded.tensors()


def _read(file: Path, key: str) -> Decoded | None:
    try:
        with safe_open(file, framework="pt") as store:
            metadata = store.metadata() or {}
            if metadata.get("key") != key:
                return None
            names = store.keys()
            arrays = {name: store.get_tensor(name) for name in names}
        found = _checksums({name: array.numpy() for name, array in arrays.items()}, metadata["classes"])
        classes = json.loads(metadata["classes"])
    except (OSError, SafetensorError, KeyError, ValueError):  # absent or damaged
        return None
    if metadata.get("crc32") != found:
        return None
    return Decoded(arrays, {kind: tuple(names) for kind, names in classes.items()})


def _write(file: Path, key: str, decoded: Decoded) -> bool:
    classes = json.dumps(decoded.classes)
    metadata = {"key": key, "classes": classes, "crc32": _checksums(decoded.arrays, classes)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
            part = Path(scratch, file.name)
            save_file(decoded.arrays, part, metadata)
            part.replace(file)
    except (OSError, SafetensorError):  # read-only or full: the next place may do
        return False
    return True


def _checksums(arrays: dict[str, NDArray[Any]], classes: str) -> str:
    sums = {name: zlib.crc32(array.data) for name, array in arrays.items()}
    return json.dumps(sums | {"classes": zlib.crc32(classes.encode())}, sort_keys=True)
