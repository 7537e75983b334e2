"""Inference: relax the activities by SGD on the energy.

    E_t = 1/2 sum_v pi_v(t) |eps_v|^2          dE/dx_v = pi_v eps_v - sum over successors c of pi_c J_c^T eps_c

All nodes move at once. A step goes from the output to the input and moves each node at the end of its turn: its
successors have read it by then, and its parents, which predict it, have not moved yet. So only one node's error is
held at a time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from torch import Tensor

from deeppc.core import reuse
from deeppc.core.state import Observer, State

Weight = Callable[[str, int], float]  # of a node at a step


def infer(
    descent: Descent, steps: int, *, observe: Observer | None = None, relaxed: Callable[[str], None] | None = None
) -> None:
    """Run inference steps ``t = 0 .. steps - 1``.

    ``observe(t, state)`` sees the state before each step, and after the last. ``relaxed(v)`` is called as soon as
    ``v`` will neither move nor pull at its parents any more.
    """
    state = descent.state
    final = descent.final_turns(steps) if relaxed is not None else {}
    for t in range(steps):
        if observe is not None:
            observe(t, state)
        for v in reversed(list(state.net.nodes)):
            state.forget(v)
            parents = descent.moving_parents(v, t)
            if descent.send(v, t) and not state.at_rest(v) and (parents or descent.receive(v, t)):
                eps = state.error(v)
                pulls, _ = state.pull_back(v, eps, parents)
                descent.push(v, t, eps, parents, pulls)
                del eps  # before the next one is made
            descent.move(v)
            if relaxed is not None and final[v] == t:
                relaxed(v)
    if observe is not None:
        observe(steps, state)


class Descent:
    """SGD on the activities of one batch, with momentum that begins at 0.

    ``send(v, t)`` weighs the error of ``v`` in the force on itself and on its parents; ``receive(v, t)`` weighs the
    whole force on ``v``, 0 where it stands still (the clamped output). Precision is the one or the other.
    """

    def __init__(self, state: State, lr: float, momentum: float, nesterov: bool, send: Weight, receive: Weight) -> None:
        self.state = state
        self.lr, self.momentum, self.nesterov = lr, momentum, nesterov
        self.send, self.receive = send, receive
        self._forces: defaultdict[str, list[reuse.Term]] = defaultdict(list)  # dE/dx of nodes whose turn is to come
        self._buffers: dict[str, Tensor] = {}  # of the momentum

    def moving_parents(self, v: str, t: int) -> list[str]:
        """The parents of ``v`` that are free to move at step ``t``."""
        return [p for p in self.state.net.hidden_parents(v) if self.receive(p, t)]

    def push(self, v: str, t: int, eps: Tensor, parents: list[str], pulls: list[Tensor | None]) -> None:
        """Add ``pi eps`` to the force on ``v``, and ``-pi J^T eps`` to the forces on ``parents``.

        ``pulls`` is used up: nothing but the forces may hold a tensor that is to be written over.
        """
        pi = self.send(v, t)
        if self.receive(v, t):
            self._forces[v].insert(0, (pi * self.receive(v, t), eps))
        for p in reversed(parents):
            pull = pulls.pop()
            if pull is not None:
                pull = reuse.apart(pull, self.state.d.get(v))
                self._forces[p].insert(0, (-pi * self.receive(p, t), pull))

    def move(self, v: str) -> None:
        """Take one SGD step on ``d_v``, if there is a force or a momentum."""
        force = self._forces.pop(v, [])
        if not force and v not in self._buffers:
            return
        m, buffers = self.momentum, self._buffers
        if m:
            buffers[v] = reuse.add(buffers[v].mul_(m) if v in buffers else None, force, 1.0)
            force = [*force, (m, buffers[v])] if self.nesterov else [(1.0, buffers[v])]
        read = [*buffers.values(), *(x for terms in (force[1:], *self._forces.values()) for _, x in terms)]
        self.state.move(v, reuse.add(self.state.d.get(v), force, -self.lr, read))

    def stop(self) -> None:
        """Let all activities stand still from now on."""
        self.receive = lambda v, t: 0.0
        self._buffers.clear()

    def final_turns(self, steps: int) -> dict[str, int]:
        """The last step at which each node may move or pull at a parent (step 0 if it never does)."""
        net = self.state.net
        final = dict.fromkeys(net.nodes, 0)
        for t in range(steps):
            for v in net.nodes:
                ends = [v, *net.hidden_parents(v)]
                if self.momentum or (self.send(v, t) and any(self.receive(u, t) for u in ends)):
                    final.update(dict.fromkeys(ends, t))
        return final
