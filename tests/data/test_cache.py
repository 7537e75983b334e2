"""The cache: used when valid, rebuilt when stale or damaged, done without where it cannot be written."""

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


def test_decoded_once_then_mapped_and_never_written_through(data_dir, decoded, own_cache):
    first, second = load("cifar10", data_dir), load("cifar10", data_dir)
    assert len(decoded) == 1
    assert torch.equal(first.train.images, second.train.images)
    assert torch.equal(first.test.labels, second.test.labels)
    assert first.classes == second.classes
    (cache,) = own_cache.rglob("*.*")  # no temporary file stays behind
    if sys.platform == "linux":
        assert str(cache) in Path("/proc/self/maps").read_text()
    before = cache.read_bytes()
    first.train.images.zero_()
    assert cache.read_bytes() == before


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


def test_no_damage_goes_unnoticed(tmp_path, own_cache):
    """A flipped bit in each byte of a small cache in turn (header, class names, arrays), and other lengths."""
    images = np.arange(12, dtype=np.uint8).reshape(1, 3, 2, 2)
    truth = Decoded({"train.images": images, "train.fine": np.array([1])}, {"fine": ("cat", "dog")})
    assert cached(tmp_path, lambda: truth).classes == truth.classes
    (cache,) = own_cache.rglob("*.*")
    good = cache.read_bytes()
    flipped = [good[:i] + bytes([good[i] ^ 1 << i % 8]) + good[i + 1 :] for i in range(len(good))]
    for broken in (*flipped, b"", good[: len(good) // 2], bytes(len(good)), good + b"x"):
        cache.unlink()
        cache.write_bytes(broken)
        got = cached(tmp_path, lambda: truth)
        assert got.classes == truth.classes
        assert {name: array.tolist() for name, array in got.arrays.items()} == {
            "train.images": images.tolist(),
            "train.fine": [1],
        }
    cached(tmp_path, lambda: pytest.fail("it was not rebuilt"))


def test_without_any_cache_the_data_still_load(data_dir, tmp_path, decoded, monkeypatch):
    (tmp_path / "blocked").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "blocked"))
    first, second = load("cifar10", data_dir), load("cifar10", data_dir)
    assert torch.equal(first.train.images, second.train.images)
    assert len(decoded) == 2
