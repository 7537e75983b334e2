"""The 1,797 handwritten digits that come with scikit-learn: real data that needs no download.

Enlarged from 8x8 to 32x32, one channel, so the same networks take them. One in five of each class is the test set,
always the same.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn.functional import interpolate

from deeppc.data.registry import dataset, require_labels
from deeppc.data.splits import Dataset, Split, holdout


@dataset("digits")
def digits(data_dir: Path, labels: str) -> Dataset:
    """Load the digits; ``data_dir`` is not used."""
    require_labels("digits", labels, ("fine",))
    from sklearn.datasets import load_digits  # slow to import, and only needed here

    source = load_digits()
    coarse = torch.from_numpy(source.images).float().unsqueeze(1)  # (N, 1, 8, 8), integers 0 to 16
    # At factor 4 the bilinear weights are multiples of 1/64: the result is exact, the same on every machine.
    smooth = interpolate(coarse, scale_factor=4, mode="bilinear")
    images = (smooth * 255 / 16).round().to(torch.uint8)
    train, test = holdout(Split(images, torch.from_numpy(source.target).long()), fraction=0.2, seed=0)
    return Dataset(
        name="digits",
        train=train,
        test=test,
        classes=tuple(str(digit) for digit in range(10)),
        mean=(0.3063,),  # of the training images
        std=(0.3241,),
        padding=2,  # half a pixel of the original
        flip=False,  # a mirrored digit is not a digit
        official_sizes=(len(train), len(test)),
    )
