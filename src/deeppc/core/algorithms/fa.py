"""Feedback alignment: backprop that carries errors down by fixed random matrices instead of the weights.

    delta_p = sum over successors c of  J_c^T delta_c      with B_c for W_c in J_c

Activations, pooling and norms are differentiated as ever, so for a layer ``phi(W x)`` it is ``B^T (phi' delta)``. No
weight has to be known to the way back; in time the weights align with the feedback, and the updates with backprop's.

Lillicrap, Cownden, Tweed, Akerman: Random synaptic feedback weights support error backpropagation for deep learning.
Nature Communications 7, 2016.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deeppc.core.algorithms.base import Algorithm, register
from deeppc.core.algorithms.bp import BP, sweep
from deeppc.core.algorithms.options import option

if TYPE_CHECKING:
    from deeppc.core.batch import Batch


@register
@dataclass(frozen=True)
class FA(Algorithm):
    """One sweep from the output to the input, through the feedback."""

    family: ClassVar[str] = "fa"
    searched: ClassVar[Mapping[str, str]] = BP.searched

    feedback_seed: int = option(0, "Draws the fixed feedback of fa and dfa, the same in every batch.", least=0)

    def run(self, batch: Batch) -> None:
        from deeppc.core.feedback import carried

        with carried(batch.net, self.feedback_seed):
            batch.initialise(keep=list(batch.net.nodes))
        batch.clamp()
        sweep(batch)
