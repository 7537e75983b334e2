"""Inference: relax the activities by gradient descent on the energy.

    E_t = 1/2 sum_v pi_v(t) |eps_v|^2          dE/dx_v = pi_v eps_v - sum over successors c of pi_c J_c^T eps_c

All nodes move at once. A step goes from the output to the input and moves each node at the end of its turn: its
successors have read it by then, and its parents, which predict it, have not moved yet. So only one node's error is
held at a time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Protocol

import torch
from torch import Tensor

from deeppc.core import reuse
from deeppc.core.state import Observer, Scale, State

Factor = Callable[[str, int], float]  # of a node at a step


class PullBack(Protocol):
    """Returns ``J^T eps`` for each of the parents."""

    def __call__(self, v: str, eps: Tensor, *, parents: Sequence[str]) -> list[Tensor | None]: ...


class Learn(Protocol):
    """A :class:`PullBack` that lets the weights learn on the way, from ``part`` of the error."""

    def __call__(self, v: str, eps: Tensor, *, parents: Sequence[str], part: float) -> list[Tensor | None]: ...


def relax(
    descent: Descent,
    steps: int,
    *,
    observe: Observer | None = None,
    relaxed: Callable[[str], None] | None = None,
    learn: Learn | None = None,
) -> None:
    """Run inference steps ``t = 0 .. steps - 1``.

    ``observe(t, state)`` sees the state before each step, and after the last; if it returns True, inference ends.
    ``relaxed(v)`` is called as soon as ``v`` will neither move nor pull at its parents any more.
    ``learn`` pulls the error of ``v`` back where it is known already that ``v`` ends at a part of it.
    """
    state, turns = descent.state, descent.turns(steps)
    final = descent.final_turns(steps) if relaxed is not None else {}
    if observe is not None:
        turns = sorted(turns, key=itemgetter(0))  # else one node may be steps ahead of another
    seen = 0
    for t, v in chain(turns, [(steps, "")]):
        while observe is not None and seen <= t:
            if observe(seen, state) is True:
                return
            seen += 1
        if v in state.free:
            descent.move(v, t)
        elif v:
            if learn is not None and (part := descent.part(v)) is not None:
                descent.turn(v, t, partial(learn, part=part), learns=True)
            else:
                descent.turn(v, t)
            if relaxed is not None and final[v] == t:
                relaxed(v)


class Descent:
    """SGD on the activities of one batch, with momentum that begins at 0; or Adam. Nothing of it outlives the batch.

    ``send(v, t)`` weighs the error of ``v`` in the force on itself and on its parents; ``receive(v, t)`` weighs the
    whole force on ``v``, 0 where it stands still (the clamped output). Precision is the one or the other.

    ``noise``   temperature of Langevin dynamics: activities are then drawn from ``exp(-E / noise)``, in the long run.
    ``pinned``  by node, a mask of the entries that stand still, and their deviations.
    """

    def __init__(
        self,
        state: State,
        lr: float,
        momentum: float,
        nesterov: bool,
        send: Factor,
        receive: Factor,
        *,
        adam: bool = False,
        noise: float = 0.0,
        pinned: Mapping[str, tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        self.state = state
        self.lr, self.momentum, self.nesterov = lr, momentum, nesterov
        self.send, self.receive = send, receive
        self._adam, self._noise, self._pinned = adam, noise, pinned or {}
        self._moments: dict[str, tuple[Tensor, Tensor, int]] = {}  # of Adam, and how many
        self._forces: defaultdict[str, list[reuse.Term]] = defaultdict(list)  # dE/dx of nodes whose turn is to come
        self._buffers: dict[str, Tensor] = {}  # of the momentum

    def turns(self, steps: int) -> Iterable[tuple[int, str]]:
        """The step and node of each turn, in their order: every node at every step, the successors first.

        A turn of ``v`` at step t needs those of its successors at t, and of itself and its parents at t - 1.
        """
        order = [*reversed(list(self.state.net.nodes)), *self.state.free]
        return ((t, v) for t in range(steps) for v in order)

    def turn(self, v: str, t: int, pull_back: PullBack | None = None, *, learns: bool = False) -> bool:
        """Send the error of ``v`` to itself and to its parents, then move it. Return whether it had one.

        ``pull_back``, if given, does more on the way; with ``learns`` it is called where nothing moves, too.
        """
        state = self.state
        state.forget(v)
        parents = [p for p in dict.fromkeys(state.net.parents[v]) if self.receive(p, t)]
        sends = bool(self.send(v, t) and not state.at_rest(v) and (parents or self.receive(v, t) or learns))
        if sends:
            eps = self.error(v, t)
            force = state.force(v, eps)
            if pull_back:
                pulls = pull_back(v, eps, parents=parents)
            else:
                pulls, _ = state.pull_back(v, eps, parents, prediction=state.recent(v))
            self.push(v, t, force, parents, pulls)
            del eps, force  # before the next one is made
        self.move(v, t)
        return sends

    def error(self, v: str, t: int) -> Tensor:
        """The error of ``v`` that counts at step ``t``."""
        return self.state.error(v)

    def push(
        self, v: str, t: int, force: Tensor, parents: list[str], pulls: list[Tensor | None], factor: Scale = 1.0
    ) -> None:
        """Add ``pi force`` to the force on ``v``, and ``-pi J^T eps`` to the forces on ``parents``, times a factor.

        ``pulls`` is used up: nothing but the forces may hold a tensor that is to be written over.
        """
        pi = self.send(v, t) * factor
        if self.receive(v, t):
            # First: it may be d_v itself, to which the others are then added.
            self._forces[v].insert(0, (pi * self.receive(v, t), force))
        for p in reversed(parents):
            pull = pulls.pop()
            if pull is not None:
                pull = reuse.apart(pull, self.state.d.get(v))
                term = (-pi * self.receive(p, t) * self.state.wave.unit(v, p), pull)
                self._forces[p].insert(0, term)

    def move(self, v: str, t: int) -> None:
        """Take one step on ``d_v``, if there is a force or a momentum."""
        force = self._forces.pop(v, [])
        if self._noise and self.receive(v, t):
            force.append((math.sqrt(2 * self._noise / self.lr), torch.randn_like(reuse.widened(self.state.mu0[v]))))
        if not force and v not in self._buffers:
            return
        if self._adam and force:
            force = [(1.0, self._scaled(v, reuse.add(None, force, 1.0)))]
        m, buffers = self.momentum, self._buffers
        if m:
            buffers[v] = reuse.add(buffers[v].mul_(m) if v in buffers else None, force, 1.0)
            force = [*force, (m, buffers[v])] if self.nesterov else [(1.0, buffers[v])]
        read = [*buffers.values(), *(x for terms in (force[1:], *self._forces.values()) for _, x in terms)]
        d = reuse.add(self.state.d.get(v), force, -self.lr, read)
        if v in self._pinned:
            mask, value = self._pinned[v]
            d = torch.where(mask, value, d)
        self.state.move(v, d)

    def _scaled(self, v: str, force: Tensor) -> Tensor:
        """The force over the root of its mean square, as in Adam (0.9, 0.999, 1e-8)."""
        mean, square, n = self._moments.get(v, (torch.zeros_like(force), torch.zeros_like(force), 0))
        mean, square, n = mean.lerp(force, 0.1), square.lerp(force.square(), 0.001), n + 1
        self._moments[v] = mean, square, n
        return (mean / (1 - 0.9**n)) / ((square / (1 - 0.999**n)).sqrt() + 1e-8)

    def stop(self) -> None:
        """Let all activities stand still from now on."""
        self.receive = lambda v, t: 0.0
        self._buffers.clear()

    def part(self, v: str) -> float | None:
        """What part of the error at its spike ``v`` ends at, where that is known before; else None."""
        return None

    def final_turns(self, steps: int) -> dict[str, int]:
        """The last step at which each node may move or pull at a parent (step 0 if it never does)."""
        net = self.state.net
        final = dict.fromkeys(net.nodes, 0)
        for t in range(steps):
            for v in net.nodes:
                ends = [v, *net.parents[v]]
                if self.momentum or (self.send(v, t) and any(self.receive(u, t) for u in ends)):
                    final.update(dict.fromkeys(ends, t))
        return final
