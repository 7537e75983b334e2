"""Published data sets: the archive as distributed, or the folder it unpacks to, or a folder of files.

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
from functools import partial
from pathlib import Path

from deeppc.data.cache import Decoded, cached, walk
from deeppc.data.registry import require_labels
from deeppc.data.splits import Dataset, Split
from deeppc.errors import DataError

LARGEST = 1 << 30  # bytes of one file; the largest official one has 155 MB


class BadFileError(Exception):
    """Something is wrong inside a data set's files. :class:`Archive` adds where they lie and what to do about it."""


@dataclass(frozen=True)
class Archive:
    """A data set in its official layout: how to fetch, read and present it.

    ``decode`` turns the files that are ``wanted`` (name below the folder -> content) into arrays. It raises
    :class:`BadFileError` rather than leave anything out.
    """

    name: str
    places: tuple[str, ...]  # where it may be in the data folder, an archive or a folder: the first that is there
    url: str  # of the files as published, without their names
    md5: Mapping[str, str]  # of these files, by their path in the data folder
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
        arrays, classes = cached(path, lambda: self._decode(path, data_dir))
        require_labels(self.name, labels, tuple(classes))
        train, test = (Split(arrays[f"{part}.images"], arrays[f"{part}.{labels}"]) for part in ("train", "test"))
        look = (self.mean, self.std, self.padding, self.flip)
        return Dataset(self.name, train, test, classes[labels], *look, official_sizes=self.sizes)

    def _find(self, data_dir: Path) -> Path:
        # The archive first: it is whole or its checksums tell, while a folder may be half unpacked.
        places = [data_dir / place for place in self.places]
        if there := [place for place in places if place.exists()]:
            return there[0]
        if data_dir.exists() and not data_dir.is_dir():
            raise DataError(f"{data_dir} is no folder: --data-dir is the folder that holds the data sets.")
        raise DataError(
            f"{self.name} is not in {data_dir}: there is neither {' nor '.join(map(str, places))}. "
            f"Get it with `deeppc data fetch {self.name} --data-dir {data_dir}`, or put the official files there."
        )

    def _decode(self, path: Path, data_dir: Path) -> Decoded:
        try:
            return self.decode(read(path, path.name if path.is_dir() else self.places[-1], self.wanted))
        except BadFileError as error:
            raise DataError(
                f"{path} cannot be used: {error}. Delete it, then get it anew with "
                f"`deeppc data fetch {self.name} --data-dir {data_dir}`."
            ) from error


def read(path: Path, root: str, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """Return the files below ``root`` whose names, relative to it, are ``wanted``.

    ``path`` is a .tar.gz or .zip that holds the folder ``root``, or that folder itself.
    """
    members = _of_folder if path.is_dir() else _of_zip if path.suffix == ".zip" else _of_tar
    files = {}
    try:
        for full_name, size, content in members(path):
            parent, _, name = full_name.removeprefix("./").partition("/")
            if parent == root and wanted(name):
                if size > LARGEST:
                    raise BadFileError(f"{name} claims {size:,} bytes, more than any official file has")
                files[name] = content()
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:
        raise BadFileError(f"it cannot be read ({error})") from error
    return files


# The name of each file in a folder or archive, its size, and how to read it.
Members = Iterator[tuple[str, int, Callable[[], bytes]]]


def _of_folder(path: Path) -> Members:
    for file in walk(path):
        yield file.relative_to(path.parent).as_posix(), file.stat().st_size, file.read_bytes


def _of_zip(path: Path) -> Members:
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            yield member.filename, member.file_size, partial(archive.read, member)


def _of_tar(path: Path) -> Members:
    with gzip.open(path) as stream:
        with tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                if member.isreg() and (file := archive.extractfile(member)):  # no links
                    yield member.name, member.size, file.read
        # tarfile stops at its end mark; gzip compares its checksum only at the very end of the file.
        while stream.read(1 << 20):
            pass
