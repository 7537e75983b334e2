"""MNIST and Fashion-MNIST: IDX files, gzipped or not, from either folder; what is not sound is refused by name."""

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from official import write_folder

from deeppc.data import Batches, DataError, load
from deeppc.models import build

TRAIN, TEST = 30, 20
PLACES = [("mnist", "mnist"), ("mnist", "MNIST/raw"), ("fashion-mnist", "fashion-mnist")]
PLACES += [("fashion-mnist", "FashionMNIST/raw")]


def idx(array: np.ndarray) -> bytes:
    """As the data set's web page describes the format."""
    return (
        bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape) + array.astype(np.uint8).tobytes()
    )


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    rng, found = np.random.default_rng(3), {}
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        found[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (count, 28, 28))
        found[f"{part}-labels-idx1-ubyte"] = np.arange(count) % 10
    return found


@pytest.fixture
def files(arrays) -> dict[str, bytes]:
    return {f"{name}.gz": gzip.compress(idx(array), 1) for name, array in arrays.items()}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(("name", "place"), PLACES)
def test_images_and_labels_are_those_of_the_files(arrays, tmp_path, name, place, zipped):
    form = (lambda n, data: (f"{n}.gz", gzip.compress(data))) if zipped else lambda n, data: (n, data)
    write_folder(tmp_path / place, dict(form(n, idx(array)) for n, array in arrays.items()))
    dataset = load(name, tmp_path)
    for part, split in (("train", dataset.train), ("t10k", dataset.test)):
        assert split.images.dtype == torch.uint8
        np.testing.assert_array_equal(split.images[:, 0].numpy(), arrays[f"{part}-images-idx3-ubyte"])
        assert split.labels.tolist() == arrays[f"{part}-labels-idx1-ubyte"].tolist()
    assert dataset.in_shape == (1, 28, 28)
    assert dataset.flip == (name == "fashion-mnist"), "a mirrored digit is not a digit"
    assert (dataset.padding, len(dataset.classes)) == (2, 10)
    assert "a sample: the official set has 60,000 and 10,000" in str(dataset)


def test_a_file_in_both_forms_is_read_where_it_has_a_checksum(arrays, files, tmp_path):
    plain = {name: idx(np.zeros_like(array)) for name, array in arrays.items()}
    write_folder(tmp_path / "MNIST" / "raw", plain | files | {"notes.txt": b"not read"})
    assert load("mnist", tmp_path).train.labels.tolist() == [i % 10 for i in range(TRAIN)]


IMAGES, LABELS = "train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


def unzipped(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda data: gzip.compress(change(gzip.decompress(data)))


@pytest.mark.parametrize(
    ("name", "edit", "expected"),
    [
        (IMAGES, lambda data: None, f"{IMAGES}.gz is missing"),
        (IMAGES, lambda data: data[:-2000], f"{IMAGES}.gz is damaged (Compressed file ended"),
        (IMAGES, lambda data: data[:-8] + bytes(4) + data[-4:], f"{IMAGES}.gz is damaged (CRC check failed"),
        (IMAGES, lambda data: data + b"x", f"{IMAGES}.gz is damaged (Not a gzipped file"),
        (IMAGES, lambda data: gzip.decompress(data), f"{IMAGES}.gz is damaged (Not a gzipped file"),
        (IMAGES, lambda data: b"", f"{IMAGES}.gz ends within its head"),
        (IMAGES, unzipped(lambda data: data[:15]), f"{IMAGES}.gz ends within its head"),
        (IMAGES, unzipped(lambda data: data[:-1]), "23,519 bytes where 23,520 are expected"),
        (IMAGES, unzipped(lambda data: data + b"\0"), f"{IMAGES}.gz is damaged: after its head it has more bytes"),
        (IMAGES, unzipped(lambda data: b"\0\0\x0d\3" + data[4:]), "it begins with 00000d03, not 00000803"),
        (IMAGES, unzipped(lambda data: b"\0\0\x08\1" + data[4:]), "it begins with 00000801, not 00000803"),
        (IMAGES, unzipped(lambda data: data[:4] + b"\xff" * 12), "more than any official file has"),
        (IMAGES, unzipped(lambda data: idx(np.zeros((30, 14, 56)))), "30 images of 14x56 where some of 28x28"),
        (IMAGES, unzipped(lambda data: idx(np.zeros((0, 28, 28)))), "0 images of 28x28 where some"),
        (LABELS, unzipped(lambda data: idx(np.arange(19) % 10)), f"20 images but {LABELS}.gz 19 labels"),
        (LABELS, unzipped(lambda data: idx(np.arange(20) % 11)), f"{LABELS}.gz has a label 10 where only 0 to 9"),
    ],
)
def test_what_is_damaged_is_refused_by_name(files, tmp_path, name, edit, expected):
    changed = files | {f"{name}.gz": edit(files[f"{name}.gz"])}
    write_folder(tmp_path / "MNIST/raw", {key: data for key, data in changed.items() if data is not None})
    with pytest.raises(DataError) as caught:
        load("mnist", tmp_path)
    for part in (expected, str(tmp_path / "MNIST/raw"), f"deeppc data fetch mnist --data-dir {tmp_path}`"):
        assert part in str(caught.value)


def test_plain_files_are_read_as_strictly(arrays, tmp_path):
    plain = {name: idx(array) for name, array in arrays.items()}
    write_folder(tmp_path / "mnist", plain | {IMAGES: plain[IMAGES] + b"\0"})
    with pytest.raises(DataError, match=f"{IMAGES} is damaged"):
        load("mnist", tmp_path)


def test_missing_files_say_where_they_may_be(tmp_path):
    with pytest.raises(DataError) as caught:
        load("fashion-mnist", tmp_path)
    for part in (str(Path("FashionMNIST/raw")), str(tmp_path / "fashion-mnist"), "deeppc data fetch fashion-mnist"):
        assert part in str(caught.value)


def test_networks_take_its_images_or_say_which_do(files, tmp_path):
    write_folder(tmp_path / "mnist", files)
    dataset = load("mnist", tmp_path)
    images, _ = next(Batches(dataset.train, dataset, batch_size=4).epoch(0))
    for name in ("mlp", "vgg10", "resnet10"):
        assert build(name, in_shape=dataset.in_shape, width=0.05)(images).shape == (4, 10)
    with pytest.raises(ValueError, match=r"28x28 are too small .* are 32x32; mlp and the resnets take any"):
        build("vgg5", in_shape=dataset.in_shape)
