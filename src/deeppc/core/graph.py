"""A network of value nodes: who predicts whom, and when the wave of energy arrives.

A predictive coding network is a directed acyclic graph of *value nodes* (layers of neurons). Node
``"input"`` holds the data. Every other node ``v`` has parents and one ``torch.nn.Module`` that predicts it,

    mu_v = f_v(x_p1, x_p2, ...)

and a node that predicts nothing else is an output. A :class:`Graph` is an ordinary ``nn.Module``:
``net(x)`` is the feed-forward pass, and ``state_dict``, ``.to(...)`` and ``torch.export`` do what they always do.

Three numbers per node say how energy, which starts at the output, can travel:

``level``     longest path from an input; ``L`` is the largest.
``hops``      fewest edges to an output.
``arrival``   ``L - level``: the step, from 0, at which the wave along the main path reaches the node.

In a chain ``hops == arrival``. A skip connection makes ``hops < arrival`` at its start: energy takes the short
cut and arrives too early. :meth:`Graph.balance` mends that by identity nodes on every edge that skips levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

INPUT = "input"
Nodes = Mapping[str, tuple[nn.Module, str | Sequence[str]]]


class Graph(nn.Module):
    """A predictive coding network from a table of nodes: ``name: (module, parents)``.

    >>> net = Graph({
    ...     "h": (nn.Sequential(nn.Linear(784, 64), nn.GELU()), "input"),
    ...     "g": (nn.Sequential(nn.Linear(64, 64), nn.GELU()), "h"),
    ...     "y": (Sum(nn.Linear(64, 10)), ["g", "h"]),       # called with x_g and x_h
    ... })

    The order of the table does not matter. Nodes that nothing follows are outputs, each with a target of its own.
    Nodes may share parameters (tied weights, a recurrence unrolled in time): their lessons add up.

    ``inputs`` names the nodes that hold data, if there are several: they are called ``net(x, y)`` in this order.
    ``energies`` gives nodes another energy than half the squared error (see :mod:`deeppc.core.energies`).
    Raises ``ValueError`` for an unknown parent, a cycle, and an input that predicts nothing.

    Attributes: ``nodes`` (the modules by name, in topological order), ``inputs``, ``outputs`` (names), ``parents``,
    ``successors``, ``level``, ``hops``, ``arrival`` (dictionaries by name), ``L``, ``energies`` (by name).
    """

    def __init__(
        self, nodes: Nodes, *, inputs: str | Sequence[str] = INPUT, energies: Mapping[str, nn.Module] | None = None
    ) -> None:
        super().__init__()
        self.inputs = (inputs,) if isinstance(inputs, str) else tuple(inputs)
        given = _checked(nodes, self.inputs)
        order = _topological(given, self.inputs)
        self.nodes = nn.ModuleDict({v: nodes[v][0] for v in order})
        self.energies = nn.ModuleDict(energies)
        self.require_nodes(self.energies)
        self.parents = {v: given[v] for v in order}
        self.successors = {u: tuple(v for v in order if u in given[v]) for u in (*self.inputs, *order)}
        self.outputs = tuple(v for v, after in self.successors.items() if not after)
        if unused := [v for v in self.outputs if v in self.inputs]:
            raise ValueError(f"{', '.join(unused)} predicts nothing: make it a parent, or leave it out")
        self.level = dict.fromkeys(self.inputs, 0)
        for v in order:
            self.level[v] = 1 + max(self.level[p] for p in self.parents[v])
        self.hops = dict.fromkeys(self.outputs, 0)
        for v in reversed(order):
            for p in self.parents[v]:
                self.hops[p] = min(self.hops.get(p, self.hops[v] + 1), self.hops[v] + 1)
        self.L = max(self.level.values())
        self.arrival = {v: self.L - level for v, level in self.level.items()}

    @property
    def output(self) -> str:
        """The name of the output, where there is one."""
        if len(self.outputs) > 1:
            raise ValueError(f"this network has several outputs, {', '.join(self.outputs)}: say which, or use .outputs")
        return self.outputs[0]

    def forward(self, *xs: Tensor) -> Any:
        """Run the feed-forward pass: what the network answers at test time; for several outputs, a dict by name."""
        if len(xs) != len(self.inputs):
            raise TypeError(f"this network has the inputs {', '.join(self.inputs)}, but was called with {len(xs)}")
        values = dict(zip(self.inputs, xs, strict=True))
        for v, module in self.nodes.items():
            values[v] = module(*(values[p] for p in self.parents[v]))
        return values[self.outputs[0]] if len(self.outputs) == 1 else {v: values[v] for v in self.outputs}

    def require_nodes(self, energies: Iterable[str]) -> None:
        """Raise ``ValueError`` if energies are given for something that is no node."""
        if unknown := [v for v in energies if v not in self.nodes]:
            raise ValueError(f"energies name {unknown[0]!r}: the nodes are {', '.join(self.nodes)}")

    def trainable(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameters of each node that want a gradient."""
        return {v: [p for p in module.parameters() if p.requires_grad] for v, module in self.nodes.items()}

    def hidden_parents(self, v: str) -> list[str]:
        """Return the parents of ``v`` without inputs, each once."""
        return [p for p in dict.fromkeys(self.parents[v]) if p not in self.inputs]

    def balance(self) -> Graph:
        """Return the same network (and the same modules) with identity nodes on every edge that skips levels.

        Afterwards each edge joins neighbouring levels and all outputs are at the last one, so ``hops == arrival``
        everywhere. Edges from one parent share one line of identity nodes. Edges from inputs, which do not move, stay
        as they are.
        """
        level = {**self.level, **dict.fromkeys(self.outputs, self.L)}
        nodes: dict[str, tuple[nn.Module, Sequence[str]]] = {}

        def delayed(parent: str, steps: int) -> str:
            if steps == 0 or parent in self.inputs:
                return parent
            name = f"{parent}_aux{steps}"
            if name in self.nodes:
                raise ValueError(f"cannot balance: the name {name!r} is taken; rename that node")
            nodes.setdefault(name, (nn.Identity(), [delayed(parent, steps - 1)]))
            return name

        for v, parents in self.parents.items():
            gaps = {p: level[v] - level[p] - 1 for p in parents}
            nodes[v] = (self.nodes[v], [delayed(p, gaps[p]) for p in parents])
        return Graph(nodes, inputs=self.inputs, energies=dict(self.energies.items()))


