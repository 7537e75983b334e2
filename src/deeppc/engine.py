"""The engine: initialise, infer, learn, working only where energy is.

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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deeppc.graph import INPUT, Graph
from deeppc.norm import freezable, frozen, random_state, replayed

Scale = float | Tensor
Weight = Callable[[str, int], float]  # of a node at a step
Parameters = Mapping[str, Sequence[nn.Parameter]]
Gradients = dict[str, tuple[float, list[Tensor | None]]]  # by node: precision, gradient of each weight
Observer = Callable[[int, "State"], None]


@dataclass
class Work:
    """How often each node was predicted, pulled back through to its parents, and differentiated by its weights."""

    predictions: Counter[str] = field(default_factory=Counter)
    pull_backs: Counter[str] = field(default_factory=Counter)
    weight_gradients: Counter[str] = field(default_factory=Counter)


class Prediction(NamedTuple):
    """``mu = f_v(x_parents)`` with the little autograd graph behind it, from the parents' activities to ``mu``."""

    mu: Tensor
    parents: dict[str, Tensor]


class State:
    """Where a batch stands: feed-forward values, deviations from them, and the predictions that are still valid.

    Building it is the *initialise* phase, a feed-forward pass. ``kept`` names the nodes that will learn from this
    very pass: their graphs outlive the inference, and their running statistics move now.
    """

    def __init__(
        self,
        net: Graph,
        images: Tensor,
        *,
        respond: Callable[[Tensor], Tensor] | None = None,
        kept: Collection[str] = (),
    ) -> None:
        self.net = net
        self.work = Work()
        self.d: dict[str, Tensor] = {}  # of nodes that have moved; all others are exactly 0
        self.relearnt: set[str] = set()  # nodes whose weights have changed since initialisation
        self.batch = images.shape[0]
        self._respond = respond
        self._activities = {INPUT: images}
        self._draws: dict[str, list[Tensor]] = {}  # by node that draws random numbers: where the generators stood

        self.predictions: dict[str, Prediction] = {}
        self.kept: dict[str, Prediction] = {}
        self.mu0: dict[str, Tensor] = {}
        for v, module in net.nodes.items():
            before = random_state(images.device)
            prediction = self.predict(v, moving_statistics=v in kept)
            if not all(map(torch.equal, before, random_state(images.device))):
                self._draws[v] = before
            self.mu0[v] = prediction.mu.detach()
            if any(_shares_memory(self.mu0[v], w) for w in module.parameters()):
                self.mu0[v] = self.mu0[v].clone()  # a learnt constant, which iPC changes in place
            if v in kept:
                self.kept[v] = prediction
        self.response0 = _wide(self._response(net.output, self.mu0[net.output]))

    def clamp(self, target: Tensor, beta: Scale) -> None:
        """Move the output towards the target: ``x_out = mu0_out + beta (y - mu0_out)``."""
        self.d[self.net.output] = beta * (target - self.response0)
        self.target = self.response0 + self.d[self.net.output]

    def activity(self, v: str) -> Tensor:
        """``x_v = mu0_v + d_v``, a leaf that predictions of the successors are differentiated by."""
        if v not in self._activities:
            x = self.mu0[v]
            if v in self.d:
                x = (x + self.d[v]).to(x.dtype)
            self._activities[v] = x.detach().requires_grad_(x.is_floating_point())
        return self._activities[v]

    def undisturbed(self, v: str) -> bool:
        """The prediction of ``v`` is the initial one: neither its parents nor its weights have changed."""
        return v not in self.relearnt and not any(p in self.d for p in self.net.parents[v])

    def at_rest(self, v: str) -> bool:
        """No error is possible: neither the node nor what predicts it has changed since initialisation."""
        return v not in self.d and self.undisturbed(v)

    def predict(self, v: str, *, moving_statistics: bool = False) -> Prediction:
        """A valid prediction of ``v``, made anew only where it must be."""
        module = self.net.nodes[v]
        if v in self.predictions and not (moving_statistics and freezable(module)):
            return self.predictions[v]
        parents = {p: self.activity(p) for p in self.net.parents[v]}
        versions = [x._version for x in parents.values()]
        quiet = nullcontext() if moving_statistics else frozen(module)
        draws = replayed(self._draws[v], self._activities[INPUT].device) if v in self._draws else nullcontext()
        try:
            with torch.enable_grad(), quiet, draws:
                mu = module(*(parents[p] for p in self.net.parents[v]))
        except Exception as error:
            error.add_note(f"(while predicting the node {v!r})")
            raise
        if not isinstance(mu, Tensor):
            raise TypeError(f"the module of node {v!r} must return one tensor, not {type(mu).__name__}")
        if [x._version for x in parents.values()] != versions:
            raise ValueError(f"the module of node {v!r} changes its input in place: use inplace=False there")
        self.predictions[v] = Prediction(mu, parents)
        self.work.predictions[v] += 1
        return self.predictions[v]

    def error(self, v: str) -> Tensor:
        """``eps_v = x_v - mu_v = d_v - (mu_v - mu0_v)``; the second term is exactly 0 where nothing disturbed it."""
        d = self.d.get(v)
        if self.undisturbed(v):
            return torch.zeros_like(self.mu0[v]) if d is None else d
        before = self.response0 if v == self.net.output else self.mu0[v]
        eps = _wide(before) - self._response(v, self.predict(v).mu.detach())
        return eps if d is None else eps.add_(d)

    def pull_back(
        self,
        v: str,
        eps: Tensor,
        parents: Sequence[str] = (),
        weights: Sequence[nn.Parameter] = (),
        *,
        prediction: Prediction | None = None,
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
        gradients = torch.autograd.grad(
            prediction.mu,
            [prediction.parents[p] for p in parents] + list(weights),
            eps.to(prediction.mu.dtype),
            retain_graph=self.kept.get(v) is prediction,
            allow_unused=True,
        )
        return list(gradients[: len(parents)]), list(gradients[len(parents) :])

    def move(self, v: str, force: Force, descent: Descent, momentum: dict[str, Tensor]) -> None:
        """One step of SGD on ``d_v``; the predictions that ``x_v`` enters are out of date then."""
        m = descent.momentum
        if m:
            momentum[v] = force.applied(momentum[v].mul_(m) if v in momentum else None, 1.0)
            force = Force([*force, (m, momentum[v])] if descent.nesterov else [(1.0, momentum[v])])
        self.d[v] = force.applied(self.d.get(v), -descent.lr)
        self._activities.pop(v, None)
        for successor in self.net.successors[v]:
            self.predictions.pop(successor, None)

    def place(self, d: dict[str, Tensor]) -> None:
        """Go to the state with deviations ``d``."""
        self.d = d
        for v in self.net.nodes:
            self._activities.pop(v, None)
            self.predictions.pop(v, None)

    def energy(self, v: str, eps: Tensor, prediction: Prediction | None = None) -> Tensor:
        """``1/2 |eps_v|^2``, or the output's cross-entropy, mean over the batch."""
        if v == self.net.output and self._respond is not None:
            mu = (prediction or self.predict(v)).mu.detach()
            return -(self.target * torch.log_softmax(mu, dim=1)).sum() / self.batch
        return half_square(eps) / self.batch

    def _response(self, v: str, mu: Tensor) -> Tensor:
        return self._respond(mu) if self._respond is not None and v == self.net.output else mu


class Force(list[tuple[float, Tensor]]):
    """``dE/dx`` of one node as terms ``(weight, tensor)``, added up where they are applied, without a temporary."""

    def applied(self, to: Tensor | None, scale: float) -> Tensor:
        """``to + scale * force``, in place where there is a place."""
        terms = iter(self)
        if to is None:
            weight, first = next(terms)
            to = _wide(first) * (scale * weight)
        for weight, term in terms:
            to.add_(term, alpha=scale * weight)
        return to


@dataclass(frozen=True)
class Descent:
    """How activities descend the energy.

    ``send(v, t)`` weighs a node's error in the force on itself and on its parents; ``receive(v, t)`` weighs the
    whole force on a node, 0 where it stands (the input, the clamped output). Precision is the one or the other.
    """

    lr: float
    momentum: float
    nesterov: bool
    send: Weight
    receive: Weight


@dataclass(frozen=True)
class WeightSteps:
    """Weight updates at every inference step (iPC): how strongly each node learns, and who applies the gradients."""

    precision: Weight
    apply: Callable[[Gradients], None]
    parameters: Parameters


def infer(
    state: State, steps: int, descent: Descent, *, weights: WeightSteps | None = None, observe: Observer | None = None
) -> dict[str, Tensor]:
    """Relax the activities: all nodes at once, ``steps`` times, by

    dE/dx_v = pi_v eps_v - sum over successors c of pi_c J_c^T eps_c

    ``observe(t, state)`` sees the state before each step, and after the last (not in iPC, where nobody needs it).
    Returns the energy of each node when it last had its say (iPC).
    """
    energy: dict[str, Tensor] = {}
    net = state.net
    momentum: dict[str, Tensor] = {}
    for t in range(steps):
        if observe is not None:
            observe(t, state)
        last_look = weights is not None and t == steps - 1  # iPC: nobody looks at the activities after the last step
        for v in [v for v, module in net.nodes.items() if last_look and freezable(module)]:
            state.predict(v, moving_statistics=True)
        receive = {v: 0.0 if last_look else descent.receive(v, t) for v in net.nodes}
        forces: dict[str, Force] = {}
        gradients: Gradients = {}
        for v in net.nodes:
            pi = descent.send(v, t)
            parents = [p for p in dict.fromkeys(net.parents[v]) if receive.get(p)]
            learning = weights.precision(v, t) if weights is not None and weights.parameters[v] else 0.0
            if not pi or state.at_rest(v) or not (receive[v] or parents or learning):
                continue
            eps = state.error(v)
            own = weights.parameters[v] if weights is not None and learning else ()
            if weights is not None:
                energy[v] = state.energy(v, eps)
            pulls, by_weights = state.pull_back(v, eps, parents, own)
            if own:
                gradients[v] = (learning, by_weights)
            if receive[v]:
                forces.setdefault(v, Force()).append((pi * receive[v], eps))
            for p, pull in zip(parents, pulls, strict=True):
                if pull is not None:
                    forces.setdefault(p, Force()).append((-pi * receive[p], pull))
        # Moves change d in place, and an error may *be* its node's d, as may what an identity pulled back of it. In
        # topological order every d is read, by its node's own term and by its parents, before it changes.
        for v in net.nodes:
            if v in forces or (v in momentum and not last_look):
                state.move(v, forces.get(v, Force()), descent, momentum)
        if weights is not None:
            weights.apply(gradients)
            torch.clear_autocast_cache()  # it holds the weights of before
            for v in gradients:
                state.relearnt.add(v)
                state.predictions.pop(v, None)
    if observe is not None and weights is None:
        observe(steps, state)
    return energy


def learn(
    state: State,
    parameters: Parameters,
    scale: Callable[[str], Scale],
    *,
    forward: Collection[str] = (),
    presynaptic: str = "initial",
    free_relaxation: Callable[[], None] | None = None,
) -> dict[str, Tensor]:
    """Fill ``.grad`` from the relaxed state ``x_T``; returns the energy that each node learnt from.

    Standard rule: the error ``x_T - f_v(x_T,parents)``, pulled back to the weights. Nodes in ``forward`` learn from
    ``x_T - mu0`` instead (forward update), through their prediction from the initial parents or the relaxed ones.
    After a free relaxation the state that the unclamped network settles in stands in for the initial one.
    """
    energy: dict[str, Tensor] = {}
    relaxed, rest = state.d, {}
    if free_relaxation is not None:
        state.place({v: d.clone() for v, d in relaxed.items()})
        free_relaxation()
        rest = state.d

    def teach(v: str, prediction: Prediction) -> None:
        if v in forward:
            eps = relaxed.get(v, 0) - rest[v] if v in rest else relaxed.get(v)
        else:
            eps = None if state.at_rest(v) else state.error(v)
        if eps is not None:
            energy[v] = state.energy(v, eps, prediction)
            _, by_weights = state.pull_back(v, eps, (), parameters[v], prediction=prediction)
            accumulate(parameters[v], by_weights, scale(v))

    if presynaptic == "initial":
        for v in forward:
            teach(v, state.kept.pop(v) if free_relaxation is None else state.predict(v, moving_statistics=True))
    if free_relaxation is not None:
        state.place(relaxed)
    for v in state.net.nodes:
        if presynaptic == "relaxed" or v not in forward:
            teach(v, state.predict(v, moving_statistics=True))
    return energy


def backpropagate(state: State, parameters: Parameters, scale: Callable[[str], Scale]) -> dict[str, Tensor]:
    """The baseline: one sweep from the clamped output to the input, over the same little graphs."""
    net = state.net
    energy: dict[str, Tensor] = {}
    delta = {net.output: state.d[net.output]}
    for v in reversed(list(net.nodes)):
        prediction = state.kept.pop(v)
        del state.predictions[v]
        if v not in delta:
            continue
        eps = delta.pop(v)
        energy[v] = state.energy(v, eps, prediction)
        parents = [p for p in dict.fromkeys(net.parents[v]) if p != INPUT]
        pulls, by_weights = state.pull_back(v, eps, parents, parameters[v], prediction=prediction)
        accumulate(parameters[v], by_weights, scale(v))
        for p, pull in zip(parents, pulls, strict=True):
            if pull is not None:
                delta[p] = delta[p] + pull if p in delta else pull
    return energy


def accumulate(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None], scale: Scale) -> None:
    """Add ``scale * gradient`` to ``.grad``, as ``backward()`` would."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            scaled = gradient * scale
            parameter.grad = scaled if parameter.grad is None else parameter.grad + scaled


def half_square(eps: Tensor) -> Tensor:
    """``1/2 |eps|^2``, added up in float64 where the device has it: squares of small errors underflow float32."""
    wide = torch.float32 if eps.device.type == "mps" else torch.float64
    norm: Tensor = torch.linalg.vector_norm(eps, dtype=wide)
    return norm.square() / 2


def _wide(x: Tensor) -> Tensor:
    """Half precision in float32: deviations and errors add up small differences."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _shares_memory(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
