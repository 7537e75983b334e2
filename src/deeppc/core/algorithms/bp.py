"""Backpropagation: the baseline, on the same graph, data and loss as predictive coding.

delta_out = y - mu_out          delta_p = sum over successors c of J_c^T delta_c

Two options make controls of it. ``repeats`` takes several optimiser steps on each batch, as iPC does, each from a pass
of its own. ``last`` lets so many levels learn, from the output down: what do the others allow at the weights that they
began with? (Norms below normalise by what they see, and their running statistics move, as in torch with
``requires_grad=False``; their scales and shifts are weights, and stay.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deeppc.core.algorithms.base import Algorithm, register
from deeppc.core.algorithms.options import option

if TYPE_CHECKING:
    from deeppc.core.batch import Batch


@register
@dataclass(frozen=True)
class BP(Algorithm):
    """One sweep from the output to the input."""

    family: ClassVar[str] = "bp"
    searched: ClassVar[Mapping[str, str]] = {"lr_w": "1e-5..3e-4 log"}

    repeats: int = option(1, "Optimiser steps of bp on each batch, one after the other (not in the paper).", least=1)
    last: int | None = option(None, "With bp, levels that learn, from the output down. None: all.", least=1)

    @property
    def rounds(self) -> int:
        return self.repeats

    def run(self, batch: Batch) -> None:
        if self.repeats > 1 and batch.optimizer is None:
            raise ValueError(f"repeats is {self.repeats}, which takes so many steps: call step(), or leave repeats out")
        batch.initialise(keep=list(batch.net.nodes))
        batch.clamp()
        sweep(batch, self.last)


def sweep(batch: Batch, last: int | None = None) -> None:
    """Carry the outputs' errors down through the initial predictions, for the ``last`` levels (None: all) to learn."""
    net, state = batch.net, batch.state
    delta = {v: state.error_from_start(v) for v in net.outputs}
    for v in reversed(list(net.nodes)):
        prediction = state.initial(v)
        if v not in delta:
            continue
        parents = [p for p in net.hidden_parents(v) if net.arrival[p] < (last or math.inf)]
        pulls = batch.learn(v, delta.pop(v), prediction, parents=parents, carried=v not in net.outputs)
        for p in reversed(parents):
            pull = pulls.pop()  # so that it is freed with its last user
            if pull is not None:
                delta[p] = delta[p] + pull if p in delta else pull