class Chain(Graph):
    """``Chain(first, ..., last)``: a value node after each module, named ``"1"`` to ``"L"`` after their levels.

    What has no parameters (ReLU, pooling, dropout) belongs into one ``nn.Sequential`` with its layer, and is refused on
    its own: each value node is one more level that the energy has to cross. A :class:`Graph` may have such nodes.
    """

    def __init__(self, *modules: nn.Module) -> None:
        for i, module in enumerate(modules):
            if isinstance(module, nn.Module) and not any(True for _ in module.parameters()):
                kind = type(module).__name__
                raise ValueError(
                    f"module {i + 1} of the chain, {kind}, has no parameters, so it would be a level of its own that "
                    f"learns nothing: put it into nn.Sequential(layer, {kind}(...)) with the layer that it follows"
                )
        super().__init__({str(i + 1): (f, str(i) if i else INPUT) for i, f in enumerate(modules)})


class Latent(nn.Module):
    """Predict the same learnt mean for every sample, whatever it is called with: the prior of a latent node."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.mean.expand(len(x), *self.mean.shape)


class Sum(nn.Sequential):
    """Add the parents' activities, then apply the given modules in sequence: the simple many-parent node."""

    def forward(self, *xs: Tensor) -> Tensor:
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        for module in self:
            total = module(total)
        return total


def _checked(nodes: Nodes, inputs: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the parents of each node, once the table is what it should be."""
    if not isinstance(nodes, Mapping):
        raise TypeError(f"nodes are a {type(nodes).__name__}, but must be a dict: name: (module, parents)")
    if not nodes:
        raise ValueError("a network needs at least one node besides the input")
    if len(set(inputs)) < max(1, len(inputs)) or not all(isinstance(v, str) and v for v in inputs):
        raise ValueError(f"inputs are {inputs!r}, but must be names, each once")
    parents = {}
    for v, entry in nodes.items():
        if not isinstance(v, str):
            raise TypeError(f"{v!r} cannot name a node: names are text")
        if not v or "." in v or v in inputs or hasattr(nn.ModuleDict(), v):
            raise ValueError(f"{v!r} cannot name a node: it is empty, reserved, or contains a dot")
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            raise TypeError(f"node {v!r} is given by {type(entry).__name__}, but must be (module, parents)")
        if not isinstance(entry[0], nn.Module):
            raise TypeError(f"node {v!r} needs a torch.nn.Module that predicts it, not {type(entry[0]).__name__}")
        given = [entry[1]] if isinstance(entry[1], str) else entry[1]
        if not isinstance(given, Sequence) or not all(isinstance(p, str) for p in given):
            raise TypeError(f"node {v!r} has the parents {given!r}, but must have a name or a list of names")
        if not given:
            raise ValueError(f"node {v!r} has no parents: name the nodes that predict it, e.g. {inputs[0]!r}")
        parents[v] = tuple(given)
    for v, given in parents.items():
        for parent in given:
            if parent not in inputs and parent not in parents:
                known = ", ".join([*inputs, *parents])
                raise ValueError(f"node {v!r} has an unknown parent {parent!r}: the nodes are {known}")
    return parents


def _topological(parents: Mapping[str, tuple[str, ...]], inputs: tuple[str, ...]) -> list[str]:
    """Names so that parents come first; the given order is kept where it can be."""
    order = dict.fromkeys(inputs)  # a dictionary, for its quick "in"
    while rest := [v for v in parents if v not in order]:
        ready = (v for v in rest if all(p in order for p in parents[v]))
        if (v := next(ready, None)) is None:
            raise ValueError(f"the graph has a cycle among {', '.join(rest)}: a node may not predict its own ancestors")
        order[v] = None
    return list(order)[len(inputs) :]
