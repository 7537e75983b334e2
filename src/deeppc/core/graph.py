"""A network of value nodes: who predicts whom, and when the wave of energy arrives.

A predictive coding network is a directed acyclic graph of *value nodes* (layers of neurons). Node
``"input"`` holds the data. Every other node ``v`` has parents and one ``torch.nn.Module`` that predicts it,

    mu_v = f_v(x_p1, x_p2, ...)

and the one node that predicts nothing else is the output. A :class:`Graph` is an ordinary ``nn.Module``:
``net(x)`` is the feed-forward pass, and ``state_dict``, ``.to(...)`` and ``torch.export`` do what they always do.

Three numbers per node say how energy, which starts at the output, can travel:

``level``     longest path from the input; ``L`` is the output's.
``hops``      fewest edges to the output.
``arrival``   ``L - level``: the step, from 0, at which the wave along the main path reaches the node.

In a chain ``hops == arrival``. A skip connection makes ``hops < arrival`` at its start: energy takes the short
cut and arrives too early. :meth:`Graph.balance` mends that by identity nodes on every edge that skips levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

    The order of the table does not matter. Raises ``ValueError`` for an unknown parent, a cycle, a node that does
    not lead to the output, and a parameter that two nodes share (their gradients would come from different steps).

    Attributes: ``nodes`` (the modules by name, in topological order), ``parents``, ``successors``,
    ``level``, ``hops``, ``arrival`` (dictionaries by name), ``output`` (a name), ``L``.
    """

    def __init__(self, nodes: Nodes) -> None:
        super().__init__()
        if not nodes:
            raise ValueError("a network needs at least one node besides the input")
        given = {v: (parents,) if isinstance(parents, str) else tuple(parents) for v, (_, parents) in nodes.items()}
        for v, (module, _) in nodes.items():
            _check_node(v, module, given)
        order = _topological(given)
        self.nodes = nn.ModuleDict({v: nodes[v][0] for v in order})
        self.parents = {v: given[v] for v in order}
        self.successors = {u: tuple(v for v in order if u in given[v]) for u in (INPUT, *order)}
        sinks = [v for v, after in self.successors.items() if not after]
        if len(sinks) != 1:
            several = ", ".join(sinks)
            raise ValueError(
                f"a network has one output, but {several} predict nothing: connect them to it or drop them"
            )
        self.output = sinks[0]
        self.level = {INPUT: 0}
        for v in order:
            self.level[v] = 1 + max(self.level[p] for p in self.parents[v])
        self.hops = {self.output: 0}
        for v in reversed(order):
            for p in self.parents[v]:
                self.hops[p] = min(self.hops.get(p, self.hops[v] + 1), self.hops[v] + 1)
        self.L = self.level[self.output]
        self.arrival = {v: self.L - level for v, level in self.level.items()}
        self.trainable()  # raises where nodes share parameters

    def forward(self, x: Tensor) -> Tensor:
        """Run the feed-forward pass: what the network answers at test time."""
        values = {INPUT: x}
        for v, module in self.nodes.items():
            values[v] = module(*(values[p] for p in self.parents[v]))
        return values[self.output]

    def trainable(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameters of each node that want a gradient. ``ValueError`` if two nodes share one."""
        owner: dict[Tensor, str] = {}
        for v, module in self.nodes.items():
            for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
                if owner.setdefault(tensor, v) != v:
                    raise ValueError(
                        f"nodes {owner[tensor]!r} and {v!r} share {name!r}: each node learns from its own error at its "
                        "own step, so give every node parameters and buffers of its own"
                    )
        return {v: [p for p in module.parameters() if p.requires_grad] for v, module in self.nodes.items()}

    def hidden_parents(self, v: str) -> list[str]:
        """Return the parents of ``v`` without the input, each once."""
        return [p for p in dict.fromkeys(self.parents[v]) if p != INPUT]

    def balance(self) -> Graph:
        """Return the same network (and the same modules) with identity nodes on every edge that skips levels.

        Afterwards each edge joins neighbouring levels, so ``hops == arrival`` everywhere. Edges from one parent
        share one line of identity nodes.
        """
        nodes: dict[str, tuple[nn.Module, Sequence[str]]] = {}

        def delayed(parent: str, steps: int) -> str:
            if steps == 0:
                return parent
            name = f"{parent}_aux{steps}"
            if name in self.nodes:
                raise ValueError(f"cannot balance: the name {name!r} is taken; rename that node")
            nodes.setdefault(name, (nn.Identity(), [delayed(parent, steps - 1)]))
            return name

        for v, parents in self.parents.items():
            gaps = {p: self.level[v] - self.level[p] - 1 for p in parents}
            nodes[v] = (self.nodes[v], [delayed(p, gaps[p]) for p in parents])
        return Graph(nodes)


class Chain(Graph):
    """``Chain(first, ..., last)``: a value node after each module, named ``"1"`` to ``"L"`` after their levels."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__({str(i + 1): (f, str(i) if i else INPUT) for i, f in enumerate(modules)})


class Sum(nn.Sequential):
    """Add the parents' activities, then apply the given modules in sequence: the simple many-parent node."""

    def forward(self, *xs: Tensor) -> Tensor:
        total = xs[0]
        for x in xs[1:]:
            total = total + x
        for module in self:
            total = module(total)
        return total


def _check_node(name: str, module: object, given: Mapping[str, tuple[str, ...]]) -> None:
    if not isinstance(module, nn.Module):
        raise TypeError(f"node {name!r} needs a torch.nn.Module that predicts it, not {type(module).__name__}")
    if not name or "." in name or name == INPUT or hasattr(nn.ModuleDict(), name):
        raise ValueError(f"{name!r} cannot name a node: it is empty, reserved, or contains a dot")
    if not given[name]:
        raise ValueError(f"node {name!r} has no parents: name the nodes that predict it, e.g. {INPUT!r}")
    for parent in given[name]:
        if parent != INPUT and parent not in given:
            known = ", ".join([INPUT, *given])
            raise ValueError(f"node {name!r} has an unknown parent {parent!r}: the nodes are {known}")


def _topological(parents: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Names so that parents come first; the given order is kept where it can be."""
    order = {INPUT: 0}  # a dictionary, for its quick "in"
    while rest := [v for v in parents if v not in order]:
        ready = (v for v in rest if all(p in order for p in parents[v]))
        if (v := next(ready, None)) is None:
            raise ValueError(f"the graph has a cycle among {', '.join(rest)}: a node may not predict its own ancestors")
        order[v] = len(order)
    return list(order)[1:]
