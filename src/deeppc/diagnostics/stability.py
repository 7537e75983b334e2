"""Does inference settle, or does it run away?

    stability(algorithm, net, inputs).settles

Near the feed-forward state the energy is quadratic in the activities. Along an eigenvector of its Hessian, of curvature
h, a step of plain descent multiplies the distance from the equilibrium by ``1 - lr_x h``: beyond ``lr_x h = 2`` it
overshoots by more at every step. With momentum m activities bear

    lr_x h < 2 (1 + m)               lr_x h < 2 (1 + m) / (1 + 2 m)   with Nesterov's

The largest h decides. It grows with depth and in training (:mod:`deeppc.core.spectrum`), so a rate that was fine may
cease to be. ``T`` steps are few: a little too much does little harm, until it does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from deeppc.core.algorithms import Algorithm
from deeppc.core.algorithms.inferring import Inferring
from deeppc.core.arguments import checked
from deeppc.core.energies import energies_of
from deeppc.core.graph import Graph
from deeppc.core.inputs import by_name
from deeppc.core.spectrum import extremes, slopes
from deeppc.core.state import State
from deeppc.diagnostics.contexts import untouched


@dataclass(frozen=True)
class Stability:
    """``curvature`` is the largest of the energy in the activities; below ``limit`` descent settles."""

    curvature: float
    limit: float

    @property
    def settles(self) -> bool:
        return self.curvature < self.limit


@checked
def stability(algorithm: Algorithm, net: Graph, inputs: Tensor, probes: int = 8) -> Stability:
    """Return the largest curvature of the energy at this batch, and what the algorithm's rate and momentum bear.

    inputs (batch, ...), in the mode (train or eval) that the net is in. Costs a feed-forward pass and ``probes``
    inference steps; from few of them the curvature is known to some percent. With spiking precision it is what follows
    the spike that has to settle. nan for a network that is not finite.

    Raises ``ValueError`` where activities do not all descend at one constant rate.
    """
    if why := refusal(algorithm, net):
        raise ValueError(why)
    if probes < 1:
        raise ValueError(f"probes is {probes}, but must be at least 1")
    assert isinstance(algorithm, Inferring)
    curvature = 0.0
    if any(v not in net.outputs for v in net.nodes):  # else nothing moves
        with untouched(net, inputs.device), torch.no_grad():
            given = by_name(inputs, net.inputs, "inputs")
            _, curvature = extremes(State(net, given, loss=algorithm.loss, wave=slopes(net)), probes)
    return Stability(curvature, limit(algorithm))


def limit(algorithm: Inferring) -> float:
    """The curvature up to which activities settle."""
    m = algorithm.momentum_x
    rate = algorithm.lr_x * (algorithm.alpha if algorithm.schedule == "spiking" else 1.0)
    if m == 1 and not algorithm.nesterov:
        return 0.0  # swings for ever
    return 2 * (1 + m) / (1 + 2 * m if algorithm.nesterov else 1) / rate if rate else math.inf


def refusal(algorithm: Algorithm, net: Graph) -> str:
    """Say why there is no :func:`stability` of this; empty if there is."""
    if not isinstance(algorithm, Inferring) or algorithm.optimizer_x != "sgd":
        return f"{algorithm} has no rate at which activities descend: give a pc or ipc algorithm with sgd"
    if algorithm.schedule not in ("fixed", "spiking"):
        return f"{algorithm} changes precision from step to step: give one with fixed or spiking precision"
    for name in ("free_steps", "strides", "tolerance"):
        if getattr(algorithm, name, None):
            return f"stability is that of single steps to a clamped output: leave {name} out"
    if not all(energy.canonical for energy in energies_of(net, algorithm.loss).values()):
        return "stability needs energies that depend on x - mu alone: leave the energy out"
    return ""
