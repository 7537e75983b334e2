"""The default data set: scikit-learn's digits, enlarged, always divided in the same way."""

import hashlib

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from deeppc.data import Dataset, load


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load("digits", data_dir="a folder that need not exist")


def enlarge(image: np.ndarray) -> np.ndarray:
    """Bilinear, pixel by pixel: pixel i of the large image lies at (i + 0.5) / 4 - 0.5 of the small one."""
    large = np.empty((32, 32))
    for i in range(32):
        for j in range(32):
            y, x = (min(max((k + 0.5) / 4 - 0.5, 0), 7) for k in (i, j))
            top, left = int(y), int(x)
            bottom, right = min(top + 1, 7), min(left + 1, 7)
            upper = image[top, left] * (1 - x + left) + image[top, right] * (x - left)
            lower = image[bottom, left] * (1 - x + left) + image[bottom, right] * (x - left)
            large[i, j] = upper * (1 - y + top) + lower * (y - top)
    return np.rint(large * 255 / 16).astype(np.uint8)


def test_every_digit_is_there_once(digits):
    source = load_digits()
    assert digits.in_shape == (1, 32, 32)
    assert (len(digits.train), len(digits.test)) == (1438, 359)
    labels = torch.cat((digits.train.labels, digits.test.labels))
    assert labels.bincount().tolist() == np.bincount(source.target).tolist()
    got = {image.numpy().tobytes() for split in (digits.train, digits.test) for image in split.images}
    chosen = np.random.default_rng(0).choice(1797, 20, replace=False)
    assert all(enlarge(source.images[i]).tobytes() in got for i in chosen)
    assert len(got) == len({image.tobytes() for image in source.images}), "none was left out"


def test_the_division_is_fixed(digits):
    """Results on digits are comparable across machines and versions only as long as this digest stays."""
    digest = hashlib.sha256(digits.test.images.numpy().tobytes() + digits.test.labels.numpy().tobytes())
    assert digest.hexdigest()[:16] == "1085d4b7b7c9e71e"


def test_how_digits_are_presented(digits):
    values = digits.train.images.double() / 255
    assert values.mean().item() == pytest.approx(digits.mean[0], abs=5e-5)
    assert values.std().item() == pytest.approx(digits.std[0], abs=5e-5)
    assert (digits.padding, digits.flip) == (2, False), "shifted, but never mirrored"
    assert digits.classes == tuple("0123456789")
    assert digits.complete
    assert str(digits) == "digits: 1,438 training and 359 test images of 1x32x32, 10 classes"
