"""Small data sets in the official formats, made on the spot, and the real samples where they are at hand."""

from pathlib import Path

import pytest
from official import cifar10_files, cifar100_files, tiny_files

SAMPLES = Path(__file__).parents[3] / "shared" / "data"


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


@pytest.fixture(name="cifar10_files")
def _cifar10_files() -> dict[str, bytes]:
    return cifar10_files()


@pytest.fixture(name="cifar100_files")
def _cifar100_files() -> dict[str, bytes]:
    return cifar100_files()


@pytest.fixture(name="tiny_files")
def _tiny_files() -> dict[str, bytes]:
    return tiny_files()
