"""Predictive coding: relax the activities for T steps, then learn from the errors that are left.

initialise   x_v = mu0_v = f_v(x_parents), and the output moved towards the target
infer        x_v -= lr_x (pi_v eps_v - sum_c pi_c J_c^T eps_c)                      T times, all nodes at once
learn        standard rule        from x_T - f_v(x_T,parents)
             forward update (+f)  from x_T - mu0, through f_v at the initial parents or at the relaxed ones

With free relaxation the state that the unclamped network settles in stands in for the initial one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from deeppc.core.algorithms.base import register
from deeppc.core.algorithms.inferring import NUDGING, PRECISION, Inferring
from deeppc.core.algorithms.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from deeppc.core.batch import Batch
    from deeppc.core.energies import Energy
    from deeppc.core.graph import Graph
    from deeppc.core.inference import Descent
    from deeppc.core.state import State
    from deeppc.core.strides import Plan
    from deeppc.core.wave import Wave

WITH_F = {"forward": True}
WITH_S = PRECISION["s"]


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

    strides: int | None = option(
        None,
        "With +s, take so many steps in place of all that follow the spikes: in time linear in depth. None: exact.",
        least=1,
        needs=WITH_S,
    )
    tolerance: float | None = option(
        None,
        "With +s, leave out work as long as each layer's gradient keeps about this relative error. None: exact.",
        above=0,
        most=1,
        needs=WITH_S,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.strides is None and self.tolerance is None:
            return
        if self.strides is not None and self.tolerance is not None:
            raise ValueError("the number of strides follows from the tolerance: leave one of them out")
        if self.momentum_x or self.optimizer_x != "sgd" or self.precision_on != "energy":
            raise ValueError(
                "strides stand for plain SGD: leave momentum_x, optimizer_x and precision_on out, or strides"
            )
        if self.lr_x >= 1:
            raise ValueError(f"strides need lr_x below 1, not {self.lr_x}: activities must fall back after the spike")

    def wave(self, net: Graph) -> Wave:
        known = super().wave(net)
        if self.free_steps:  # what moves then is not estimated
            return replace(known.coarse(), amplitudes={})
        from_start = self.forward and self.presynaptic == "initial" and self.forward_last is None
        return known if from_start else replace(known, behind=1.0)  # weights learn through the relaxed state

    def steps(self, net: Graph) -> int:
        plan = self._plan(net)
        return self.horizon(net) + (plan.strides if plan is not None else 0)

    def _plan(self, net: Graph) -> Plan | None:
        """What strides to take; None: all steps as they are."""
        from deeppc.core.strides import Plan, enough

        if self.tolerance is not None:
            return enough(net.L, self.lr_x, self.alpha, self.horizon(net), self.tolerance)
        return Plan(self.strides) if self.strides is not None else None

    def require_fit(self, net: Graph, energies: Mapping[str, Energy]) -> None:
        from deeppc.core.strides import require_sound

        super().require_fit(net, energies)
        if self._plan(net) is not None:
            require_sound(net, energies)
        if self.free_steps and not all(energy.canonical for energy in energies.values()):
            raise ValueError("free_steps needs energies that depend on x - mu alone: leave it out, or the energy")

    def descent(self, state: State) -> Descent:
        from deeppc.core.strides import Plan, Strides

        plan = self._plan(state.net)
        if plan is None and self._only_spikes():
            plan = Plan(strides=0)
        if plan is None:
            return super().descent(state)
        return Strides(state, self.lr_x, self.alpha, self.horizon(state.net), plan)

    def _only_spikes(self) -> bool:
        """Whether nodes move at their spike and their successors', and never else."""
        plain = self.optimizer_x == "sgd" and not self.momentum_x and self.precision_on == "energy"
        return plain and self.schedule == "spiking" and self.alpha == 0

    def run(self, batch: Batch) -> None:
        from deeppc.core.inference import relax
        from deeppc.core.state import Prediction

        net = batch.net
        forward = [v for v in net.nodes if self.forward and net.arrival[v] < (self.forward_last or math.inf)]
        from_start = set(forward if self.presynaptic == "initial" and not self.free_steps else ())
        all_from_start = len(from_start) == len(net.nodes)
        unread = all_from_start and batch.observe is None
        learnt: set[str] = set()
        waited_for = {v: {v, *net.successors[v]} for v in net.nodes}  # before what is held of it can go

        def learn_on_the_way(v: str, eps: Tensor, *, parents: Sequence[str], part: float) -> list[Tensor | None]:
            """Forward update where ``v`` will be at a part of its error: by the pull-back that is made of it anyway."""
            learnt.add(v)
            pulls = batch.learn(v, eps, state.initial(v), parents=parents, pi=part)
            batch.energy[v] *= part**2
            return pulls

        def learn_from_start(v: str) -> None:
            """Forward update through the initial prediction of ``v``, kept since, or made anew if there are weights."""
            if v in from_start and v not in learnt and state.moved(v):
                prediction = state.initial(v) if batch.parameters[v] else Prediction(state.mu0[v], {})
                batch.learn(v, state.error_from_start(v), prediction)
            if unread:
                for u in (v, *net.hidden_parents(v)):
                    waited_for[u].discard(v)
                    if not waited_for[u]:
                        state.let_go(u)

        state = self.begin(batch, keep=from_start)
        relax(
            self.descent(state),
            self.steps(net),
            observe=batch.observe,
            relaxed=learn_from_start if from_start else None,
            learn=learn_on_the_way if all_from_start else None,
        )

        relaxed = state.d
        origin: dict[str, Tensor] = {}
        mus: Mapping[str, Tensor] = state.mu0
        if self.free_steps:
            state.move_all({v: d.clone() for v, d in relaxed.items()})  # what moves now are copies
            relax(self.free_descent(state), self.free_steps)
            origin, mus = state.d, _settled(state)
            if self.presynaptic == "initial":
                _forward_update(batch, forward, relaxed, origin, mus)
            state.move_all(relaxed)
        if self.presynaptic == "relaxed":
            _forward_update(batch, forward, relaxed, origin, mus)
        standard_rule(batch, [v for v in net.nodes if v not in forward])


def _settled(state: State) -> dict[str, Tensor]:
    """What outputs settled in, as predictions: of squared errors the activities themselves."""
    from deeppc.core.energies import Energy

    direct = {v for v in state.net.outputs if type(state.energy[v]).respond is Energy.respond}
    return {v: state.value(v) if v in direct else state.predict(v).mu.detach() for v in state.net.outputs}


def standard_rule(batch: Batch, nodes: Iterable[str]) -> None:
    """Learn from the errors at the present state, which is the relaxed one."""
    for v in nodes:
        batch.state.move_statistics(v)
        eps = None if batch.state.at_rest(v) else batch.state.error(v)
        batch.state.kept.pop(v, None)  # needed no more
        if eps is not None:
            batch.learn(v, eps, batch.state.recent(v))


def _forward_update(
    batch: Batch,
    nodes: Iterable[str],
    relaxed: Mapping[str, Tensor],
    origin: Mapping[str, Tensor],
    mus: Mapping[str, Tensor],
) -> None:
    """Learn from how far nodes moved, from the deviations ``origin`` to ``relaxed``, through the present state.

    ``mus`` are the predictions that outputs moved from.
    """
    for v in nodes:
        prediction = batch.state.predict(v, moving_statistics=True)
        if v in origin:
            batch.learn(v, batch.state.energy[v].weigh(relaxed.get(v, 0) - origin[v]), prediction, mu=mus.get(v))
        elif batch.state.moved(v):
            batch.learn(v, batch.state.error_from_start(v), prediction, mu=mus.get(v))
