"""What a batch would teach a network, found out without teaching it.

    mine = lesson(algorithm, net, images, labels)
    theirs = lesson(backprop_for(algorithm), net, images, labels)
    beside(mine, theirs)["3"].cosine          # does node "3" learn in backprop's direction?
    gaps(mine)["3"]                           # how far its activity drifted for the energy that it learnt from

A lesson is one whole training step whose weight updates are caught before they reach a weight. Weights, ``.grad``,
running statistics and random numbers are afterwards as they were before, so a lesson may be taken in the middle of a
training, which goes on to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from deeppc.core.algorithms import Algorithm
from deeppc.core.engine import State, half_square
from deeppc.core.graph import Graph
from deeppc.core.norm import random_state, set_random_state


@dataclass(frozen=True)
class Lesson:
    """What one batch would teach. Only nodes with weights that want a gradient are here: others learn nothing.

    ``updates``  by node, for each of its weights: the gradient that an optimiser would have got (descent is minus
                 that), None where no energy came. Of ipc, the sum over its T steps.
    ``energy``   by node: what its weights learnt from, as in :class:`deeppc.Result`.
    ``drift``    by node: root mean square of ``x_T - x_0`` over the batch and the node's units. pc only: empty for
                 bp, which has no inference, and for ipc, which learns before the inference has ended.
    """

    updates: dict[str, list[Tensor | None]]
    energy: dict[str, float]
    drift: dict[str, float]


class Beside(NamedTuple):
    """One node's update beside another algorithm's: cosine of the angle between them, and how many times as long.

    nan where there is nothing to compare: an update that is 0, missing, or not finite.
    """

    cosine: float
    size: float


def lesson(algorithm: Algorithm, net: Graph, images: Tensor, labels: Tensor) -> Lesson:
    """What ``algorithm`` would teach ``net`` by this batch, in the mode (train or eval) that the net is in.

    ipc is followed with its weights held still: the sum of its T gradients is what plain SGD would change, divided by
    its learning rate, as that rate goes to 0. So the answer is the algorithm's own, not the optimiser's.

    Raises ``ValueError`` as a training step would, and for a network without weights to learn.
    """
    parameters = {v: weights for v, weights in net.trainable().items() if weights}
    if not parameters:
        raise ValueError("the network has no weights that want a gradient: there is nothing to teach it")
    drift: dict[str, float] = {}
    T = algorithm.T or net.L

    def watch(t: int, state: State) -> None:
        if t == T:
            drift.update({v: _root_mean_square(state.d.get(v)) for v in parameters})

    with untouched(net, images.device):
        catcher = _Catcher(weight for weights in parameters.values() for weight in weights)
        out = algorithm.step(net, images, labels, catcher, observe=watch)
    return Lesson(
        updates={v: [catcher.caught.get(weight) for weight in weights] for v, weights in parameters.items()},
        energy={v: float(out.energy[v]) for v in parameters},
        drift=drift,
    )


def backprop_for(algorithm: Algorithm) -> Algorithm:
    """Backprop of the same loss."""
    return Algorithm(family="bp", loss=algorithm.loss)


def gaps(taught: Lesson) -> dict[str, float]:
    """The paper's gap ratio by node: ``sqrt(MSE(x_0, x_T)) / energy``. Empty for bp and ipc.

    nan where neither drift nor energy came, or the energy is negative (cross-entropy of an output nudged away from
    its target); inf where a node drifted and has no energy to learn from.
    """
    return {v: _ratio(drift, taught.energy[v]) for v, drift in taught.drift.items()}


def beside(mine: Lesson, theirs: Lesson) -> dict[str, Beside]:
    """Each node's update in ``mine`` beside that in ``theirs``, all its weights taken as one vector."""
    return {v: _beside(update, theirs.updates[v]) for v, update in mine.updates.items()}


@contextmanager
def untouched(net: nn.Module, device: torch.device) -> Iterator[None]:
    """Whatever happens within: gradients, buffers and torch's random numbers are afterwards as they were."""
    gradients = [(p, p.grad) for p in net.parameters()]
    buffers = [
        (module, name, buffer, buffer.clone())
        for module in net.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if not is_lazy(buffer)
    ]
    stood = random_state(device)
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for module, name, buffer, value in buffers:
                module._buffers[name] = buffer.copy_(value)  # a module may have put another in its place
        set_random_state(stood, device)


class _Catcher(Optimizer):
    """Stands where an optimiser stands, adds up the gradients that it is given, and moves nothing."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})
        self.caught: dict[Tensor, Tensor] = {}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for weight in self.param_groups[0]["params"]:
            if weight.grad is not None:
                self.caught[weight] = self.caught[weight] + weight.grad if weight in self.caught else weight.grad


def _root_mean_square(d: Tensor | None) -> float:
    return 0.0 if d is None else math.sqrt(2 * float(half_square(d)) / d.numel())


def _ratio(drift: float, energy: float) -> float:
    if energy > 0:
        return drift / energy
    return math.inf if energy == 0 and drift > 0 else math.nan


def _beside(mine: list[Tensor | None], theirs: list[Tensor | None]) -> Beside:
    dot = sum(_dot(a, b) for a, b in zip(mine, theirs, strict=True))
    length, other = (math.sqrt(sum(_dot(a, a) for a in update)) for update in (mine, theirs))
    if not (0 < length < math.inf and 0 < other < math.inf):
        return Beside(math.nan, 0.0 if length == 0 and 0 < other < math.inf else math.nan)
    return Beside(max(-1.0, min(1.0, dot / length / other)), length / other)


def _dot(a: Tensor | None, b: Tensor | None) -> float:
    """In float64: squares of an early layer's gradients underflow float32. (mps has no float64: on the CPU.)"""
    if a is None or b is None:
        return 0.0
    x, y = (t.detach().to("cpu" if t.device.type == "mps" else t.device, torch.float64).flatten() for t in (a, b))
    return float(x @ y)
