"""Six corruptions of images, from level 0 (none) to 0.5 (bad; at most 1), and the scores of a network under them.

| kind | what ``level`` is |
|---|---|
| gaussian_noise | standard deviation of the noise added to each value |
| salt_and_pepper | fraction of the pixels that become black or white, as many of each |
| gaussian_blur | standard deviation of the blur, in eighths of the image's shorter side: 2 pixels of 32 at 0.5 |
| contrast | fraction of each value's distance from the image's mean that is lost |
| brightness | what is added to each value |
| occlusion | fraction of the image that a black rectangle of the image's proportions covers, anywhere in it |

The paper names neither its six corruptions nor what their levels mean; these are the specification's. The random
ones are nested: a pixel that is spoilt at one level is spoilt at every higher one, by the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from deeppc.core.arguments import checked
from deeppc.data import Batches, Dataset, Split
from deeppc.data.seeding import generator
from deeppc.diagnostics.calibration import ada_ece, answers

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5)
CHUNK = 1000  # images that are corrupted at once: as floats, a whole split may not fit


@checked
def corrupt(images: Tensor, kind: str, level: float, seed: int = 0) -> Tensor:
    """Corrupt ``images``, float (N, C, H, W) with values in [0, 1], keeping shape, type, device and range.

    These are images before normalisation; for those of a data set see :func:`corrupt_split`. The outcome depends on
    the arguments alone, not on torch's random state or the device (up to rounding). Others raise ``ValueError``.
    """
    require_known(kind, level)
    if images.dim() != 4 or not images.is_floating_point():
        raise ValueError(f"images are {images.dtype} of the shape {tuple(images.shape)}: expected floats (N, C, H, W)")
    if images.numel() and not bool(((images >= 0) & (images <= 1)).all()):
        raise ValueError("images must have values from 0 to 1: corrupt them before they are normalised")
    return _corrupted(images, kind, level, generator(f"corrupt by {kind}", seed))


@checked
def corrupt_split(split: Split, kind: str, level: float, seed: int = 0) -> Split:
    """Corrupt the images of a split, rounded back to uint8, so that they can be loaded and evaluated as ever:
    ``Batches(corrupt_split(dataset.test, "contrast", 0.3), dataset, augment=False, shuffle=False)``."""
    require_known(kind, level)
    rng = generator(f"corrupt by {kind}", seed)  # one for all chunks: the outcome does not depend on their size
    spoilt = torch.empty_like(split.images)
    for start in range(0, len(split), CHUNK):
        part = _corrupted(split.images[start : start + CHUNK].float() / 255, kind, level, rng)
        spoilt[start : start + CHUNK] = (255 * part).round()
    return Split(spoilt, split.labels)


def require_known(kind: str, level: float) -> None:
    """Raise ``ValueError`` for an unknown kind, and for a level outside of [0, 1]."""
    if kind not in _HOW:
        raise ValueError(f"unknown corruption {kind!r}: choose {', '.join(KINDS)}")
    if not 0 <= level <= 1:
        raise ValueError(f"the level of a corruption is {level}, but must be from 0 to 1")


def _corrupted(images: Tensor, kind: str, level: float, rng: np.random.Generator) -> Tensor:
    if level == 0 or not images.numel():
        return images.clone()
    return _HOW[kind](images, level, rng).clamp_(0, 1)


def _gaussian_noise(images: Tensor, level: float, rng: np.random.Generator) -> Tensor:
    noise = torch.from_numpy(rng.standard_normal(tuple(images.shape), dtype=np.float32))
    return images + level * noise.to(images)


def _salt_and_pepper(images: Tensor, level: float, rng: np.random.Generator) -> Tensor:
    n, _, height, width = images.shape
    draws = torch.from_numpy(rng.random((n, 2, 1, height, width), dtype=np.float32)).to(images.device)
    spoilt, colour = draws.unbind(1)  # one draw for all channels of a pixel
    return torch.where(spoilt < level, (colour < 0.5).to(images.dtype), images)


def _gaussian_blur(images: Tensor, level: float, rng: np.random.Generator) -> Tensor:
    """One axis after the other; beyond its border an image goes on as it is there."""
    n, channels, height, width = images.shape
    sigma = level * min(height, width) / 8
    radius = math.ceil(4 * sigma)
    places = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights = torch.exp(-((places / sigma) ** 2) / 2)
    weights = (weights / weights.sum()).to(images)
    single = pad(images.reshape(n * channels, 1, height, width), (radius,) * 4, mode="replicate")
    blurred = conv2d(conv2d(single, weights.view(1, 1, -1, 1)), weights.view(1, 1, 1, -1))
    return blurred.view(images.shape)


def _occlusion(images: Tensor, level: float, rng: np.random.Generator) -> Tensor:
    """A rectangle that grows with the level in all directions: its corner is at a drawn share of the free room."""
    covered = []  # rows and columns: bool (N, size)
    for size, share in zip(images.shape[2:], torch.from_numpy(rng.random((len(images), 2))).unbind(1), strict=True):
        length = round(size * math.sqrt(level))
        start = (share * (size - length)).floor().unsqueeze(1)
        places = torch.arange(size)
        covered.append(((places >= start) & (places < start + length)).to(images.device))
    rows, columns = covered
    return images.masked_fill((rows[:, :, None] & columns[:, None, :]).unsqueeze(1), 0.0)


_HOW: dict[str, Callable[[Tensor, float, np.random.Generator], Tensor]] = {
    "gaussian_noise": _gaussian_noise,
    "salt_and_pepper": _salt_and_pepper,
    "gaussian_blur": _gaussian_blur,
    "contrast": lambda images, level, _: torch.lerp(images, images.mean(dim=(1, 2, 3), keepdim=True), level),
    "brightness": lambda images, level, _: images + level,
    "occlusion": _occlusion,
}
KINDS = tuple(_HOW)


@dataclass(frozen=True)
class Score:
    """Accuracy and adaECE (of the scaled logits) under one corruption at one level."""

    kind: str
    level: float
    accuracy: float
    ada_ece: float


@checked
def under_corruption(
    net: nn.Module,
    split: Split,
    kinds: Sequence[str] = KINDS,
    levels: Sequence[float] = LEVELS,
    *,
    dataset: Dataset,
    temperature: float = 1.0,
    seed: int = 0,
) -> list[Score]:
    """Evaluate ``net`` on ``split`` under every kind at every level, each in one pass over all the images.

    ``dataset`` says how images are normalised. ``temperature`` divides the logits before they are read as
    probabilities: fit it on clean held-out images (:func:`deeppc.diagnostics.calibration.fit_temperature`). Scores
    come kind by kind, each by its levels. Networks that are compared see the same images: they depend on ``seed``.

    Raises ``ValueError`` for an unknown kind or level, before anything is computed, and for logits that are not finite.
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, but must be positive")
    for kind, level in product(kinds, levels):
        require_known(kind, level)
    device = next(net.parameters()).device
    scores = []
    for kind, level in product(kinds, levels):
        spoilt = corrupt_split(split, kind, level, seed)
        logits, labels = answers(net, Batches(spoilt, dataset, 500, augment=False, shuffle=False, device=device))
        right = float((logits.argmax(dim=1) == labels).double().mean())
        scores.append(Score(kind, level, right, ada_ece(logits / temperature, labels)))
    return scores
