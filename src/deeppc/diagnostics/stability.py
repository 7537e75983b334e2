"""Does inference settle, or does it run away?

    stability(algorithm, net, inputs).settles

Near the feed-forward state the energy is quadratic in the activities. Along an eigenvector of its Hessian, of curvature
h, a step of plain descent multiplies the distance from the equilibrium by ``1 - lr_x h``: beyond ``lr_x h = 2`` it
overshoots by more at every step. With momentum m activities bear

    lr_x h <= 2 (1 + m)              lr_x h <= 2 (1 + m) / (1 + 2 m)   by Nesterov's

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
    """``curvature`` is the largest of the energy in the activities, ``limit`` the largest at which descent settles."""

    curvature: float
    limit: float

    @property
    def settles(self) -> bool:
        return self.curvature <= self.limit


@checked
def stability(algorithm: Algorithm, net: Graph, inputs: Tensor, probes: int = 8) -> Stability:
    """Return the largest curvature of the energy at this batch, and what the algorithm's rate and momentum bear.

    inputs (batch, ...). Costs a feed-forward pass and ``probes`` inference steps; with few of them the curvature is
    estimated a little too large. With spiking precision it is what follows the spike that has to settle.

    Raises ``ValueError`` for what has no one rate at which all activities descend.
    """
    if why := refusal(algorithm, net):
        raise ValueError(why)
    assert isinstance(algorithm, Inferring)
    with untouched(net, inputs.device), torch.no_grad():
        given = by_name(inputs, net.inputs, "inputs")
        _, curvature = extremes(State(net, given, loss=algorithm.loss, wave=slopes(net)), probes)
    m = algorithm.momentum_x
    precision = algorithm.alpha if algorithm.schedule == "spiking" else 1.0
    rate = algorithm.lr_x * precision
    borne = 2 * (1 + m) / (1 + 2 * m if algorithm.nesterov else 1)
    return Stability(curvature, borne / rate if rate else math.inf)


def refusal(algorithm: Algorithm, net: Graph) -> str:
    """Say why there is no :func:`stability` of this; empty if there is."""
    if not isinstance(algorithm, Inferring) or algorithm.optimizer_x != "sgd":
        return f"{algorithm} has no rate at which activities descend: give a pc or ipc algorithm with sgd"
    if algorithm.schedule not in ("fixed", "spiking"):
        return f"{algorithm} weighs errors otherwise at every step: give one with fixed or spiking precision"
    if not all(energy.canonical for energy in energies_of(net, algorithm.loss).values()):
        return "stability needs energies that depend on x - mu alone: leave the energy out"
    return ""
