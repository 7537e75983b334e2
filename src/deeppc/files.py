"""Read and write files whole: replaced atomically, read back with plain errors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deeppc.errors import RunError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path whose content becomes ``path`` on leaving, at once and on the disk, or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"{path} could not be written: {error.strerror or error}.") from error


def _sync_folder(folder: Path) -> None:
    if sys.platform != "win32":  # which cannot open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_json(path: Path, content: Any) -> None:
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
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
    """``path``, or the first of ``path-2``, ``path-3``, ... that does not exist."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free
