"""The gap ratio: how far a layer's activity drifted in inference, for the energy that its weights learn from.

    gap_v = sqrt(MSE(x_0, x_T)) / E_v        MSE over the batch and the node's units
                                             E_v = 1/2 |error|^2, summed over the units, mean over the batch

``x_0`` is the feed-forward activity, ``x_T`` the relaxed one (of the output, the one it was clamped to). The error is
the one that the learning rule uses: ``x_T - f_v(x_T,parents)`` by the standard rule, ``x_T - mu0`` by the forward
update. With the latter numerator and denominator know the same deviation, and for a node of ``n`` units

    gap_v = 2 / (n sqrt(MSE)),

so there a large gap ratio means a small error and nothing else. In the paper's tables the last layer has thousands
without the forward update and about ten with it; the first layer has 0.0, which float32 activities give for
deviations below their resolution. Here deviations are kept as such, and the first layer's number is what it is.
"""

from __future__ import annotations

from torch import Tensor

from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.diagnostics import updates as probe


def gap_ratios(algorithm: Algorithm, net: Graph, images: Tensor, labels: Tensor) -> dict[str, float]:
    """The gap ratio of each node with trainable weights, at the update that this batch would cause.

    images (batch, ...), labels (batch,) class indices or a float target. Nothing changes: neither weights nor
    ``.grad``, running statistics or random numbers. Costs one training step.

    nan where neither drift nor energy came to a node, or the energy is negative (cross-entropy of an output nudged
    away from its target); inf where a node drifted but has no energy. Under cross-entropy the output's drift is that
    of its probabilities, and its energy the cross-entropy.

    Raises ``ValueError`` for bp, which has no inference, and for ipc, which learns at every step of it: no single
    ``x_T`` belongs to its update.
    """
    if algorithm.family != "pc":
        why = "has no inference" if algorithm.family == "bp" else "learns at every inference step, not at x_T"
        raise ValueError(f"{algorithm} {why}, so it has no gap ratio: choose a pc algorithm")
    return probe.gaps(probe.lesson(algorithm, net, images, labels))
