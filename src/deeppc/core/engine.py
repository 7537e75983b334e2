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
from torch.autograd.graph import get_gradient_edge

from deeppc.core.graph import INPUT, Graph
from deeppc.core.norm import freezable, frozen, random_state, replayed

Scale = float | Tensor
Weight = Callable[[str, int], float]  # of a node at a step
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

    Building it is the *initialise* phase, a feed-forward pass. ``learners`` names the nodes that will learn from
    this very pass: their running statistics move now, and their graphs are kept, but for the largest ones. Those few
    hold most of the memory; they are made anew once their parents have moved.
    """

    def __init__(
        self,
        net: Graph,
        images: Tensor,
        *,
        respond: Callable[[Tensor], Tensor] | None = None,
        learners: Collection[str] = (),
    ) -> None:
        self.net = net
        self.learners = frozenset(learners)
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
            prediction = self.predict(v, moving_statistics=v in learners)
            if not all(map(torch.equal, before, random_state(images.device))):
                self._draws[v] = before
            self.mu0[v] = prediction.mu.detach()
            if any(_shares_memory(self.mu0[v], w) for w in module.parameters()):
                self.mu0[v] = self.mu0[v].clone()  # a learnt constant, which iPC changes in place
            if v in learners:
                self.kept[v] = prediction
        self.response0 = _wide(self._response(net.output, self.mu0[net.output]))
        sizes = {v: sum(x.numel() for x in (self.mu0[v], *map(self.activity, net.parents[v]))) for v in net.nodes}
        self._large = {v for v, size in sizes.items() if 2 * size > max(sizes.values())}

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

    def forget(self, v: str) -> None:
        """Let go of ``x_v``, which the successors have read."""
        self._activities.pop(v, None)

    def undisturbed(self, v: str) -> bool:
        """The prediction of ``v`` is the initial one: neither its parents nor its weights have changed."""
        return v not in self.relearnt and not any(p in self.d for p in self.net.parents[v])

    def at_rest(self, v: str) -> bool:
        """No error is possible: neither the node nor what predicts it has changed since initialisation."""
        return v not in self.d and self.undisturbed(v)

    def predict(self, v: str, *, moving_statistics: bool = False) -> Prediction:
        """A valid prediction of ``v``, made anew only where it must be."""
        if v not in self.predictions or (moving_statistics and freezable(self.net.nodes[v])):
            parents = {p: self.activity(p) for p in self.net.parents[v]}
            self.predictions[v] = self._predict(v, parents, moving_statistics)
        return self.predictions[v]

    def initial(self, v: str) -> Prediction:
        """The initial prediction of ``v``, for learning: as it was kept, or made anew from the initial parents."""
        if v in self.kept:
            return self.kept.pop(v)
        return self._predict(v, {p: self.mu0.get(p, self._activities[INPUT]) for p in self.net.parents[v]}, False)

    def _predict(self, v: str, parents: dict[str, Tensor], moving_statistics: bool) -> Prediction:
        module = self.net.nodes[v]
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
        self.work.predictions[v] += 1
        return Prediction(mu, parents)

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
        inputs = [prediction.parents[p] for p in parents] + list(weights)
        output, eps = get_gradient_edge(prediction.mu), eps.to(prediction.mu.dtype)
        kept = self.kept.get(v) is prediction
        if not kept:
            self.predictions.pop(v, None)
        del prediction  # with it goes mu, which nobody needs any more
        gradients = torch.autograd.grad(output, inputs, eps, retain_graph=kept, allow_unused=True)
        return list(gradients[: len(parents)]), list(gradients[len(parents) :])

    def move(
        self, v: str, force: Force, descent: Descent, momentum: dict[str, Tensor], forces: Collection[Force]
    ) -> None:
        """One step of SGD on ``d_v``; the predictions that ``x_v`` enters are out of date then.

        ``forces`` are those on other nodes, whose terms may be the same tensors.
        """
        m = descent.momentum
        if m:
            momentum[v] = force.applied(momentum[v].mul_(m) if v in momentum else None, 1.0)
            force = Force([*force, (m, momentum[v])] if descent.nesterov else [(1.0, momentum[v])])
        read = [*momentum.values(), *(x for other in (force[1:], *forces) for _, x in other)]
        self.d[v] = force.applied(self.d.get(v), -descent.lr, read)
        for successor in self.net.successors[v]:
            self.predictions.pop(successor, None)
            if successor in self._large:
                self.kept.pop(successor, None)

    def relearn(self, nodes: Sequence[str]) -> None:
        """The weights of ``nodes`` have changed."""
        torch.clear_autocast_cache()  # it holds the weights of before
        for v in nodes:
            self.relearnt.add(v)
            self.predictions.pop(v, None)

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
        return half_square(eps, small=len(self.d) > 1) / self.batch  # backprop moves the output alone

    def _response(self, v: str, mu: Tensor) -> Tensor:
        return self._respond(mu) if self._respond is not None and v == self.net.output else mu


class Force(list[tuple[float, Tensor]]):
    """``dE/dx`` of one node as terms ``(weight, tensor)``, added up where they are applied, without a temporary."""

    def pulled(self, weight: float, pull: Tensor | None, d: Tensor | None) -> None:
        """Take what a successor with the deviation ``d`` pulls back: a copy if it *is* that ``d``, which will move."""
        if pull is not None:
            self.insert(0, (weight, pull.clone() if d is not None and _shares_memory(pull, d) else pull))

    def applied(self, to: Tensor | None, scale: float, read: Sequence[Tensor] | None = None) -> Tensor:
        """``to + scale * force``, in place where there is a place: ``to``, or the first term, if ``read`` is given and
        nothing in it shares that memory."""
        terms = iter(self)
        if to is None:
            weight, first = next(terms)
            to = _wide(first)
            spent = read is not None and _is_whole(to) and not any(_shares_memory(to, x) for x in read)
            to = to.mul_(scale * weight) if spent else to * (scale * weight)
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


@dataclass
class Lessons:
    """What the weights learn from a batch: fills ``.grad``, and keeps the energy that each node learnt from.

    ``scale(v, pi)`` multiplies what a node with precision ``pi`` has to learn. With ``update`` (iPC) weights learn at
    every inference step, with the precision ``pi(v, t)``, and ``update()`` changes them after it.
    """

    state: State
    parameters: Mapping[str, Sequence[nn.Parameter]]
    scale: Callable[[str, float], Scale]
    pi: Weight = lambda v, t: 1.0
    update: Callable[[], None] | None = None
    energy: dict[str, Tensor] = field(default_factory=dict)

    def teach(
        self, v: str, eps: Tensor, prediction: Prediction | None = None, parents: Sequence[str] = (), pi: float = 1.0
    ) -> list[Tensor | None]:
        """Pull the error back to the weights of ``v``, and to ``parents``, for which it returns what was pulled."""
        self.energy[v] = self.state.energy(v, eps, prediction)
        weights = self.parameters[v] if pi else ()
        pulls, gradients = self.state.pull_back(v, eps, parents, weights, prediction=prediction)
        accumulate(weights, gradients, self.scale(v, pi))
        return pulls

    def settled(self, v: str) -> None:
        """Forward update of a node that learns from the initial pass: ``x_T - mu0``, as soon as ``x_T`` is known."""
        state = self.state
        if v in state.learners and v in state.d:
            self.teach(v, state.d[v], state.initial(v) if self.parameters[v] else Prediction(state.mu0[v], {}))


def infer(
    state: State, steps: int, descent: Descent, *, lessons: Lessons | None = None, observe: Observer | None = None
) -> None:
    """Relax the activities: all nodes at once, ``steps`` times, by

    dE/dx_v = pi_v eps_v - sum over successors c of pi_c J_c^T eps_c

    A step goes from the output to the input and moves each node at the end of its turn: its successors have read it
    by then, and its parents, which predict it, have not moved yet. So only one node's error is held at a time.

    ``observe(t, state)`` sees the state before each step, and after the last (not in iPC, where nobody needs it).
    Of ``lessons`` those of iPC are given, and those of settled nodes, which will neither move nor pull any more.
    """
    net = state.net
    momentum: dict[str, Tensor] = {}
    incremental = lessons is not None and lessons.update is not None
    last_turn = _last_turns(net, steps, descent)
    for t in range(steps):
        if observe is not None:
            observe(t, state)
        last_look = incremental and t == steps - 1  # iPC: nobody looks at the activities after the last step
        for v in [v for v, module in net.nodes.items() if last_look and freezable(module)]:
            state.predict(v, moving_statistics=True)
        receive = {v: 0.0 if last_look else descent.receive(v, t) for v in net.nodes}
        forces = {v: Force() for v in net.nodes}
        learnt: list[str] = []
        for v in reversed(list(net.nodes)):
            state.forget(v)
            force, pi = forces.pop(v), descent.send(v, t)
            parents = [p for p in dict.fromkeys(net.parents[v]) if receive.get(p)]
            learning = lessons.pi(v, t) if lessons and incremental and lessons.parameters[v] else 0.0
            if pi and not state.at_rest(v) and (receive[v] or parents or learning):
                eps = state.error(v)
                if lessons and incremental:
                    pulls = lessons.teach(v, eps, parents=parents, pi=learning)
                else:
                    pulls, _ = state.pull_back(v, eps, parents)
                if learning:
                    learnt.append(v)
                if receive[v]:
                    force.insert(0, (pi * receive[v], eps))
                for p in reversed(parents):
                    forces[p].pulled(-pi * receive[p], pulls.pop(), state.d.get(v))
                del eps  # before the next one is made
            if force or (v in momentum and not last_look):
                state.move(v, force, descent, momentum, forces.values())
            if lessons and not incremental and last_turn[v] == t:
                lessons.settled(v)
        if lessons and lessons.update is not None:
            lessons.update()
            state.relearn(learnt)
    if observe is not None and not incremental:
        observe(steps, state)


def _last_turns(net: Graph, steps: int, descent: Descent) -> dict[str, int]:
    """The last step at which each node may move or pull at a parent (step 0 if it never does)."""
    last = dict.fromkeys(net.nodes, 0)
    for t in range(steps):
        for v in net.nodes:
            ends = [v, *(p for p in net.parents[v] if p != INPUT)]
            if descent.momentum or (descent.send(v, t) and any(descent.receive(u, t) for u in ends)):
                last.update(dict.fromkeys(ends, t))
    return last


def learn(
    lessons: Lessons,
    *,
    forward: Collection[str] = (),
    presynaptic: str = "initial",
    free_relaxation: Callable[[], None] | None = None,
) -> None:
    """The lessons of the relaxed state ``x_T``, but for those that settled nodes have had.

    Standard rule: the error ``x_T - f_v(x_T,parents)``, pulled back to the weights. Nodes in ``forward`` learn from
    ``x_T - mu0`` instead (forward update), through their prediction from the initial parents or the relaxed ones.
    After a free relaxation the state that the unclamped network settles in stands in for the initial one.
    """
    state, relaxed = lessons.state, lessons.state.d
    rest: dict[str, Tensor] = {}

    def teach(v: str) -> None:
        prediction = state.predict(v, moving_statistics=True)
        if v not in forward:
            eps = None if state.at_rest(v) else state.error(v)
        else:
            eps = relaxed.get(v, 0) - rest[v] if v in rest else relaxed.get(v)
        if eps is not None:
            lessons.teach(v, eps, prediction)

    if free_relaxation is not None:
        state.place({v: d.clone() for v, d in relaxed.items()})
        free_relaxation()
        rest = state.d
        for v in forward if presynaptic == "initial" else ():
            teach(v)
        state.place(relaxed)
    for v in state.net.nodes:
        if v not in forward or presynaptic == "relaxed":
            teach(v)


def backpropagate(lessons: Lessons) -> None:
    """The baseline: one sweep from the clamped output to the input, over the same little graphs."""
    state, net = lessons.state, lessons.state.net
    delta = {net.output: state.d[net.output]}
    for v in reversed(list(net.nodes)):
        prediction = state.initial(v)
        if v not in delta:
            continue
        parents = [p for p in dict.fromkeys(net.parents[v]) if p != INPUT]
        pulls = lessons.teach(v, delta.pop(v), prediction, parents)
        for p in reversed(parents):
            pull = pulls.pop()
            if pull is not None:
                delta[p] = delta[p] + pull if p in delta else pull


def accumulate(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None], scale: Scale) -> None:
    """Add ``scale * gradient`` to ``.grad``, as ``backward()`` would."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None:
            scaled = gradient * scale
            parameter.grad = scaled if parameter.grad is None else parameter.grad + scaled


