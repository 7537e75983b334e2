"""Direct feedback alignment: the output's error goes to every layer at once, by one fixed random matrix each.

    delta_v = B_v (y - mu_out)                  B_v: units of v x units of the output

Weights learn from ``delta_v`` through their own layer alone. There is no way back through the network, so all layers
can learn at once.

Nokland: Direct feedback alignment provides learning in deep neural networks. NeurIPS 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deeppc.core.algorithms.base import register
from deeppc.core.algorithms.fa import FA

if TYPE_CHECKING:
    from deeppc.core.batch import Batch


@register
@dataclass(frozen=True)
class DFA(FA):
    """Every node with weights learns from a projection of the outputs' errors."""

    family: ClassVar[str] = "dfa"

    def run(self, batch: Batch) -> None:
        import torch

        from deeppc.core.feedback import draw

        net, state = batch.net, batch.initialise(keep=list(batch.net.nodes))
        batch.clamp()
        error = torch.cat([state.error_from_start(v).unsqueeze(-1).flatten(1) for v in net.outputs], 1)
        for v in net.nodes:
            prediction, mu0 = state.initial(v), state.mu0[v]
            if v in net.outputs:
                batch.learn(v, state.error_from_start(v), prediction)
            elif batch.parameters[v]:
                shape = math.prod(mu0.shape[1:]), error.shape[1]
                delta = error @ draw(self.feedback_seed, v, shape, error.dtype, error.device).T
                batch.learn(v, delta.view_as(mu0), prediction, carried=True)
