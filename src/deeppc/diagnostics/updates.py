"""Compare the weight updates of an algorithm with backprop's, and compute the gap ratio, without training.

    mine = probe(algorithm, net, inputs, targets)
    theirs = probe(backprop_for(algorithm), net, inputs, targets)
    compare_updates(mine, theirs)["3"].cosine      # does node "3" learn in backprop's direction?
    gap_ratios(mine)["3"]                          # how far its activity drifted for the energy that it learns from

A probe is one whole training step whose weight updates are caught before they reach a weight. Weights, ``.grad``,
running statistics and random numbers are afterwards as they were before, so a training that is probed in the middle
continues with the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from deeppc.core.algorithms import Algorithm
from deeppc.core.arguments import checked
from deeppc.core.energies import half_square
from deeppc.core.graph import Graph
from deeppc.core.state import State
from deeppc.diagnostics.contexts import untouched
from deeppc.diagnostics.epsilon import left_by_epsilon
from deeppc.diagnostics.stability import refusal, stability


@dataclass(frozen=True)
class Updates:
    """The updates that one batch would cause, by node; only nodes with weights that want a gradient are here.

    ``updates``  for each weight of the node: the gradient that an optimiser would get (descent is minus that), None
                 where no energy came. Of ipc, the sum over its T steps.
    ``energy``   what the weights learn from, as in :class:`deeppc.Result`.
    ``drift``    root mean square of ``x_T - x_0`` over the batch and the node's units. Empty for bp, which has no
                 inference, and for ipc, which learns before the inference has ended.
    """

    updates: dict[str, list[Tensor | None]]
    energy: dict[str, float]
    drift: dict[str, float]


class Similarity(NamedTuple):
    """Cosine of the angle between two updates, and the length of the first relative to the second.

    nan where there is nothing to compare: an update that is 0, missing, or not finite. The size of an update that is
    0 or missing is 0.
    """

    cosine: float
    size: float


@checked
def probe(algorithm: Algorithm, net: Graph, inputs: Tensor, targets: Tensor) -> Updates:
    """Return the updates of a training step on this batch, in the mode (train or eval) that the net is in.

    inputs (batch, ...); targets (batch,) class indices, or a float target. Costs one training step.

    ipc is followed with its weights held still: the sum of its T gradients is the change by plain SGD, divided by the
    learning rate, as that rate goes to 0. So the answer is the algorithm's own, not the optimiser's.

    Raises ``ValueError`` as a training step would, and for a network without trainable weights.
    """
    parameters = {v: weights for v, weights in net.trainable().items() if weights}
    if not parameters:
        raise ValueError("the network has no trainable weights: every parameter has requires_grad=False")
    drift: dict[str, float] = {}
    last = algorithm.steps(net)

    def observe(t: int, state: State) -> None:
        if t == last:
            moved = {v: d for v in parameters if (d := state.d.get(v)) is not None}
            drift.update(dict.fromkeys(parameters, 0.0))
            drift.update(
                {v: state.unit(v) * math.sqrt(2 * float(half_square(d)) / d.numel()) for v, d in moved.items()}
            )

    with untouched(net, inputs.device):
        catcher = _Catcher(dict.fromkeys(weight for weights in parameters.values() for weight in weights))
        out = algorithm.step(net, inputs, targets, catcher, observe=observe)
    return Updates(
        updates={v: [catcher.caught.get(weight) for weight in weights] for v, weights in parameters.items()},
        energy={v: float(out.energy[v]) for v in parameters},
        drift=drift,
    )


def backprop_for(algorithm: Algorithm) -> Algorithm:
    """Return backprop of the same loss."""
    return Algorithm.parse("bp", loss=algorithm.loss)


@checked
def compare_updates(a: Updates, b: Updates) -> dict[str, Similarity]:
    """Compare each node's update in ``a`` with that in ``b``, all weights of a node as one vector."""
    return {v: _similarity(update, b.updates[v]) for v, update in a.updates.items()}


@checked
def compare_with_backprop(algorithm: Algorithm, net: Graph, inputs: Tensor, targets: Tensor) -> dict[str, Similarity]:
    """Compare each node's update with backprop's, of the same loss on the same batch with the same dropout masks.

    Cosine 1: the same direction; 0: unrelated; -1: the opposite. Gradients are compared, before any optimiser.
    """
    mine = probe(algorithm, net, inputs, targets)
    return compare_updates(mine, probe(backprop_for(algorithm), net, inputs, targets))


