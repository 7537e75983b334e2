"""The state of a batch: activities, and the predictions of them that are still valid.

Three facts save most of the work of a textbook implementation, and change nothing:

1. A node that has not moved, and whose parents and weights have not, has no error: ``x_v == mu_v`` exactly.
2. A node whose precision is 0 sends nothing, so its prediction is not needed.
3. A prediction whose parents (and weights) did not change is still valid.

Which nodes these are follows from the graph and the schedule alone, never from the numbers, so a batch has no
data-dependent control flow and nothing waits for the device.

Every activity is kept as its *deviation* ``d_v = x_v - mu0_v`` from the feed-forward value. The wave loses a factor
``lr_x`` per hop, so deep in a network ``d`` is far below the float32 resolution of ``x``: held as ``x``, the early
layers' errors are rounding noise; held as ``d`` they are exact.

Symbols: ``x`` activity, ``mu`` prediction, ``eps`` error ``x - mu``, ``d`` deviation, ``pi`` precision, ``t`` step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from deeppc.core import energies, reuse
from deeppc.core.graph import INPUT, Graph
from deeppc.core.norm import Draws, freezable, frozen

Scale = float | Tensor
Names = Sequence[str]
Weights = Sequence[nn.Parameter]
Observer = Callable[[int, "State"], None]


@dataclass
class Work:
    """How often each node was predicted, pulled back through to its parents, and differentiated by its weights."""

    predictions: Counter[str] = field(default_factory=Counter)
    pull_backs: Counter[str] = field(default_factory=Counter)
    weight_gradients: Counter[str] = field(default_factory=Counter)


class Prediction(NamedTuple):
    """``mu = f_v(x_parents)`` with the small autograd graph behind it, from the parents' activities to ``mu``."""

    mu: Tensor
    parents: dict[str, Tensor]


