"""Zero-divergence inference learning: predictive coding whose weights learn what backprop would teach them, exactly.

    x_v -= eps_v - sum_c J_c^T eps_c            lr_x = 1, all nodes at once
    w_v learn from eps_v                        at the one step t = arrival(v)

At that step the parents of ``v`` have not moved, and ``v`` has moved once, from its prediction by the pulls of its
successors, whose errors were exact a step before: so ``eps_v`` is backprop's error of ``v``. That needs energy to come
down all paths at once: a balanced graph, ``net.balance()``, as in the second paper below; others are refused. What a
node does after its step reaches no weight, so it is not computed: a batch costs what backprop costs.

Song, Lukasiewicz, Xu, Bogacz: Can the brain do backpropagation? Exact implementation of backpropagation in predictive
coding networks. NeurIPS 2020. Salvatori, Song, Xu, Lukasiewicz, Bogacz: Reverse differentiation via predictive
coding. AAAI 2022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deeppc.core.algorithms.base import Algorithm, register
from deeppc.core.algorithms.bp import BP

if TYPE_CHECKING:
    from torch import Tensor

    from deeppc.core.batch import Batch
    from deeppc.core.graph import Graph


@register
@dataclass(frozen=True)
class ZIL(Algorithm):
    """Each node's weights learn at the step when the wave of energy reaches it."""

    family: ClassVar[str] = "zil"
    searched: ClassVar[Mapping[str, str]] = BP.searched

    def horizon(self, net: Graph) -> int:
        return net.L

    def run(self, batch: Batch) -> None:
        from deeppc.core.inference import Descent

        net = batch.net
        if any(net.hops[v] != net.arrival[v] for v in net.nodes):
            raise ValueError("zil needs a balanced graph, where energy comes down all paths at once: net.balance()")
        state = batch.initialise(keep=list(net.nodes))
        batch.clamp()
        still = {*net.inputs, *net.outputs}
        descent = Descent(
            state, 1.0, 0.0, False, lambda v, t: float(t == net.arrival[v]), lambda v, t: float(v not in still)
        )

        def learn(v: str, eps: Tensor, *, parents: Sequence[str]) -> list[Tensor | None]:
            return batch.learn(v, eps, state.initial(v), parents=parents)

        for t in range(net.L):
            if batch.observe is not None:
                batch.observe(t, state)
            for v in reversed(list(net.nodes)):
                descent.turn(v, t, learn, learns=True)
