"""What a run records of how it learns, with ``diagnostics``: each layer's update beside backprop's, and its gap ratio.

Measured on one batch, the same after every epoch, at the cost of a training step and one of backprop. The training
does not notice: its numbers are the same bits with and without.
"""

from __future__ import annotations

import math

from torch import Tensor

from deeppc.core.algorithms import Algorithm
from deeppc.core.graph import Graph
from deeppc.diagnostics import updates as probe

ByNode = dict[str, float | str]


def diagnose(algorithm: Algorithm, net: Graph, images: Tensor, labels: Tensor) -> dict[str, ByNode]:
    """By name, then by node that has trainable weights, for a line of ``metrics.jsonl``:

    ``bp_cosine``  cosine of the node's weight update with backprop's.
    ``bp_size``    how many times as long it is.
    ``gap_ratio``  ``sqrt(MSE(x_0, x_T)) / energy``, for pc only.

    What is not finite is written as a string, "nan" or "inf", since JSON has no such numbers;
    :func:`deeppc.diagnostics.updates.beside` and :func:`deeppc.diagnostics.updates.gaps` say when.
    """
    mine = probe.lesson(algorithm, net, images, labels)
    bp = mine if algorithm.family == "bp" else probe.lesson(probe.backprop_for(algorithm), net, images, labels)
    found = probe.beside(mine, bp)
    cosines, sizes = ({v: getattr(found[v], name) for v in found} for name in ("cosine", "size"))
    record = {"bp_cosine": _writable(cosines), "bp_size": _writable(sizes)}
    return record | ({"gap_ratio": _writable(gaps)} if (gaps := probe.gaps(mine)) else {})


def _writable(values: dict[str, float]) -> ByNode:
    return {v: value if math.isfinite(value) else str(value) for v, value in values.items()}
