"""A loaded data set: inputs, labels, and how to present them to a network."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import numpy as np
import torch
from torch import Tensor

from deeppc.core.arguments import checked
from deeppc.data.seeding import generator
from deeppc.errors import DataError

MOST_CLASSES = 1_000_000  # of which nobody has told the names
TOKENS = (torch.int32, torch.int64)  # numbers that a network looks up


@dataclass(frozen=True, eq=False)
class Split:
    """Samples with their labels.

    ``images``  uint8 (N, C, H, W); or floats (N, ...), which a network gets as they are.
    ``labels``  int64 (N,), classes; or floats (N, ...), targets.
    """

    images: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set and its protocol.

    Pixels in [0, 1] are shifted by ``mean`` and divided by ``std`` per channel; training images are cropped at random
    after ``padding`` black pixels on each side, and mirrored half of the time where ``flip``. ``classes`` is empty
    where labels are float targets. ``official_sizes`` are those of the whole training and test set, as published.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    padding: int = 0
    flip: bool = False
    official_sizes: tuple[int, int] | None = None
    note: str = ""  # what a user should know about how it was made

    @property
    def in_shape(self) -> tuple[int, ...]:
        """Shape of one sample: (channels, height, width) of an image."""
        return tuple(self.train.images.shape[1:])

    @property
    def outputs(self) -> int:
        """Size of a network's output: the classes, or the elements of a float target."""
        return len(self.classes) or prod(self.train.labels.shape[1:])

    @property
    def complete(self) -> bool:
        """Whether this is the whole published set; results on a sample of it compare with no others."""
        return self.official_sizes in (None, (len(self.train), len(self.test)))

    def __str__(self) -> str:
        kind = "images" if self.train.images.dtype == torch.uint8 else "samples"
        sizes = f"{len(self.train):,} training and {len(self.test):,} test {kind} of {_by(self.in_shape)}"
        answers = f"{len(self.classes)} classes" if self.classes else f"targets of {_by(self.train.labels.shape[1:])}"
        note = self.note
        if self.official_sizes and not self.complete:
            note = "a sample: the official set has {:,} and {:,}".format(*self.official_sizes)
        return f"{self.name}: {sizes}, {answers}" + (f" ({note})" if note else "")


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "1"


@checked
def from_tensors(
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    *,
    name: str = "tensors",
    classes: tuple[str, ...] | None = None,
    note: str = "",
) -> Dataset:
    """Return a data set of (inputs, labels) for training and for the test.

    Inputs: uint8 images (N, C, H, W), which are normalised by the mean and standard deviation of the training images;
    or floats, or token numbers (int64), (N, ...), which a network gets as they are. Labels: integers (N,) from 0, or
    floats (N, ...). ``classes``: their names; None numbers them.
    """
    splits = {"train": _split("train", *train), "test": _split("test", *test)}
    ours, theirs = (
        " and ".join(f"{_by(tensor.shape[1:])} {tensor.dtype}" for tensor in (split.images, split.labels))
        for split in splits.values()
    )
    if ours != theirs:
        raise DataError(f"Training and test samples of {name} do not match: {ours}, but {theirs}.")
    images, labels = splits["train"].images, splits["train"].labels
    if not labels.is_floating_point():
        if not classes and int(labels.max()) >= MOST_CLASSES:
            raise DataError(f"{name} has a train label {int(labels.max())}: expected classes numbered from 0.")
        classes = classes or tuple(str(label) for label in range(int(labels.max()) + 1))
        for part, split in splits.items():
            if outside := split.labels[(split.labels < 0) | (split.labels >= len(classes))].tolist():
                raise DataError(f"{name} has a {part} label {outside[0]} where only 0 to {len(classes) - 1} exist.")
    mean, std = _statistics(images) if images.dtype == torch.uint8 else ((), ())
    return Dataset(name, splits["train"], splits["test"], classes or (), mean, std, note=note)


def check(part: str, images: Tensor, labels: Tensor) -> None:
    """Raise DataError unless there are samples, with something in each, and a label or a float target for each."""
    if any(tensor.layout != torch.strided or tensor.is_meta for tensor in (images, labels)):
        raise DataError(f"The {part} inputs or labels are sparse, or have no values: give dense tensors.")
    if not (images.ndim and labels.ndim and images.numel() and labels.numel()):
        shapes = f"The {part} inputs have the shape {tuple(images.shape)}, their labels {tuple(labels.shape)}"
        raise DataError(f"{shapes}: expected samples, and a label for each.")
    if len(images) != len(labels):
        raise DataError(f"There are {len(images)} {part} inputs, but {len(labels)} labels.")
    if labels.ndim != 1 and not labels.is_floating_point():
        raise DataError(f"The {part} labels are integers of {tuple(labels.shape)}: expected one for each sample, (N,).")


def _split(part: str, images: Tensor, labels: Tensor) -> Split:
    """Check one pair of tensors; integer labels become int64."""
    check(part, images, labels)
    images_of_bytes = images.dtype == torch.uint8 and images.ndim == 4
    if not images.is_floating_point() and images.dtype not in TOKENS and not images_of_bytes:
        found = f"{images.dtype} of {tuple(images.shape)}"
        raise DataError(
            f"The {part} inputs are {found}: expected uint8 images (N, C, H, W), floats, or token numbers (int64)."
        )
    if not images.isfinite().all() or not labels.isfinite().all():
        raise DataError(f"The {part} inputs or labels have values that are not finite.")
    if labels.is_floating_point():
        return Split(images, labels if labels.ndim > 1 else labels[:, None])
    return Split(images, labels.long())


def _statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation by channel of uint8 (N, C, H, W), in units of 255; exact sums."""
    total, squares = torch.zeros(2, images.shape[1], dtype=torch.int64)
    for start in range(0, len(images), 1024):
        values = images[start : start + 1024].long()
        total += values.sum((0, 2, 3)).cpu()
        squares += values.square().sum((0, 2, 3)).cpu()
    count = images.numel() // images.shape[1]
    mean = total.double() / count
    std = (squares.double() / count - mean.square()).clamp(min=0).sqrt()
    std[std == 0] = 255.0  # a channel of one value
    return tuple((mean / 255).tolist()), tuple((std / 255).tolist())


@checked
def holdout(split: Split, fraction: float, seed: int) -> tuple[Split, Split]:
    """Divide ``split`` into (train, validation), with ``fraction`` of the samples in validation.

    Stratified: every class gives its share to within one sample, and the shares add up to
    ``round(fraction * len(split))``; float targets are drawn from alike. The parts keep the order of ``split`` and
    depend only on the arguments.
    """
    if not 0 < fraction < 1:
        raise DataError(f"The held-out fraction is {fraction}: choose one above 0 and below 1.")
    labels = np.zeros(len(split)) if split.labels.is_floating_point() else split.labels.cpu().numpy()
    total = round(fraction * len(labels))
    if not 0 < total < len(labels):
        raise DataError(
            f"Holding out {fraction} of {len(labels)} images leaves one part empty: choose another fraction."
        )
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
