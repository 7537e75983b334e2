"""Accuracy and calibration under corruption: how a network answers when its images are spoilt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from torch import nn

from deeppc.data import Batches, Dataset, Split
from deeppc.diagnostics.calibration import ada_ece, answers
from deeppc.diagnostics.corruption import KINDS, LEVELS, corrupt_split, require_known


@dataclass(frozen=True)
class Score:
    """One corruption at one level: the fraction of right answers, and adaECE of the scaled logits."""

    kind: str
    level: float
    accuracy: float
    ada_ece: float


def under_corruption(
    net: nn.Module,
    split: Split,
    kinds: Sequence[str] = KINDS,
    levels: Sequence[float] = LEVELS,
    *,
    dataset: Dataset,
    temperature: float = 1.0,
    bins: int = 15,
    seed: int = 0,
    batch_size: int = 500,
) -> list[Score]:
    """Evaluate ``net`` on ``split`` under every kind at every level, each in one pass over all the images.

    ``dataset`` says how images are normalised. ``temperature`` divides the logits before they are read as
    probabilities: fit it on clean held-out images (:func:`deeppc.diagnostics.calibration.fit_temperature`). Level 0 is
    the clean split. Scores come kind by kind, each by its levels. Networks that are compared see the same images: they
    depend on ``seed`` alone.

    Raises ``ValueError`` for a kind or level that does not exist, before anything is computed, and for logits that
    are not finite.
    """
    if not temperature > 0:
        raise ValueError(f"temperature is {temperature}, but must be positive")
    for kind, level in product(kinds, levels):
        require_known(kind, level)
    device = next(net.parameters()).device

    def score(kind: str, level: float) -> Score:
        spoilt = corrupt_split(split, kind, level, seed)
        batches = Batches(spoilt, dataset, batch_size, augment=False, shuffle=False, device=device)
        logits, labels = answers(net, batches)
        right = (logits.argmax(dim=1) == labels).double().mean()
        return Score(kind, level, float(right), ada_ece(logits / temperature, labels, bins))

    return [score(kind, level) for kind, level in product(kinds, levels)]