def half_square(eps: Tensor, *, small: bool = True) -> Tensor:
    """``1/2 |eps|^2``, in float64 where the device has it: energies deep in a network are below float32's range.

    A float64 copy would take longer than all the rest. So each sample's norm is taken in the precision that there is,
    of the error and, if it may be so ``small``, of the error times 2^100: squares that underflow in the one do not in
    the other.
    """
    wide = torch.float32 if eps.device.type == "mps" else torch.float64
    eps = eps.unsqueeze(-1)

    def norm(x: Tensor) -> Tensor:
        kind = torch.promote_types(x.dtype, torch.float32)  # bfloat16 has 8 bits
        norms: Tensor = torch.linalg.vector_norm(x, dim=tuple(range(1, x.dim())), dtype=kind)
        return norms.to(wide)

    norms = norm(eps)
    if not small:
        return norms.square().sum() / 2
    cached = max(1, 2**18 // max(1, eps[:1].numel()))  # samples whose copy fits a cache
    raised = torch.cat([norm(part * 2.0**100) for part in torch.split(eps, cached)])
    return torch.where(norms > 2.0**-40, norms, raised * 2.0**-100).square().sum() / 2


def _wide(x: Tensor) -> Tensor:
    """Half precision in float32: deviations and errors add up small differences."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _is_whole(x: Tensor) -> bool:
    """Not a view of something larger, nor of something smaller that it repeats."""
    return x.untyped_storage().nbytes() == x.nbytes and 0 not in x.stride()


def _shares_memory(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
