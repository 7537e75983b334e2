"""Incremental predictive coding: weights learn at every inference step, from the state that the activities move from.

    for each step    x_v -= lr_x dE_t/dx_v          and          w_v by the optimiser, from dE_t/dw_v

A node that has no gradient yet (not reached, or precision 0) is left alone: no moment of the optimiser, no decay.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from deeppc.core.algorithms.base import register
from deeppc.core.algorithms.inferring import NUDGING, PRECISION, Inferring

if TYPE_CHECKING:
    from deeppc.core.batch import Batch


@register
@dataclass(frozen=True)
class IPC(Inferring):
    """Activities and weights move together. Weights are weighed by the energy's schedule, whatever precision is on."""

    family: ClassVar[str] = "ipc"
    suffixes: ClassVar[Mapping[str, Mapping[str, Any]]] = {**PRECISION, **NUDGING}
    updates_weights: ClassVar[bool] = True

    def run(self, batch: Batch) -> None:
        net, T = batch.net, self.steps(batch.net)
        state = self.begin(batch)
        descent = self.descent(state, T)
        for t in range(T):
            if batch.observe is not None:
                batch.observe(t, state)
            if t == T - 1:
                state.move_statistics()
                descent.stop()  # activities are not read any more: in the last step only weights learn
            learnt = []
            for v in reversed(list(net.nodes)):
                state.forget(v)
                parents = descent.moving_parents(v, t)
                pi = self.pi(t, net.arrival[v], T) if batch.parameters[v] else 0.0
                if descent.send(v, t) and not state.at_rest(v) and (parents or descent.receive(v, t) or pi):
                    eps = state.error(v)
                    pulls = batch.learn(v, eps, parents=parents, pi=pi)
                    descent.push(v, t, eps, parents, pulls)
                    del eps  # before the next one is made
                    if pi:
                        learnt.append(v)
                descent.move(v)
            batch.update(learnt)
