"""Strides: spiking predictive coding in time linear in depth.

In a balanced graph the front of the wave does not depend on ``alpha``. A node ``v`` that the wave reaches at step
``a`` has the deviation ``e_v`` then, spikes, falls back to ``d_v = (1 - lr) e_v``, and relaxes for the
``n = T - 1 - a`` steps that are left, at the small rate ``lr alpha``. So the wave runs with precision 0 off the spike,
at the cost of backprop, and K strides stand for all that follows. Each takes the K-th part of the sum of a node's
errors over those steps:

1. *To first order in alpha* the state that they are taken in stands still, but for the very first, in which the
   parents have ``e_p`` and not yet ``(1 - lr) e_p``, and the prediction of ``v`` has moved 1 / (1 - lr) times as far.
   The sum is

       n d_v - (n - 1 + 1 / (1 - lr)) (mu_v - mu0_v)

2. *To second order* a node moves meanwhile. On the average over the stride it has made half of its own step
   ``-lr (pi eps_v - pulls of its successors)``, and half of what its error does to its prediction through the parents,
   ``-lr pi J J^T eps_v``. Both lie nearly along the error and are taken by their sizes, so that the mean error is the
   error times a number. What the parents' own errors add is left out.

What is left is bounded in docs/method.md, and falls with K.

Nodes with few steps left may *rest*: take no stride at all. What their errors would do is then known from the schedule
alone, but for the prediction's part, of the size ``lr alpha n |J|^2``. For without it the error is ``d_v``, along which
``v`` falls back, and which pulls the parents along ``J^T d_v``, where the wave has moved them: each deviation is
multiplied by a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from deeppc.core import reuse
from deeppc.core.energies import Energy
from deeppc.core.graph import Graph
from deeppc.core.inference import Descent, PullBack
from deeppc.core.state import Scale, State

STEEP = 0.6  # of lr_x: above it the kinks of layers leave an error that more strides do not lower
SLOPE = 4.5  # what |J|^2 amounts to in VGGs and ResNets with BatchNorm, untrained and trained; less without


class Plan(NamedTuple):
    """So many ``strides``, where more than ``rest`` steps are left."""

    strides: int
    rest: int = 0


@lru_cache(maxsize=64)
def enough(L: int, lr: float, alpha: float, T: int, tolerance: float) -> Plan | None:
    """The least work that leaves about this relative error, or None: take all steps as they are.

    A node that rests leaves ``SLOPE lr alpha (n - 1 + 1 / (1 - lr))``, which may be half of the tolerance. The errors
    of the others add up along the way of the wave. In VGGs and ResNets, with and without norms, each is at most
    ``lr (alpha n)^2 / 2K`` of the deviation at the spike, above a rate of 1/2 ``(lr alpha n)^2 / K``; and after it
    1 / (1 - lr) as much.
    """
    left = [max(0, T - 1 - hop) for hop in range(L)]
    best, least = None, sum(left)
    if not least or not alpha or lr > STEEP:
        return None
    for rest in sorted({0, *left}):
        spared = tolerance - SLOPE * lr * alpha * (rest - 1 + 1 / (1 - lr) if rest else 0)
        strided = [n for n in left if n > rest]
        if spared < tolerance / 2:
            break
        if not strided:
            return Plan(0, rest)
        wanted = sum((alpha * n) ** 2 for n in strided) * lr * max(lr, 0.5) / (1 - lr) / spared
        if wanted < least:  # it may be infinite
            strides = max(1, math.ceil(wanted))
            if strides * len(strided) < least:
                best, least = Plan(strides, rest), strides * len(strided)
    return best


@lru_cache(maxsize=64)
def growth(lr: float, alpha: float, L: int, T: int, rest: int) -> tuple[float, ...]:
    """By hops from the output, what the deviation of a resting node is multiplied by after its spike.

    By its own error, and by its successors' if they rest, too. In a chain of one number a layer, in units of
    ``lr ** h``, without predictions.
    """
    if not rest or not alpha:
        return (1.0,) * L
    d = [1.0] + [0.0] * (L - 1)
    for t in range(T):
        eps = [(1.0 if t == h else alpha) * d[h] for h in range(L)]
        d[1:] = [d[h] - lr * eps[h] + eps[h - 1] for h in range(1, L)]

    def factor(h: int) -> float:
        left = T - 1 - h
        if not 0 < h < T or left > rest:
            return 1.0
        return d[h] / (1 - lr) if left < rest else (1 - lr * alpha) ** left

    return tuple(map(factor, range(L)))


def require_sound(net: Graph, energies: Mapping[str, Energy]) -> None:
    """Raise ``ValueError`` for networks that strides are not sound for."""
    if any(net.hops[v] != net.arrival[v] for v in net.nodes):
        raise ValueError(
            "strides (and tolerance) need a balanced graph, where energy comes down all paths at once: net.balance()"
        )
    if not all(energy.canonical if v in net.outputs else energy.plain for v, energy in energies.items()):
        raise ValueError(
            "strides (and tolerance) need hidden nodes of precision 1 and outputs with a target: leave them out"
        )


class Strides(Descent):
    """SGD on the activities: ``T`` steps of a wave with precision 0 off the spike, and the strides of a plan after it.

    With ``alpha = 0``, and nothing planned, it is the exact algorithm, on any graph.
    """

    def __init__(self, state: State, lr: float, alpha: float, T: int, plan: Plan) -> None:
        net = state.net
        self._front = T
        left = {v: max(0, T - 1 - net.arrival[v]) for v in net.nodes}
        self._left = {v: n / max(1, plan.strides) if n > plan.rest else 0.0 for v, n in left.items()}  # in each stride
        self._sent: list[reuse.Term] = []  # what the successors of the node whose turn it is have sent
        grown = growth(lr, alpha, net.L, T, plan.rest)
        still = {*net.inputs, *net.outputs}

        def send(v: str, t: int) -> float:
            return float(t == net.arrival[v]) if t < T else alpha * self._left[v]

        def receive(v: str, t: int) -> float:
            """Of its own spike, as much as makes it fall back to (1 - lr) times its growth."""
            if v in still or t != net.arrival[v]:
                return float(v not in still)
            return 1 + (1 - lr) / lr * (1 - grown[net.arrival[v]])

        super().__init__(state, lr, 0.0, False, send, receive)
        self._parts = {
            v: 1.0 if v in still else 1 - lr * receive(v, net.arrival[v])
            for v in net.nodes
            if (state.energy[v].plain or v in still)  # it falls back along its error, or stays
            and not any(alpha * self._left[u] for u in (v, *net.successors[v]))
            and all(net.arrival[u] >= net.arrival[v] for p in net.hidden_parents(v) for u in net.successors[p])
        }

    def part(self, v: str) -> float | None:
        """Of a node that moves when its successors spike, falls back at its own spike, and that is all.

        Its parents have not moved by then.
        """
        return self._parts.get(v) or None  # 0, at a rate of 1, is no part to learn from

    def turns(self, steps: int) -> list[tuple[int, str]]:
        """Those of nodes that send, and of their parents, which they move; one of each other node. As many as nodes.

        The wave goes on whatever happens behind its front. So the strides of a node follow as soon as its parents have
        fallen back, and it is done with while the wave is on its way.
        """
        net = self.state.net
        found: dict[tuple[int, str], None] = {}
        for v in net.nodes:
            for t in (net.arrival[v], *range(self._front, steps)):
                if t < steps and self.send(v, t):
                    found |= {(t, u): None for u in (v, *net.parents[v]) if u in net.nodes}
        found |= {(0, v): None for v in net.nodes.keys() - {v for _, v in found}}
        index = {v: i for i, v in enumerate(net.nodes)}

        def place(turn: tuple[int, str]) -> tuple[int, ...]:
            t, v = turn
            stride = t - self._front  # after the parents' last, which is the wave or the stride before
            return (t, -1, -index[v]) if stride < 0 else (net.arrival[v] + 1 + stride, stride)

        return sorted(found, key=place)

    def final_turns(self, steps: int) -> dict[str, int]:
        return {v: t for t, v in sorted(self.turns(steps))}

    def turn(self, v: str, t: int, pull_back: PullBack | None = None, *, learns: bool = False) -> bool:
        """In a stride, move ``v`` by what its successors have sent before its error is taken."""
        if t >= self._front:
            self._sent = self._forces.get(v, [])
            self.move(v, t)
        sends = super().turn(v, t, pull_back, learns=learns)
        self._sent = []
        return sends

    def error(self, v: str, t: int) -> Tensor:
        first = t == self._front and self._left[v]
        return self.state.error(v, 1 + self.lr / (1 - self.lr) / self._left[v] if first else 1.0)

    def push(
        self, v: str, t: int, force: Tensor, parents: list[str], pulls: list[Tensor | None], factor: Scale = 1.0
    ) -> None:
        if t >= self._front:
            half, (share, slope) = self._half(v, t), self._sizes(v, force, parents, pulls)
            factor = (1 + self.lr / 2 * (1 - half) * share) / (1 + half * slope) / (1 + half * self.receive(v, t))
        super().push(v, t, force, parents, pulls, factor)

    def _sizes(self, v: str, eps: Tensor, parents: list[str], pulls: list[Tensor | None]) -> tuple[Scale, Scale]:
        """``<force of the successors, eps> / |eps|^2`` and ``|J^T eps|^2 / |eps|^2``, over the whole batch."""
        adds = self.state.adds(v)
        own, *found = reuse.products(eps, [eps, *(x for _, x in self._sent)])
        sent = [weight * product for (weight, _), product in zip(self._sent, found, strict=True)]
        pulled = [reuse.products(pull, [pull])[0] for pull in pulls if pull is not None and not adds]
        products = self.state.total(torch.stack([own, *sent, *pulled]))
        parts = (products / products[0]).nan_to_num(0.0, 0.0, 0.0).to(eps.dtype)  # 0 where there is no error
        share, slope = parts[1 : len(sent) + 1].sum(), parts[len(sent) + 1 :].sum()
        if adds:  # its parents are pulled by the error itself
            return share, float(sum(self.state.net.parents[v].count(p) ** 2 for p in parents))
        return share, slope

    def _half(self, v: str, t: int) -> float:
        """``lr pi (n - 1) / 2n``: step i of n comes after i - 1 others, (n - 1) / 2 on the average."""
        n = self._left[v]
        return self.lr * self.send(v, t) * max(0.0, n - 1) / (2 * n) if n else 0.0
