"""Does a layer learn in backprop's direction? The cosine between its weight update and backprop's.

1: the same direction; 0: unrelated; -1: the opposite. The length of an update is another matter (and an optimiser
such as Adam rescales it): :func:`relative_sizes`.
"""

from __future__ import annotations

from torch import Tensor

from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.diagnostics import updates as probe


def alignment(algorithm: Algorithm, net: Graph, images: Tensor, labels: Tensor) -> dict[str, float]:
    """Cosine of each node's weight update with backprop's, of the same loss on the same batch.

    Of the gradients, before any optimiser; all weights of a node are one vector, and nodes without trainable weights
    are left out. Dropout has the same masks in both. bp gives 1. ipc is taken with its weights held still: the sum of
    the gradients of its T steps, which is the change that plain SGD makes, in the limit of a small learning rate.

    images (batch, ...), labels (batch,) class indices or a float target. Nothing changes: neither weights nor
    ``.grad``, running statistics or random numbers. Costs a training step of the algorithm and one of backprop.

    nan where one of the two updates is zero, missing (no energy came) or not finite: it has no direction.
    """
    return {v: found.cosine for v, found in _beside_backprop(algorithm, net, images, labels).items()}


def relative_sizes(algorithm: Algorithm, net: Graph, images: Tensor, labels: Tensor) -> dict[str, float]:
    """How many times as long each node's weight update is as backprop's; everything else as for :func:`alignment`.

    0 where no energy came, nan where backprop's update is zero or one of the two is not finite.
    """
    return {v: found.size for v, found in _beside_backprop(algorithm, net, images, labels).items()}


def _beside_backprop(algorithm: Algorithm, net: Graph, images: Tensor, labels: Tensor) -> dict[str, probe.Beside]:
    mine = probe.lesson(algorithm, net, images, labels)
    return probe.beside(mine, probe.lesson(probe.backprop_for(algorithm), net, images, labels))
