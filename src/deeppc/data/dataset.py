"""What every data set looks like once loaded: uint8 images, labels, and how to present them to a network."""

from dataclasses import dataclass, field

import numpy as np
import torch

from deeppc.data.seeding import generator
from deeppc.errors import DataError


@dataclass(frozen=True, eq=False)
class Split:
    """Images with their labels: `images` uint8 (N, C, H, W), `labels` int64 (N,)."""

    images: torch.Tensor = field(repr=False)
    labels: torch.Tensor = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set and its protocol: pixels in [0, 1] are shifted by `mean` and divided by `std` per channel;
    training images are cropped at random after `padding` black pixels on each side, and mirrored half of
    the time where `flip`."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int
    flip: bool
    official_sizes: tuple[int, int]  # training and test images of the whole set, as published

    @property
    def in_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of one image."""
        channels, height, width = self.train.images.shape[1:]
        return channels, height, width

    @property
    def complete(self) -> bool:
        """Whether this is the whole published set; results on a sample compare with nobody's."""
        return (len(self.train), len(self.test)) == self.official_sizes

    def __str__(self) -> str:
        shape = "x".join(map(str, self.in_shape))
        text = (
            f"{self.name}: {len(self.train):,} training and {len(self.test):,} test images of {shape}, "
            f"{len(self.classes)} classes"
        )
        if self.complete:
            return text
        train, test = self.official_sizes
        return f"{text} (a sample: the official set has {train:,} and {test:,})"


def holdout(split: Split, fraction: float, seed: int) -> tuple[Split, Split]:
    """Divide `split` into (train, validation), with `fraction` of the images in validation.

    Stratified: every class gives its share to within one image, and the shares add up to
    `round(fraction * len(split))`. The parts keep the order of `split` and depend only on the arguments.
    """
    if not 0 < fraction < 1:
        raise DataError(f"The held-out fraction is {fraction}: choose one above 0 and below 1.")
    labels = split.labels.cpu().numpy()
    total = round(fraction * len(labels))
    if not 0 < total < len(labels):
        raise DataError(f"Holding out {fraction} of {len(labels)} images leaves one part empty.")
    classes, counts = np.unique(labels, return_counts=True)
    exact = fraction * counts
    shares = np.floor(exact).astype(np.int64)
    # Largest remainders: rounding each class by itself would hold out 2 of 25, 8 % where 10 % was asked.
    missing = total - int(shares.sum())
    shares[np.argsort(shares - exact, kind="stable")[:missing]] += 1

    rng = generator("holdout", seed)
    held = np.zeros(len(labels), dtype=bool)
    for label, share in zip(classes, shares, strict=True):
        held[rng.permutation(np.flatnonzero(labels == label))[:share]] = True
    return _take(split, ~held), _take(split, held)


def _take(split: Split, mask: np.typing.NDArray[np.bool_]) -> Split:
    chosen = torch.from_numpy(np.flatnonzero(mask)).to(split.labels.device)
    return Split(split.images.index_select(0, chosen), split.labels.index_select(0, chosen))
