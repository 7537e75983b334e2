"""Published data sets: the archive as distributed, or the folder it unpacks to.

Members are read straight out of the archive into memory. Nothing is ever extracted, so no member, whatever its name or
link says, can touch a file outside.
"""

from __future__ import annotations

import gzip
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from deeppc.data.cache import Decoded, cached, fingerprint, folders, walk
from deeppc.data.registry import require_labels
from deeppc.data.splits import Dataset, Split
from deeppc.errors import DataError

_LARGEST = 1 << 30  # bytes of one file; the largest official one has 155 MB


class BadFileError(Exception):
    """Something is wrong inside a data set's files. :class:`Archive` adds where they lie and what to do about it."""


@dataclass(frozen=True)
class Archive:
    """A data set in its official layout: how to fetch, read and present it.

    ``decode`` turns the files that are ``wanted`` (name below the folder -> content) into arrays. It raises
    :class:`BadFileError` rather than leave anything out.
    """

    name: str
    archive: str
    folder: str
    url: str
    md5: str  # of the archive, as published
    wanted: Callable[[str], bool]
    decode: Callable[[Mapping[str, bytes]], Decoded]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int
    flip: bool
    sizes: tuple[int, int]  # training and test images

    def __call__(self, data_dir: Path, labels: str) -> Dataset:
        """Load the data set from ``data_dir``, or from the cache of what was decoded there before."""
        path = self._find(data_dir)
        arrays, classes = cached(self.name, fingerprint(path), folders(data_dir), lambda: self._decode(path))
        require_labels(self.name, labels, tuple(classes))
        train, test = (Split(arrays[f"{part}.images"], arrays[f"{part}.{labels}"]) for part in ("train", "test"))
        look = (self.mean, self.std, self.padding, self.flip)
        return Dataset(self.name, train, test, classes[labels], *look, official_sizes=self.sizes)

    def _find(self, data_dir: Path) -> Path:
        # The archive first: it is whole or its checksums tell, while a folder may be half unpacked.
        archive, folder = data_dir / self.archive, data_dir / self.folder
        if archive.is_file():
            return archive
        if folder.is_dir():
            return folder
        raise DataError(
            f"{self.name} is not in {data_dir}: there is neither the file {archive} nor the folder {folder}. "
            f"Get it with `deeppc data fetch {self.name} --data-dir {data_dir}`, or put the official archive there."
        )

    def _decode(self, path: Path) -> Decoded:
        try:
            return self.decode(read(path, self.folder, self.wanted))
        except BadFileError as error:
            raise DataError(
                f"{path} cannot be used: {error}. Delete it, then get it anew with "
                f"`deeppc data fetch {self.name} --data-dir {path.parent}`."
            ) from error


def read(path: Path, root: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Return the files below ``root`` whose names, relative to it, are ``wanted``.

    ``path`` is a .tar.gz or .zip that holds the folder ``root``, or that folder itself.
    """
    try:
        if path.is_dir():
            files = {file.relative_to(path).as_posix(): file for file in walk(path)}
            return {name: file.read_bytes() for name, file in files.items() if wanted(name)}
        if path.suffix == ".zip":
            return dict(_read_zip(path, root, wanted))
        return dict(_read_tar(path, root, wanted))
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise BadFileError(f"it cannot be read ({error})") from error


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
    """Return ``name`` relative to ``root``; empty when it lies elsewhere."""
    name = name.removeprefix("./")
    return name.removeprefix(f"{root}/") if name.startswith(f"{root}/") else ""


def _refuse_giant(name: str, size: int) -> None:
    if size > _LARGEST:
        raise BadFileError(f"{name} claims {size:,} bytes, more than any official file has")
