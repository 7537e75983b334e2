"""Where a data set's files come from: the archive as distributed, or the folder it unpacks to.

Members are read straight out of the archive into memory. Nothing is ever extracted, so no member, whatever
its name or link says, can touch a file outside.
"""

import gzip
import hashlib
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from deeppc.errors import BadFileError

_LARGEST = 1 << 30  # bytes of one file; the largest official one has 155 MB


def read(path: Path, root: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The files below `root` whose names, relative to it, are `wanted`.

    `path` is a .tar.gz or .zip that holds the folder `root`, or that folder itself.
    """
    try:
        if path.is_dir():
            return dict(_read_folder(path, wanted))
        if path.suffix == ".zip":
            return dict(_read_zip(path, root, wanted))
        return dict(_read_tar(path, root, wanted))
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise BadFileError(f"it cannot be read ({error})") from error


def fingerprint(path: Path) -> str:
    """Changes whenever a file at `path`, or anywhere below it, changes its name, size or time."""
    digest = hashlib.sha256()
    for file in [path] if path.is_file() else _walk(path):
        status = file.stat()
        name = file.relative_to(path.parent).as_posix()
        digest.update(repr((name, status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()


def _walk(folder: Path) -> list[Path]:
    return sorted(Path(parent, name) for parent, _, names in os.walk(folder) for name in names)


def _read_folder(folder: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    for file in _walk(folder):
        name = file.relative_to(folder).as_posix()
        if wanted(name):
            yield name, file.read_bytes()


def _read_zip(path: Path, root: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            name = _below(root, member.filename)
            if wanted(name):
                _refuse_giant(name, member.file_size)
                yield name, archive.read(member)


def _read_tar(path: Path, root: str, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    with gzip.open(path) as stream:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                name = _below(root, member.name)
                file = archive.extractfile(member) if member.isreg() and wanted(name) else None
                if file:
                    _refuse_giant(name, member.size)
                    yield name, file.read()
        # tarfile stops at its end mark; gzip compares its checksum only at the very end of the file.
        while stream.read(1 << 20):
            pass


def _below(root: str, name: str) -> str:
    """`name` relative to `root`; empty when it lies elsewhere."""
    name = name.removeprefix("./")
    return name.removeprefix(f"{root}/") if name.startswith(f"{root}/") else ""


def _refuse_giant(name: str, size: int) -> None:
    if size > _LARGEST:
        raise BadFileError(f"{name} claims {size:,} bytes, more than any official file has")
