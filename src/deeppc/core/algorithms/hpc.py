"""Predictive coding by the heavy ball, with the rate and the momentum that the spectrum of its inference sets.

    x_v += -lr dE/dx_v + m (last change of x_v)          lr, m from the extreme eigenvalues of the Hessian of E

The deeper a network, the worse is its inference conditioned: the ratio h / l of those eigenvalues grows with the square
of the depth, at least, and plain descent needs as many steps. With this momentum it is the square root of that, and
there is no rate to tune. Each batch takes its own measure (:mod:`deeppc.core.spectrum`).

Polyak: Some methods of speeding up the convergence of iteration methods. 1964. The conditioning of inference:
Innocenti, Achour, Buckley: muPC: Scaling predictive coding to 100+ layer networks. NeurIPS 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deeppc.core.algorithms.base import register
from deeppc.core.algorithms.inferring import Stepping
from deeppc.core.algorithms.options import option
from deeppc.core.algorithms.pc import standard_rule

if TYPE_CHECKING:
    from deeppc.core.batch import Batch


@register
@dataclass(frozen=True)
class HPC(Stepping):
    """Weights learn once, after inference, by the standard rule."""

    family: ClassVar[str] = "hpc"

    probes: int = option(
        8, "Of hpc, products with the Hessian that the spectrum is measured by; each costs an inference step.", least=2
    )

    def run(self, batch: Batch) -> None:
        from deeppc.core.energies import energies_of
        from deeppc.core.inference import Descent, relax
        from deeppc.core.spectrum import extremes, heavy_ball, slopes
        from deeppc.core.state import State

        net = batch.net
        if not all(energy.canonical for energy in energies_of(net, batch.loss).values()):
            raise ValueError("hpc needs energies that depend on x - mu alone: leave the energy out, or use pc")
        state = batch.initialise()
        linear = State(net, batch.inputs, loss=batch.loss, wave=slopes(net), total=state.total)
        lr, momentum = heavy_ball(*extremes(linear, self.probes))
        state.work.add(linear.work)
        del linear
        batch.clamp()
        still = {*net.inputs, *net.outputs}
        descent = Descent(state, lr, momentum, False, lambda v, t: 1.0, lambda v, t: float(v not in still))
        relax(descent, self.steps(net), observe=batch.observe)
        standard_rule(batch, net.nodes)
