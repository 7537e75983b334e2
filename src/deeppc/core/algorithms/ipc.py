"""Incremental predictive coding: weights learn at every inference step, from the state that the activities move from.

    for each step    x_v -= lr_x dE_t/dx_v          and          w_v by the optimiser, from dE_t/dw_v

A node that has no gradient yet (not reached, or precision 0) is left alone: no moment of the optimiser, no decay.

A node whose weights have learnt predicts another activity than it has, and this error pulls the weights back. Where
``lr_x ** arrival`` is small it is far larger than what there was to learn (docs/results/ipc.md). With ``follow``
there is none: hidden activities go along with the feed-forward pass of the new weights, and keep their deviations from
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from deeppc.core.algorithms.base import register
from deeppc.core.algorithms.inferring import NUDGING, PRECISION, Inferring
from deeppc.core.algorithms.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from deeppc.core.batch import Batch
    from deeppc.core.graph import Graph
    from deeppc.core.wave import Wave


@register
@dataclass(frozen=True)
class IPC(Inferring):
    """Activities and weights move together. Weights are weighed by the energy's schedule, whatever precision is on."""

    family: ClassVar[str] = "ipc"
    suffixes: ClassVar[Mapping[str, Mapping[str, Any]]] = {**PRECISION, **NUDGING}
    updates_weights: ClassVar[bool] = True

    follow: bool = option(
        False,
        "Let activities follow what weights have learnt, so that they do not pull weights back (not in the paper).",
    )

    def wave(self, net: Graph) -> Wave:
        """As for PC, but no unit is below 2^-60: where weights have changed, errors are as large as that makes them.

        With ``follow`` they are not.
        """
        wave = super().wave(net)
        return wave if self.follow else wave.coarse()

    def run(self, batch: Batch) -> None:
        net, T = batch.net, self.steps(batch.net)
        state = self.begin(batch)
        descent = self.descent(state)

        def learn(v: str, eps: Tensor, *, parents: Sequence[str], pi: float) -> list[Tensor | None]:
            return batch.learn(v, eps, state.recent(v), parents=parents, pi=pi)

        precisions = {v: [p for p in energy.parameters() if p.requires_grad] for v, energy in state.energy.items()}
        for t in range(T):
            if batch.observe is not None:
                batch.observe(t, state)
            last = t == T - 1
            if last:
                descent.stop()  # activities are not read any more: in the last step only weights learn
            learnt = []
            for v in reversed(list(net.nodes)):
                if last:
                    state.move_statistics(v)
                pi = self.pi(t, net.arrival[v], T) if batch.parameters[v] or precisions[v] else 0.0
                if descent.turn(v, t, partial(learn, pi=pi), learns=bool(pi)) and pi:
                    learnt.append(v)
                if last:
                    state.let_go(v)
            batch.update(learnt)
            if self.follow and not last:
                state.follow()
