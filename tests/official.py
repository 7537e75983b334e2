"""Files as the official data sets have them, and the archives that hold them."""

import io
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image


def python2_pickle(rows: np.ndarray, **labels: list[int]) -> bytes:
    """A batch byte for byte as Python 2's cPickle and numpy 1 wrote the official files."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85" + text(b"b") + b"\x87Rq\x09"
        b"(K\x01" + number(rows.shape[0]) + number(rows.shape[1]) + b"\x86"
        b"cnumpy\ndtype\nq\x0a" + text(b"u1") + b"K\x00K\x01\x87Rq\x0b"
        b"(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<i", rows.size) + rows.tobytes() + b"tb"
    )
    lists = b"".join(
        text(key.encode()) + b"](" + b"".join(map(number, values)) + b"e" for key, values in labels.items()
    )
    name = text(b"batch_label") + text(b"training batch 1 of 5")
    return b"\x80\x02}q\x01(" + name + lists + text(b"data") + array + b"u."


def modern_pickle(content: dict) -> bytes:
    """As Python 3 and numpy 2 write it, with the byte-string keys that the official files have."""
    return pickle.dumps({key.encode(): value for key, value in content.items()}, protocol=2)


def random_rows(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.integers(0, 256, (count, 3072), dtype=np.uint8)


def jpeg_of(pixels: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95)
    return buffer.getvalue()


def in_archive(root: str, files: dict[str, bytes]) -> dict[str, bytes]:
    """Names as they stand in an archive: below the data set's folder."""
    return {f"{root}/{name}": content for name, content in files.items()}


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_tar(path: Path, files: dict[str, bytes], links: Sequence[tarfile.TarInfo] = ()) -> Path:
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for link in links:
            archive.addfile(link)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def write_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


# ---- small data sets in the official formats ----

TINY_CLASSES = {"n02124075": "Egyptian cat", "n04067472": "reel", "n04540053": "volleyball"}


def cifar10_files() -> dict[str, bytes]:
    """Six batches of 20 images; image i of each has the label i % 10."""
    rng = np.random.default_rng(1)
    labels = [i % 10 for i in range(20)]
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    files = {name: python2_pickle(random_rows(rng, 20), labels=labels) for name in names}
    meta = {"num_cases_per_batch": 20, "label_names": [f"class {i}".encode() for i in range(10)]}
    return files | {"batches.meta": modern_pickle(meta), "readme.html": b"not read"}


def cifar100_files() -> dict[str, bytes]:
    rng = np.random.default_rng(2)
    fine, coarse = [i % 100 for i in range(200)], [i % 100 // 5 for i in range(200)]
    batch = {"fine_labels": fine, "coarse_labels": coarse}
    meta = {
        "fine_label_names": [f"fine {i}".encode() for i in range(100)],
        "coarse_label_names": [f"coarse {i}".encode() for i in range(20)],
    }
    return {
        "train": python2_pickle(random_rows(rng, 200), **batch),
        "test": modern_pickle(batch | {"data": random_rows(rng, 200)}),
        "meta": modern_pickle(meta),
    }


def tiny_files() -> dict[str, bytes]:
    """Three classes of three training images, two validation images each; every third one is greyscale.

    Every image is a single grey tone, which JPEG keeps to within a step or two.
    """
    files = {"wnids.txt": "\n".join(TINY_CLASSES).encode(), "test/images/test_0.JPEG": b"not read"}
    words = {**TINY_CLASSES, "n00000000": "a class of the full ImageNet"}
    files["words.txt"] = "".join(f"{wnid}\t{word}, synonym\n" for wnid, word in words.items()).encode()
    annotations = ""
    for label, wnid in enumerate(TINY_CLASSES):
        boxes = ""
        for i in range(5):
            shape = (64, 64) if i % 3 == 2 else (64, 64, 3)
            image = jpeg_of(np.full(shape, 40 * label + 10 * i, dtype=np.uint8))
            if i < 3:
                files[f"train/{wnid}/images/{wnid}_{i}.JPEG"] = image
                boxes += f"{wnid}_{i}.JPEG\t0\t0\t63\t63\n"
            else:
                files[f"val/images/val_{label}{i}.JPEG"] = image
                annotations += f"val_{label}{i}.JPEG\t{wnid}\t0\t0\t63\t63\n"
        files[f"train/{wnid}/{wnid}_boxes.txt"] = boxes.encode()
    return files | {"val/val_annotations.txt": annotations.encode()}
