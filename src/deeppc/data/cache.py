"""Decoded data sets in the user's cache folder, so that a set is decoded once and then memory-mapped.

One safetensors file a data set. It carries the fingerprint of the source it was decoded from, and checksums: a cache
that is out of date, cut short or altered is decoded anew. It is written under another name and then renamed, so a
reader never meets half a file.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

_VERSION = 1  # to be raised when decoding changes, so that older caches are not read


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


def cached(path: Path, decode: Callable[[], Decoded]) -> Decoded:
    """Return what ``decode`` makes of the files at or below ``path``, from the cache unless they have changed.

    The tensors are mapped copy-on-write: changing one never changes the file.
    """
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    place = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:16]
    file, key = user / "deeppc" / f"{place}.safetensors", _fingerprint(path)
    if found := _read(file, key):
        return found
    decoded = decode()
    with suppress(OSError, SafetensorError):  # read-only or full
        _write(file, key, decoded)
    return _read(file, key) or decoded.tensors()


def walk(folder: Path) -> list[Path]:
    """Return all files below ``folder``, sorted."""
    return sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names)


def _fingerprint(path: Path) -> str:
    """Return a digest that changes whenever a file changes its name, size or time."""
    digest = hashlib.sha256(f"version {_VERSION}".encode())
    for file in [path] if path.is_file() else walk(path):
        status = file.stat() if file.exists() else file.lstat()  # a link to nowhere
        name = file.relative_to(path.parent).as_posix()
        digest.update(repr((name, status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()


def _read(file: Path, key: str) -> Decoded | None:
    try:
        with safe_open(file, framework="pt") as store:
            arrays = {name: store.get_tensor(name) for name in store.keys()}  # noqa: SIM118 - it is no dictionary
            metadata = store.metadata()
        classes = {kind: tuple(names) for kind, names in json.loads(metadata["classes"]).items()}
        expected = _metadata(key, {name: array.numpy() for name, array in arrays.items()}, classes)
    except (OSError, SafetensorError, KeyError, ValueError, AttributeError, TypeError):  # absent or damaged
        return None
    return Decoded(arrays, classes) if metadata == expected else None


def _write(file: Path, key: str, decoded: Decoded) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        part = Path(scratch, file.name)
        save_file(decoded.arrays, part, _metadata(key, *decoded))
        part.replace(file)


def _metadata(key: str, arrays: dict[str, Any], classes: dict[str, tuple[str, ...]]) -> dict[str, str]:
    names = json.dumps(classes)
    sums = {name: zlib.crc32(array.data) for name, array in arrays.items()} | {"classes": zlib.crc32(names.encode())}
    return {"key": key, "classes": names, "crc32": json.dumps(sums, sort_keys=True)}