@checked
def gap_ratios(updates: Updates) -> dict[str, float]:
    """Return the paper's gap ratio by node, ``sqrt(MSE(x_0, x_T)) / energy``, with the MSE over batch and units.

    ``x_0`` is the feed-forward activity, ``x_T`` the relaxed one (of the output, the one it was clamped to). The
    energy is that of the error which the learning rule uses. By the forward update that is the drift itself, so that a
    node of ``n`` units has the ratio ``2 / (n sqrt(MSE))``: there a large ratio means a small error and nothing else.

    nan where neither drift nor energy came, or the energy is negative (cross-entropy of an output nudged away from
    its target); inf where a node drifted and has no energy to learn from. bp and ipc raise ``ValueError``.
    """
    if not updates.drift:
        raise ValueError("bp has no inference and ipc no single x_T, so they have no gap ratio: probe a pc algorithm")
    ratios = {}
    for v, drift in updates.drift.items():
        energy = updates.energy[v]
        ratios[v] = drift / energy if energy > 0 else math.inf if energy == 0 and drift > 0 else math.nan
    return ratios


@checked
def diagnose(
    algorithm: Algorithm, net: Graph, inputs: Tensor, targets: Tensor, optimizer: Optimizer | None = None
) -> dict[str, dict[str, float | str]]:
    """Return the diagnostics of a line of ``metrics.jsonl``, by name, then by node that has trainable weights:

    ``bp_cosine``  cosine of the node's weight update with backprop's.
    ``bp_size``    its length relative to backprop's.
    ``gap_ratio``  see :func:`gap_ratios`; for pc only.
    ``left_by_epsilon``  see :mod:`deeppc.diagnostics.epsilon`; with an ``optimizer`` that has one.
    ``stability``  not by node: ``curvature`` and ``limit``, see :mod:`deeppc.diagnostics.stability`; where it has one.

    What is not finite is written as a string, "nan" or "inf", since JSON has no such numbers. Costs a training step
    and one of backprop, and some more inference steps.
    """
    mine = probe(algorithm, net, inputs, targets)
    reference = backprop_for(algorithm)
    backprop = mine if algorithm == reference else probe(reference, net, inputs, targets)
    found = compare_updates(mine, backprop)
    record = {"bp_cosine": {v: s.cosine for v, s in found.items()}, "bp_size": {v: s.size for v, s in found.items()}}
    if mine.drift:
        record["gap_ratio"] = gap_ratios(mine)
    if optimizer is not None and (left := left_by_epsilon(net, optimizer)):
        record["left_by_epsilon"] = left
    if not refusal(algorithm, net):
        record["stability"] = asdict(stability(algorithm, net, inputs))
    return {name: {v: x if math.isfinite(x) else str(x) for v, x in values.items()} for name, values in record.items()}


class _Catcher(Optimizer):
    """An optimiser that adds up the gradients it is given and moves nothing."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})
        self.caught: dict[Tensor, Tensor] = {}

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for weight in self.param_groups[0]["params"]:
            if weight.grad is not None:
                self.caught[weight] = self.caught[weight] + weight.grad if weight in self.caught else weight.grad


def _similarity(a: list[Tensor | None], b: list[Tensor | None]) -> Similarity:
    dot = sum(_dot(x, y) for x, y in zip(a, b, strict=True))
    length, other = (math.sqrt(sum(_dot(x, x) for x in update)) for update in (a, b))
    if not (0 < length < math.inf and 0 < other < math.inf):
        return Similarity(math.nan, 0.0 if length == 0 and 0 < other < math.inf else math.nan)
    return Similarity(max(-1.0, min(1.0, dot / length / other)), length / other)


def _dot(a: Tensor | None, b: Tensor | None) -> float:
    """In float64: squares of an early layer's gradients underflow float32. (mps has no float64: on the CPU.)"""
    if a is None or b is None:
        return 0.0
    x, y = (t.detach().to("cpu" if t.device.type == "mps" else t.device, torch.float64).flatten() for t in (a, b))
    return float(x @ y)
