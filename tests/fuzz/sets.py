"""Bad data: archives of the published sets in miniature, folders of images, files of arrays."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import Outcome, damage, kind, refused_untouched
from official import (
    cifar10_files,
    cifar100_files,
    in_archive,
    modern_pickle,
    tiny_files,
    write_folder,
    write_tar,
    write_zip,
)
from PIL import Image

from deeppc.data import load

# ---- archives ----


ARCHIVES = {  # the archive, the folder in it, and its files
    "cifar10": ("cifar-10-python.tar.gz", "cifar-10-batches-py", cache(cifar10_files)),
    "cifar100": ("cifar-100-python.tar.gz", "cifar-100-python", cache(cifar100_files)),
    "tiny-imagenet": ("tiny-imagenet-200.zip", "tiny-imagenet-200", cache(tiny_files)),
}
PICKLES = [{}, {"data": 3}, {"labels": None}, {"data": np.zeros((0, 3072), np.uint8), "labels": []}]
PICKLES += [{"data": np.zeros((2, n), np.uint8), "labels": [0, label]} for n, label in ((3072, 77), (5, 0))]


def packed(name: str, files: dict[str, bytes], links: tuple[tarfile.TarInfo, ...] = ()) -> bytes:
    path, root, _ = ARCHIVES[name]
    made, inside = Path(path), in_archive(root, files)
    return (write_zip(made, inside) if made.suffix == ".zip" else write_tar(made, inside, links)).read_bytes()


@kind("archives of data sets")
def archives(rng: random.Random, place: Path) -> Outcome:
    """Either the archive itself is damaged, which its checksums must find, or something in it."""
    name = rng.choice([*ARCHIVES])
    path, root, members = ARCHIVES[name]
    files, whole = dict(members()), None
    inner = rng.choice([*files])
    way = rng.choice(["archive", "archive", "member", "member", "pickle", "name", "link", "folder"])
    if way == "archive":
        data, how = damage(rng, packed(name, files), [b"nonsense"])
        whole = files
    elif way == "link":
        link = tarfile.TarInfo(rng.choice([f"{root}/{inner}", "/etc/x", "../x"]))
        link.type, link.linkname = rng.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]), "/etc/passwd"
        data, how = packed(name, files, (link,)), f"a link or pipe called {link.name}"
    else:
        if way in ("member", "folder"):
            content, how = damage(rng, files.pop(inner), [*files.values()])
            files |= {} if content is None else {inner: content}
        elif way == "pickle":
            files[inner], how = modern_pickle(rng.choice(PICKLES)), "of other content"
        else:
            renamed, how = rng.choice(["../x", "/x", "é", "x" * 300, "a/" * 60 + "x"]), "under another name"
            files[renamed] = files.pop(inner)
        data, how = packed(name, files) if way != "folder" else b"", f"{inner} {how}"
    Path(path).unlink(missing_ok=True)
    if way == "folder":
        write_folder(place / "data" / root, files)
    elif data is not None:
        (place / "data").mkdir()
        (place / "data" / path).write_bytes(data)
    kinds = ["fine", "coarse"] if name == "cifar100" else ["fine"]
    return loaded(f"{name}, {way}: {how}", lambda: load(name, "data", rng.choice(kinds)), place, whole and name)


@cache
def good(name: str) -> Any:
    """The set as it is in a good archive."""
    packed(name, ARCHIVES[name][2]())
    return load(name, ".")


def loaded(case: str, call: Callable[[], Any], place: Path, same_as: str | None = None) -> Outcome:
    """Load; what is accepted must be sound, and, if it is to be, the ``same_as`` a good set."""
    found: list[Any] = []
    outcome = refused_untouched(case, lambda: found.append(call()), place, command=False)
    if outcome.verdict == "accepted":
        (dataset,) = found
        for split in (dataset.train, dataset.test):
            if not len(split) or len(split.images) != len(split.labels) or not split.images.isfinite().all():
                return outcome.lost("an empty or contradictory set was accepted")
        if same_as is not None and not all(
            torch.equal(getattr(dataset, part).images, getattr(good(same_as), part).images)
            for part in ("train", "test")
        ):
            return outcome.lost("other images than were packed")
    return outcome


# ---- images ----


def picture(rng: random.Random) -> bytes:
    """An image, as users have them."""
    mode = rng.choice(["L", "RGB", "RGB", "RGBA", "P", "1", "CMYK", "I", "F", "LA", "I;16", "YCbCr", "HSV"])
    form = rng.choice(["PNG", "PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
    size = rng.choice([(8, 8), (8, 8), (8, 8), (9, 8), (1, 1), (3000, 1)])
    buffer = io.BytesIO()
    try:
        image = Image.new(mode, size)
        image.save(buffer, form, **({"save_all": True, "append_images": [image]} if form in ("GIF", "TIFF") else {}))
    except (OSError, ValueError, KeyError):
        Image.new("RGB", size).save(buffer, "PNG")
    return buffer.getvalue()


@cache
def plain() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(buffer, "PNG")
    return buffer.getvalue()


@kind("a user's folder of images")
def images(rng: random.Random, place: Path) -> Outcome:
    folder, how = place / "mine", []
    for part in rng.choice([("",), ("train", "test"), ("train", "val"), ("train", "test", "val")]):
        for label in ("cat", "dog"):
            write_folder(folder / part / label, {f"{i}.png": plain() for i in range(3)})
    places = sorted(folder.rglob("*.png"))
    for path in rng.sample(places, rng.choice([1, 1, 2])):
        way = rng.choice(["odd", "damaged", "damaged", "named", "folder", "link", "gone", "class", "huge", "text"])
        odd = rng.choice([".png", "x.PNG", "é.png", "\udcff.png", "a b.jpeg", "x.gif", "x.txt", "Thumbs.db", "x.tiff"])
        path.unlink()
        content, more = damage(rng, picture(rng), [plain()])
        written = {"odd": picture(rng), "damaged": content or b"", "huge": bomb(), "text": b"no image"}
        match way:
            case "named":
                path.with_name(odd).write_bytes(picture(rng))
            case "folder":
                path.mkdir()
            case "link":
                path.symlink_to(rng.choice([path.parent, path, folder, place / "nowhere", "/dev/null"]))
            case "class":
                (path.parents[1] / rng.choice(["empty", ".hidden", "é", "\udcff"])).mkdir(exist_ok=True)
            case "odd" | "damaged" | "huge" | "text":
                path.write_bytes(written[way])
        how.append(f"{path.relative_to(folder)} {way} {odd!r} {more}")
    return loaded(f"images: {', '.join(how)}", lambda: load(folder), place)


@cache
def bomb() -> bytes:
    """A small file that says it is an image of 10^10 pixels."""
    data = bytearray(plain())
    data[16:24] = (100_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data)


# ---- arrays ----

ARRAYS: list[Any] = [np.zeros((6, 4), kind) for kind in ("f4", "f8", "f2", "i4", "u1", "b1", "c8", "M8[s]", "U3", "O")]
ARRAYS += [
    np.zeros(shape, "u1") for shape in ((), 0, 6, (6, 8, 8), (6, 8, 8, 3), (6, 3, 8, 8), (6, 8, 8, 2), (5, 8, 8))
]
ARRAYS += map(
    np.array, ([0, 1] * 3, [0, -1, 0, 1, 0, 9], [float("nan")] * 6, "x", 3, [[0]] * 6, [10**12] * 6, [{}] * 6)
)
ARRAYS += [
    np.full((6, 4), np.inf),
    np.array([2**63] * 6, "u8"),
    np.zeros(6, [("a", "i4"), ("b", "f4")]),
    np.zeros((6, 0)),
]


@kind("files of arrays (.npz)")
def arrays(rng: random.Random, place: Path) -> Outcome:
    x, y = np.zeros((6, 8, 8), np.uint8), np.arange(6) % 2
    pairs = rng.choice([("x_train", "y_train", "x_test", "y_test"), ("x", "y"), ("images", "labels")])
    content: dict[str, Any] = dict(zip(pairs, [x, y, x, y], strict=False))
    how = []
    for _ in range(rng.choice([0, 1, 1, 2])):
        name = rng.choice([*content, "classes", "classes", "y_test", "nonsense"])
        content[name] = rng.choice(ARRAYS)
        how.append(f"{name} is {content[name].dtype} {content[name].shape}")
        if rng.random() < 0.1:
            content.pop(rng.choice([*content]))
    path, buffer = place / rng.choice(["mine.npz", "mine.npz", "mine", "é.npz"]), io.BytesIO()
    np.savez(buffer, **content)
    data: bytes | None = buffer.getvalue()
    if rng.random() < 0.4 or not how:
        single = io.BytesIO()
        np.save(single, x)
        with zipfile.ZipFile(other := io.BytesIO(), "w") as archive:
            archive.writestr("x_train.npy", b"no array")
        data, more = damage(rng, buffer.getvalue(), [single.getvalue(), other.getvalue(), b"PK\x03\x04"])
        how.append(more)
    if data is not None:
        path.write_bytes(data)
    return loaded(f"{path.name}: {', '.join(how)}", lambda: load(str(path)), place)
