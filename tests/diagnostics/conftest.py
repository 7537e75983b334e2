"""A small data set, made at once."""

import pytest
import torch

from deeppc.data import Dataset, Split


@pytest.fixture(scope="session")
def dataset() -> Dataset:
    """60 grey images of 16x16 random pixels in ten classes."""
    chance = torch.Generator().manual_seed(0)
    images = torch.randint(256, (60, 1, 16, 16), generator=chance, dtype=torch.uint8)
    split = Split(images, torch.arange(60) % 10)
    return Dataset("random", split, split, classes=tuple("0123456789"), mean=(0.5,), std=(0.25,))