class State:
    """Feed-forward values of a batch, deviations from them, and predictions.

    Building it is the *initialise* phase, a feed-forward pass. ``keep`` names the nodes whose weights will learn
    through this very pass: their running statistics move now, and their graphs are kept, but for the largest ones.
    Those few hold most of the memory; they are made anew once their parents have moved.

    ``d``            deviations by node, of those that have moved; all others are exactly 0.
    ``mu0``          initial predictions by node; ``response0`` is the output's (under cross-entropy, its softmax).
    ``predictions``  those that are still valid, by node; ``kept``: initial ones that weights will learn through.
    ``batch``        the number of samples.
    """

    def __init__(self, net: Graph, inputs: Tensor, *, loss: str = "squared_error", keep: Collection[str] = ()) -> None:
        self.net = net
        self.batch = inputs.shape[0]
        self.work = Work()
        self.d: dict[str, Tensor] = {}
        self.mu0: dict[str, Tensor] = {}
        self.predictions: dict[str, Prediction] = {}
        self.kept: dict[str, Prediction] = {}
        self._loss = loss
        self._activities = {INPUT: inputs}
        self._draws = Draws(inputs.device)
        self._new_weights: set[str] = set()  # nodes whose weights have changed since initialisation

        for v, module in net.nodes.items():
            prediction = self.predict(v, moving_statistics=v in keep)
            self.mu0[v] = prediction.mu.detach()
            if any(reuse.share_memory(self.mu0[v], w) for w in module.parameters()):
                self.mu0[v] = self.mu0[v].clone()  # a learnt constant, which iPC changes in place
            if v in keep:
                self.kept[v] = prediction
        self.response0 = reuse.widened(energies.respond(self.mu0[net.output], loss))
        ends = {v: (self.mu0[v], *map(self.activity, net.parents[v])) for v in net.nodes}
        self._large = reuse.largest({v: sum(x.numel() for x in tensors) for v, tensors in ends.items()})

    def activity(self, v: str) -> Tensor:
        """``x_v = mu0_v + d_v``, a leaf that predictions of the successors are differentiated by."""
        if v not in self._activities:
            x = self.mu0[v]
            if v in self.d:
                x = (x + self.d[v]).to(x.dtype)
            self._activities[v] = x.detach().requires_grad_(x.is_floating_point())
        return self._activities[v]

    def forget(self, v: str) -> None:
        """Drop the cached ``x_v``, once the successors have read it and before it moves."""
        self._activities.pop(v, None)

    def undisturbed(self, v: str) -> bool:
        """Whether the prediction of ``v`` is the initial one: neither its parents nor its weights have changed."""
        return v not in self._new_weights and not any(p in self.d for p in self.net.parents[v])

    def at_rest(self, v: str) -> bool:
        """Whether no error is possible: neither the node nor what predicts it has changed since initialisation."""
        return v not in self.d and self.undisturbed(v)

    def predict(self, v: str, *, moving_statistics: bool = False) -> Prediction:
        """Return a valid prediction of ``v``, made anew only where it must be."""
        if v not in self.predictions or (moving_statistics and freezable(self.net.nodes[v])):
            parents = {p: self.activity(p) for p in self.net.parents[v]}
            self.predictions[v] = self._predict(v, parents, moving_statistics)
        return self.predictions[v]

    def initial(self, v: str) -> Prediction:
        """Take out the initial prediction of ``v``, for learning: as it was kept, or made anew from initial parents."""
        if v in self.kept:
            return self.kept.pop(v)
        return self._predict(v, {p: self.mu0.get(p, self._activities[INPUT]) for p in self.net.parents[v]}, False)

    def _predict(self, v: str, parents: dict[str, Tensor], moving_statistics: bool) -> Prediction:
        module = self.net.nodes[v]
        versions = [x._version for x in parents.values()]
        try:
            with torch.enable_grad(), nullcontext() if moving_statistics else frozen(module), self._draws.of(v):
                mu = module(*(parents[p] for p in self.net.parents[v]))
        except Exception as error:
            error.add_note(f"(while predicting the node {v!r})")
            raise
        if not isinstance(mu, Tensor):
            raise TypeError(f"the module of node {v!r} must return one tensor, not {type(mu).__name__}")
        if [x._version for x in parents.values()] != versions:
            raise ValueError(f"the module of node {v!r} changes its input in place: use inplace=False there")
        self.work.predictions[v] += 1
        return Prediction(mu, parents)

    def error(self, v: str) -> Tensor:
        """``eps_v = x_v - mu_v = d_v - (mu_v - mu0_v)``; the second term is exactly 0 where nothing disturbed it.

        Under cross-entropy the output's ``mu`` is its softmax.
        """
        d = self.d.get(v)
        if self.undisturbed(v):
            return torch.zeros_like(self.mu0[v]) if d is None else d
        mu0, mu = self.mu0[v], self.predict(v).mu.detach()
        if v == self.net.output:
            mu0, mu = self.response0, energies.respond(mu, self._loss)
        eps = reuse.widened(mu0) - mu
        return eps if d is None else eps.add_(d)

    def pull_back(
        self, v: str, eps: Tensor, parents: Names = (), weights: Weights = (), prediction: Prediction | None = None
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """``J^T eps`` by the activities of ``parents`` and by ``weights``, through one prediction of ``v``.

        The prediction's graph is spent by this, unless it is kept for learning: whoever pulls back moves a parent
        or a weight, and the prediction is out of date anyway.
        """
        if prediction is None:
            prediction = self.predict(v)
        if not prediction.mu.requires_grad or not (parents or weights):
            return [None] * len(parents), [None] * len(weights)
        if parents:
            self.work.pull_backs[v] += 1
        if weights:
            self.work.weight_gradients[v] += 1
        inputs = [prediction.parents[p] for p in parents] + list(weights)
        output, eps = get_gradient_edge(prediction.mu), eps.to(prediction.mu.dtype)
        kept = self.kept.get(v) is prediction
        if not kept:
            self.predictions.pop(v, None)
        del prediction  # with it goes mu, which is not needed any more
        gradients = torch.autograd.grad(output, inputs, eps, retain_graph=kept, allow_unused=True)
        return list(gradients[: len(parents)]), list(gradients[len(parents) :])

    def move(self, v: str, d: Tensor) -> None:
        """Set the deviation of ``v``. The predictions that ``x_v`` enters are out of date then."""
        self.d[v] = d
        for successor in self.net.successors[v]:
            self.predictions.pop(successor, None)
            if successor in self._large:
                self.kept.pop(successor, None)

    def move_all(self, d: dict[str, Tensor]) -> None:
        """Go to the state with the deviations ``d``."""
        self.d = d
        for v in self.net.nodes:
            self._activities.pop(v, None)
            self.predictions.pop(v, None)

    def move_statistics(self) -> None:
        """Let the running statistics of every norm layer move, by a prediction at the present state."""
        for v, module in self.net.nodes.items():
            if freezable(module):
                self.predict(v, moving_statistics=True)

    def weights_changed(self, nodes: Iterable[str]) -> None:
        """Take note that the weights of ``nodes`` have changed: their predictions are out of date."""
        torch.clear_autocast_cache()  # it holds the weights of before
        for v in nodes:
            self._new_weights.add(v)
            self.predictions.pop(v, None)
