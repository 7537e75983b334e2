"""Predictive coding: relax the activities for T steps, then learn from the errors that are left.

initialise   x_v = mu0_v = f_v(x_parents), and the output moved towards the target
infer        x_v -= lr_x (pi_v eps_v - sum_c pi_c J_c^T eps_c)                      T times, all nodes at once
learn        by the standard rule from x_T - f_v(x_T,parents), or by the forward update (+f) from x_T - mu0
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from deeppc.core.algorithms.base import register
from deeppc.core.algorithms.inferring import NUDGING, PRECISION, Inferring
from deeppc.core.algorithms.options import option

if TYPE_CHECKING:
    from deeppc.core.batch import Batch


@register
@dataclass(frozen=True)
class PC(Inferring):
    """Weights learn once, after inference."""

    family: ClassVar[str] = "pc"
    suffixes: ClassVar[Mapping[str, Mapping[str, Any]]] = {**PRECISION, "f": {"forward": True}, **NUDGING}

    forward: bool = option(False, "forward update: weights learn from x_T - mu0")
    presynaptic: Literal["initial", "relaxed"] = option(
        "initial",
        "With +f, activities that weights learn through: initial (x_0) or relaxed (paper: x_T in Algorithm 1).",
        needs={"forward": True},
    )
    forward_last: int | None = option(
        None,
        "With +f, forward update for so many last levels only, the standard rule below (paper: appendix). None: all.",
        least=1,
        needs={"forward": True},
    )
    free_steps: int = option(
        0,
        "With +f, steps of free relaxation whose state stands in for μ_0 (paper: appendix). 0: μ_0 is stored.",
        least=0,
        needs={"forward": True},
    )

    def run(self, batch: Batch) -> None:
        from deeppc.core.inference import infer
        from deeppc.core.learning import forward_update, forward_update_from_start, relax_freely, standard_rule

        net, T = batch.net, self.steps(batch.net)
        levels = self.forward_last or math.inf
        forward = [v for v in net.nodes if self.forward and net.arrival[v] < levels]
        standard = [v for v in net.nodes if v not in forward]
        from_start = forward if self.presynaptic == "initial" and not self.free_steps else []

        def learn_from_start(v: str) -> None:
            if v in from_start:
                forward_update_from_start(batch, v)

        state = self.begin(batch, keep=from_start)
        infer(self.descent(state, T), T, observe=batch.observe, relaxed=learn_from_start if from_start else None)

        relaxed, origin = state.d, {}
        if self.free_steps:
            origin = relax_freely(self.free_descent(state), self.free_steps)
            if self.presynaptic == "initial":
                forward_update(batch, forward, relaxed, origin)
            state.move_all(relaxed)
        if self.presynaptic == "relaxed":
            forward_update(batch, forward, relaxed, origin)
        standard_rule(batch, standard)
