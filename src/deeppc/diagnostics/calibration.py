"""Calibration: adaptive expected calibration error with equal-mass bins, and temperature scaling of the logits.

    logits, labels = answers(net, Batches(validation, dataset, augment=False, shuffle=False))
    temperature = fit_temperature(logits, labels)           # on held-out images
    logits, labels = answers(net, Batches(dataset.test, dataset, augment=False, shuffle=False))
    ada_ece(logits / temperature, labels)                   # on others

A network that learnt one-hot labels by squared error answers with numbers around 0 and 1, whose softmax is nearly
flat (at most 0.23 for one of ten classes). So its logits are scaled before they are read as probabilities.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deeppc.core.arguments import checked
from deeppc.data import Batches
from deeppc.diagnostics.contexts import evaluating
from deeppc.diagnostics.energy import FloatArray

SHARPEST, FLATTEST = 1e4, 1e-4  # bounds of 1 / temperature, for logits of standard deviation 1
FLAT = 1e-12  # a slope, for such logits, that is 0 but for rounding: where every answer is right and certain
HALVINGS = 60


@dataclass(frozen=True)
class Reliability:
    """Bins of (almost) equally many samples, by rising confidence, each array (bins,).

    ``samples`` in each bin; ``confidence`` their mean highest probability; ``accuracy`` the fraction that is right.
    """

    samples: NDArray[np.int64]
    confidence: FloatArray
    accuracy: FloatArray


@checked
def ada_ece(logits: Tensor, labels: Tensor, bins: int = 15) -> float:
    """Return the mean of ``|accuracy - confidence|`` over equal-mass bins, from 0 to 1: adaECE.

    logits (samples, classes), any scale; labels (samples,) class indices; for the rest see :func:`reliability`.
    """
    table = reliability(logits, labels, bins)
    return float(np.average(np.abs(table.accuracy - table.confidence), weights=table.samples))


@checked
def reliability(logits: Tensor, labels: Tensor, bins: int = 15) -> Reliability:
    """Return confidence and accuracy of the top answer in ``bins`` bins, whose sizes differ by at most one sample.

    Where samples of equal confidence lie on both sides of a border, each counts as right as they are on average, so
    the answer does not depend on the order of the samples. Fewer samples than bins: a bin each.

    Raises ``ValueError`` for shapes that do not fit, labels out of range, no samples, and logits that are not finite.
    """
    if bins < 1:
        raise ValueError(f"bins is {bins}, but must be 1 or more")
    logits, labels = _checked(logits, labels)
    confidence, answer = torch.softmax(logits, dim=1).max(dim=1)
    levels, rank = np.unique(confidence.numpy(), return_inverse=True)
    right = (answer == labels).numpy().astype(np.float64)
    right = (np.bincount(rank, weights=right) / np.bincount(rank))[rank]
    order = np.argsort(rank, kind="stable")
    groups = np.array_split(order, min(bins, len(order)))
    return Reliability(
        samples=np.array([len(group) for group in groups]),
        confidence=np.array([levels[rank[group]].mean() for group in groups]),
        accuracy=np.array([right[group].mean() for group in groups]),
    )


@checked
def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the ``T`` for which ``softmax(logits / T)`` has the least negative log-likelihood of ``labels``.

    logits (samples, classes), labels (samples,). Fit it on held-out images, and divide the logits of others by it.
    The likelihood is concave in ``1/T``, so there is one best value, and halving an interval finds it. It is at the
    bound where every label has the highest logit (T is then 1e-4 of the logits' spread), or where the logits say
    nothing, or the wrong thing (1e4 of it). 1 where all logits of each sample are equal: no scale changes them.

    Raises ``ValueError`` as :func:`reliability` does.
    """
    logits, labels = _checked(logits, labels)
    logits = logits - logits.mean(dim=1, keepdim=True)
    unit = float(logits.square().mean().sqrt())
    if unit == 0:
        return 1.0
    chosen = logits.gather(1, labels.unsqueeze(1)).mean()

    def slope(sharpness: float) -> float:
        """Slope of the negative log-likelihood by ``1/T``: mean over samples of ``E_p[logit] - logit of the label``."""
        return float((torch.softmax(sharpness * logits, dim=1) * logits).sum(dim=1).mean() - chosen)

    low, high = math.log(FLATTEST / unit), math.log(SHARPEST / unit)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(math.exp(middle)) < FLAT * unit else (low, middle)
    return math.exp(-(low + high) / 2)


def answers(net: nn.Module, batches: Batches) -> tuple[Tensor, Tensor]:
    """Return the logits (samples, classes) of all batches in evaluation mode, and the labels (samples,), on the CPU."""
    with evaluating(net):
        pairs = [(net(images).float().cpu(), labels.cpu()) for images, labels in batches.epoch(0)]
    logits, labels = zip(*pairs, strict=True)
    return torch.cat(logits), torch.cat(labels)


def _checked(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """On the CPU, logits in float64."""
    if any(tensor.layout != torch.strided or tensor.is_meta or tensor.is_complex() for tensor in (logits, labels)):
        raise ValueError("logits and labels must be dense tensors of real numbers")
    logits, labels = logits.detach().cpu().double(), labels.detach().cpu()
    if logits.dim() != 2 or not logits.numel():
        raise ValueError(f"logits have the shape {tuple(logits.shape)}: expected (samples, classes), at least one each")
    if labels.shape != logits.shape[:1] or labels.is_floating_point():
        raise ValueError(f"labels are {labels.dtype} {tuple(labels.shape)}: expected {len(logits)} class indices")
    if not bool(((labels >= 0) & (labels < logits.shape[1])).all()):
        raise ValueError(f"labels must be class indices from 0 to {logits.shape[1] - 1}")
    if not bool(logits.isfinite().all()):
        raise ValueError("logits must be finite, but contain NaN or infinity: has the network diverged?")
    return logits, labels.long()
