"""Predictive coding: relax the activities for T steps, then learn from the errors that are left.

initialise   x_v = mu0_v = f_v(x_parents), and the output moved towards the target
infer        x_v -= lr_x (pi_v eps_v - sum_c pi_c J_c^T eps_c)                      T times, all nodes at once
learn        standard rule        from x_T - f_v(x_T,parents)
             forward update (+f)  from x_T - mu0, through f_v at the initial parents or at the relaxed ones

With free relaxation the state that the unclamped network settles in stands in for the initial one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from deeppc.core.algorithms.base import register
from deeppc.core.algorithms.inferring import NUDGING, PRECISION, Inferring
from deeppc.core.algorithms.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from deeppc.core.batch import Batch

WITH_F = {"forward": True}


@register
@dataclass(frozen=True)
class PC(Inferring):
    """Weights learn once, after inference."""

    family: ClassVar[str] = "pc"
    suffixes: ClassVar[Mapping[str, Mapping[str, Any]]] = {**PRECISION, "f": WITH_F, **NUDGING}

    forward: bool = option(False, "forward update: weights learn from x_T - mu0")
    presynaptic: Literal["initial", "relaxed"] = option(
        "initial",
        "With +f, activities that weights learn through: initial (x_0) or relaxed (paper: x_T in Algorithm 1).",
        needs=WITH_F,
    )
    forward_last: int | None = option(
        None,
        "With +f, forward update for so many last levels only, the standard rule below (paper: appendix). None: all.",
        least=1,
        needs=WITH_F,
    )
    free_steps: int = option(
        0,
        "With +f, steps of free relaxation whose state stands in for μ_0 (paper: appendix). 0: μ_0 is stored.",
        least=0,
        needs=WITH_F,
    )

    def run(self, batch: Batch) -> None:
        from deeppc.core.inference import infer
        from deeppc.core.state import Prediction

        net, T = batch.net, self.steps(batch.net)
        forward = [v for v in net.nodes if self.forward and net.arrival[v] < (self.forward_last or math.inf)]
        from_start = forward if self.presynaptic == "initial" and not self.free_steps else []

        def learn_from_start(v: str) -> None:
            """Forward update through the initial prediction of ``v``, kept since, or made anew if there are weights."""
            if v in from_start and v in state.d:
                prediction = state.initial(v) if batch.parameters[v] else Prediction(state.mu0[v], {})
                batch.learn(v, state.d[v], prediction)

        state = self.begin(batch, keep=from_start)
        infer(self.descent(state, T), T, observe=batch.observe, relaxed=learn_from_start if from_start else None)

        relaxed = state.d
        origin: dict[str, Tensor] = {}
        if self.free_steps:
            state.move_all({v: d.clone() for v, d in relaxed.items()})  # what moves now are copies
            infer(self.free_descent(state), self.free_steps)
            origin = state.d
            if self.presynaptic == "initial":
                _forward_update(batch, forward, relaxed, origin)
            state.move_all(relaxed)
        if self.presynaptic == "relaxed":
            _forward_update(batch, forward, relaxed, origin)
        _standard_rule(batch, [v for v in net.nodes if v not in forward])


def _standard_rule(batch: Batch, nodes: Iterable[str]) -> None:
    """Learn from the errors at the present state, which is the relaxed one."""
    for v in nodes:
        prediction = batch.state.predict(v, moving_statistics=True)
        if not batch.state.at_rest(v):
            batch.learn(v, batch.state.error(v), prediction)


def _forward_update(
    batch: Batch, nodes: Iterable[str], relaxed: Mapping[str, Tensor], origin: Mapping[str, Tensor]
) -> None:
    """Learn from how far nodes moved, from the deviations ``origin`` to ``relaxed``, through the present state."""
    for v in nodes:
        prediction = batch.state.predict(v, moving_statistics=True)
        eps = relaxed.get(v, 0) - origin[v] if v in origin else relaxed.get(v)
        if eps is not None:
            batch.learn(v, eps, prediction)
