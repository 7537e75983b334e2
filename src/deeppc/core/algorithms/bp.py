"""Backpropagation: the baseline, on the same graph, data and loss as predictive coding.

delta_out = y - mu_out          delta_p = sum over successors c of J_c^T delta_c
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deeppc.core.algorithms.base import Algorithm, register

if TYPE_CHECKING:
    from deeppc.core.batch import Batch


@register
@dataclass(frozen=True)
class BP(Algorithm):
    """One sweep from the output to the input."""

    family: ClassVar[str] = "bp"
    searched: ClassVar[Mapping[str, str]] = {"lr_w": "1e-5..3e-4 log"}

    def run(self, batch: Batch) -> None:
        net = batch.net
        state = batch.initialise(keep=list(net.nodes))
        batch.clamp()
        delta = {net.output: state.d[net.output]}
        for v in reversed(list(net.nodes)):
            prediction, parents = state.initial(v), net.hidden_parents(v)
            if v not in delta:
                continue
            pulls = batch.learn(v, delta.pop(v), prediction, parents=parents)
            for p in reversed(parents):
                pull = pulls.pop()  # so that it is freed with its last user
                if pull is not None:
                    delta[p] = delta[p] + pull if p in delta else pull
