"""Write files whole, read them with plain errors, and lock them against other processes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from deeppc.errors import RunError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path whose content becomes ``path`` on leaving: at once and on the disk, or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise RunError(f"{path} could not be written: {error.strerror or error}.") from error


def write_text(path: Path, text: str) -> None:
    """Replace the file by ``text``."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Replace the file by ``content`` as JSON."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}.") from error
    if not isinstance(content, dict):
        raise RunError(f"{path} is damaged: it holds no table.")
    return content


def unused(path: Path) -> Path:
    """Return ``path``, or the first of ``path-2``, ``path-3``, ... that does not exist."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


class Busy(RunError):  # noqa: N818
    """Another process holds the lock."""


class Lock:
    """A lock between processes, as a context. The system releases it when the process ends, even by a kill.

    Raises :class:`Busy` at once if another process (or another Lock of this one) holds it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[str] | None = None

    def __enter__(self) -> Lock:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = self.path.open("w")
        except OSError as error:
            raise RunError(f"{self.path.parent} cannot be written: {error.strerror or error}.") from error
        try:
            if sys.platform == "win32":
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise Busy(f"Another process is working in {self.path.parent}.") from None
        self._file = file
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _sync_folder(folder: Path) -> None:
    if sys.platform != "win32":  # which cannot open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
