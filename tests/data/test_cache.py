"""The cache: used when valid, rebuilt when stale or damaged, elsewhere when it cannot be written."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from official import write_folder

from deeppc.data import load
from deeppc.data.archives import Archive
from deeppc.data.cache import Decoded, cached

FOLDER = "cifar-10-batches-py"


@pytest.fixture
def data_dir(tmp_path, cifar10_files):
    write_folder(tmp_path / FOLDER, cifar10_files)
    return tmp_path


@pytest.fixture
def decoded(monkeypatch):
    """How often the source was decoded."""
    calls = []
    original = Archive._decode
    monkeypatch.setattr(Archive, "_decode", lambda *args: calls.append(args) or original(*args))
    return calls


def cache_of(data_dir: Path) -> Path:
    return data_dir / ".deeppc-cache" / "cifar10.safetensors"


def test_decoded_once_then_read_back_the_same(data_dir, decoded):
    first, second = load("cifar10", data_dir), load("cifar10", data_dir)
    assert len(decoded) == 1
    assert torch.equal(first.train.images, second.train.images)
    assert torch.equal(first.test.labels, second.test.labels)
    assert first.classes == second.classes
    assert os.listdir(data_dir / ".deeppc-cache") == ["cifar10.safetensors"], "no temporary file stays behind"


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which files are mapped")
def test_the_cache_is_mapped_and_never_written_through(data_dir):
    dataset = load("cifar10", data_dir)
    assert str(cache_of(data_dir)) in Path("/proc/self/maps").read_text()
    before = cache_of(data_dir).read_bytes()
    dataset.train.images.zero_()
    assert cache_of(data_dir).read_bytes() == before


@pytest.mark.parametrize("change", ["time", "size", "name"])
def test_a_changed_source_is_decoded_anew(data_dir, decoded, change):
    load("cifar10", data_dir)
    file = data_dir / FOLDER / "readme.html"
    if change == "time":
        os.utime(file, ns=(1, 1))
    elif change == "size":
        status = file.stat()
        file.write_bytes(file.read_bytes() + b".")
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    else:
        file.rename(file.with_name("read-me.html"))
    load("cifar10", data_dir)
    assert len(decoded) == 2


@pytest.mark.parametrize(
    "damage", [lambda c: c[: len(c) // 2], lambda c: b"", lambda c: bytes(len(c)), lambda c: c + b"x"]
)
def test_a_damaged_cache_is_rebuilt(data_dir, decoded, damage):
    good = load("cifar10", data_dir)
    images = good.train.images.clone()
    cache = cache_of(data_dir)
    content = cache.read_bytes()
    cache.unlink()  # `good` is still mapped
    cache.write_bytes(damage(content))
    assert torch.equal(load("cifar10", data_dir).train.images, images)
    load("cifar10", data_dir)
    assert len(decoded) == 2


def test_no_flipped_bit_goes_unnoticed(tmp_path):
    """Every byte of a small cache in turn: its header, its class names, its arrays."""
    images = np.arange(12, dtype=np.uint8).reshape(1, 3, 2, 2)
    truth = Decoded({"train.images": images, "train.fine": np.array([1])}, {"fine": ("cat", "dog")})
    cached("set", "key", [tmp_path], lambda: truth)
    file = tmp_path / "set.safetensors"
    good = file.read_bytes()
    for place in range(len(good)):
        broken = bytearray(good)
        broken[place] ^= 1 << place % 8
        file.unlink()
        file.write_bytes(broken)
        got = cached("set", "key", [tmp_path], lambda: truth)
        assert got.classes == truth.classes
        assert {name: array.tolist() for name, array in got.arrays.items()} == {
            "train.images": images.tolist(),
            "train.fine": [1],
        }


def test_an_unwritable_data_folder_is_cached_for_the_user(data_dir, decoded, own_cache):
    (data_dir / ".deeppc-cache").write_text("a file where the folder would be")
    first, second = load("cifar10", data_dir), load("cifar10", data_dir)
    assert len(decoded) == 1
    assert torch.equal(first.train.images, second.train.images)
    assert len(list(own_cache.rglob("cifar10.safetensors"))) == 1


def test_without_any_cache_the_data_still_load(data_dir, tmp_path, monkeypatch):
    expected = load("cifar10", data_dir).train.images.clone()
    cache_of(data_dir).unlink()
    cache_of(data_dir).parent.rmdir()
    blocked = tmp_path / "blocked"
    blocked.touch()
    cache_of(data_dir).parent.touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert torch.equal(load("cifar10", data_dir).train.images, expected)
