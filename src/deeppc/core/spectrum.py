"""The spectrum of inference: how the energy curves around the feed-forward state, and the descent that suits it best.

With each layer as its slope there, the energy is quadratic in changes ``u`` of the hidden activities. Its Hessian is

    H = B^T B,          (B u)_v = u_v - sum over parents p of J_v,p u_p

``B u`` are the errors that the change makes, and ``B^T`` is how errors pull: a product with H costs an inference step.
Lanczos' method finds its least and largest eigenvalues l and h from a few of them. Of all the ways to descend with
momentum (the heavy ball; Polyak, Some methods of speeding up the convergence of iteration methods, 1964)

    lr = 4 / (sqrt h + sqrt l)^2          m = ((sqrt h - sqrt l) / (sqrt h + sqrt l))^2

is the fastest: distances fall by sqrt(m) a step, about 1 - 2 sqrt(l / h), where plain descent has 1 - 2 l / h at best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from deeppc.core import reuse
from deeppc.core.graph import Graph
from deeppc.core.state import State
from deeppc.core.wave import Wave

Change = Mapping[str, Tensor]  # of hidden activities, by node
UNIT = -60  # the exponent of what changes are counted in: so short that every layer is its slope
SEED = 0  # of the random change to begin with


def slopes(net: Graph) -> Wave:
    """The wave of a state in which each layer is its slope at the feed-forward pass."""
    return Wave(dict.fromkeys(net.nodes, UNIT), dict.fromkeys(net.nodes, 0.0))


def curvature(state: State, u: Change) -> dict[str, Tensor]:
    """``H u``, the force on each hidden activity after a change ``u``, in a state of :func:`slopes`."""
    net, forces = state.net, dict[str, Tensor]()
    for v, d in u.items():
        state.move(v, d)
    for v in reversed(list(net.nodes)):
        eps, parents = state.error(v), net.hidden_parents(v)
        pulls, _ = state.pull_back(v, eps, parents)
        for p, pull in zip(parents, pulls, strict=True):
            if pull is not None:
                forces[p] = forces[p] - pull if p in forces else -pull
        if v in u:
            forces[v] = forces[v] + eps if v in forces else eps
    return forces


def extremes(state: State, probes: int) -> tuple[float, float]:
    """The least and the largest eigenvalue of H, by so many products with it, in a state of :func:`slopes` at rest.

    Both are what Lanczos' method has found of them, from a random change. The largest has the error of that added, for
    descent must not overshoot; with few products it may still be some percent too small. The least is too large until
    there are about sqrt(h / l) products. nan in a state that is not finite.
    """
    hidden = [v for v in state.net.nodes if v not in state.net.outputs]
    if not hidden:
        return 1.0, 1.0
    last: Change = {}
    new = random_change(state, hidden)
    own: list[float] = []
    between = [_length(state, new)]
    for _ in range(probes):
        u = {v: x / between[-1] for v, x in new.items()}
        product = curvature(state, u)
        own.append(_dot(state, u, product))
        new = {v: x - own[-1] * u[v] - (between[-1] * last[v] if last else 0.0) for v, x in product.items()}
        last = u
        between.append(_length(state, new))
        if not math.isfinite(own[-1] + between[-1]):
            return math.nan, math.nan
        if between[-1] < 1e-5 * max(own):  # that is all that H makes of the first change
            break
    matrix = torch.diag(torch.tensor(own, dtype=torch.float64))
    matrix.diagonal(-1).copy_(torch.tensor(between[1:-1]))  # the half that is read
    values, vectors = torch.linalg.eigh(matrix)
    return float(values[0]), float(values[-1] + between[-1] * vectors[-1, -1].abs())


def random_change(state: State, nodes: Sequence[str]) -> Change:
    """A change to begin with: the same random one for each sample, times a number that its inputs give, at random.

    So it does not depend on the other samples, which another worker may have, and no norm cancels it.
    """
    generator = torch.Generator("cpu").manual_seed(SEED)

    def drawn(shape: torch.Size, like: Tensor) -> Tensor:
        return torch.randn(shape, generator=generator, device="cpu").to(like)

    inputs = [reuse.widened(state.mu0[v]).unsqueeze(-1).flatten(1) for v in state.net.inputs]
    length = 1 + torch.stack([x @ drawn(x.shape[1:], x) / math.sqrt(x.shape[1]) for x in inputs]).sum(0)

    def change(x: Tensor) -> Tensor:
        if x.shape[:1] != (state.batch,):  # a constant, of which samples have no part of their own
            return drawn(x.shape, x)
        return (drawn(x.shape[1:], x) * length.view(-1, *[1] * (x.dim() - 1))).to(x)

    return {v: change(state.mu0[v]) for v in nodes}


def heavy_ball(least: float, largest: float) -> tuple[float, float]:
    """The best learning rate and momentum between two eigenvalues."""
    low, high = math.sqrt(max(least, 1e-6 * largest)), math.sqrt(largest)
    return 4 / (high + low) ** 2, ((high - low) / (high + low)) ** 2


def _dot(state: State, a: Change, b: Change) -> float:
    return float(state.total(torch.stack([(a[v] * b[v]).sum().to(reuse.widest(a[v])) for v in a]).sum()))


def _length(state: State, a: Change) -> float:
    return math.sqrt(_dot(state, a, a))
