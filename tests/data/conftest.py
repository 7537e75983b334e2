"""Small data sets in the official formats, made on the spot, and the real samples where they are at hand."""

from pathlib import Path

import numpy as np
import pytest
from official import jpeg_of, modern_pickle, python2_pickle, random_rows

SAMPLES = Path(__file__).parents[3] / "shared" / "data"
TINY_CLASSES = {"n02124075": "Egyptian cat", "n04067472": "reel", "n04540053": "volleyball"}


@pytest.fixture(scope="session")
def samples() -> Path:
    if not (SAMPLES / "cifar-10-python.tar.gz").exists():
        pytest.skip("the samples of real data are not on this machine")
    return SAMPLES


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch) -> Path:
    """No test reads or writes the user's own cache folder."""
    folder = tmp_path_factory.mktemp("user-cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def cifar10_files() -> dict[str, bytes]:
    """Six batches of 20 images; image i of each has the label i % 10."""
    rng = np.random.default_rng(1)
    labels = [i % 10 for i in range(20)]
    names = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
    files = {name: python2_pickle(random_rows(rng, 20), labels=labels) for name in names}
    meta = {"num_cases_per_batch": 20, "label_names": [f"class {i}".encode() for i in range(10)]}
    return files | {"batches.meta": modern_pickle(meta), "readme.html": b"not read"}


@pytest.fixture
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


@pytest.fixture
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
