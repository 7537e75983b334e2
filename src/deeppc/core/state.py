"""The state of a batch: activities, and the predictions of them that are still valid.

Three facts save most of the work of a textbook implementation, and change nothing:

1. A node that has not moved, and whose parents and weights have not, has no error: ``x_v == mu_v`` exactly.
2. A node whose precision is 0 sends nothing, so its prediction is not needed.
3. A prediction whose parents (and weights) did not change is still valid.

Which nodes these are follows from the graph and the schedule alone, never from the numbers, so a batch has no
data-dependent control flow and nothing waits for the device.

Every activity is kept as its *deviation* ``d_v = x_v - mu0_v`` from the feed-forward value. The wave loses a factor
``lr_x`` per hop, so deep in a network ``d`` is far below the float32 resolution of ``x``: held as ``x``, the early
layers' errors are rounding noise; held as ``d`` they are exact, in units and by differences that a
:class:`~deeppc.core.wave.Wave` knows in advance.

Symbols: ``x`` activity, ``mu`` prediction, ``eps`` error ``x - mu``, ``d`` deviation, ``pi`` precision, ``t`` step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from deeppc.core import reuse
from deeppc.core.energies import by_sample, energies_of
from deeppc.core.graph import Graph, Sum
from deeppc.core.inputs import check_output
from deeppc.core.norm import Draws, freezable, frozen
from deeppc.core.wave import Difference, Wave

Scale = float | Tensor
Names = Sequence[str]
Weights = Sequence[nn.Parameter]
Observer = Callable[[int, "State"], object]
FLOAT32 = torch.finfo(torch.float32).eps
IN_PLACE = "the module of node {!r} changes its input in place: use inplace=False there"


@dataclass
class Work:
    """How often each node was predicted, pulled back through to its parents, and differentiated by its weights."""

    predictions: Counter[str] = field(default_factory=Counter)
    pull_backs: Counter[str] = field(default_factory=Counter)
    weight_gradients: Counter[str] = field(default_factory=Counter)

    def add(self, other: Work) -> None:
        self.predictions.update(other.predictions)
        self.pull_backs.update(other.pull_backs)
        self.weight_gradients.update(other.weight_gradients)


class Prediction(NamedTuple):
    """``mu = f_v(x_parents)`` with the small autograd graph behind it, from the parents' activities to ``mu``."""

    mu: Tensor
    parents: dict[str, Tensor]


class State:
    """Feed-forward values of a batch, deviations from them, and predictions.

    Building it is the *initialise* phase, a feed-forward pass. ``keep`` names the nodes whose weights will learn
    through this very pass: their running statistics move now, and their graphs are kept, but for the largest ones.
    Those few hold most of the memory; they are made anew once their parents have moved.

    ``wave``         the units of deviations and errors, and how differences are taken.
    ``d``            deviations by node, in its unit, of those that have moved; all others are exactly 0.
    ``held``         activities of clamped outputs, as they are, whose energy is not canonical.
    ``mu0``          initial predictions by node, and the inputs as they were given.
    ``energy``       energies by node. ``free``: inputs that may move.
    ``predictions``  those that are still valid, by node; ``kept``: initial ones that are needed again.
    ``batch``        the number of samples. ``total``: adds up what is a sum over samples, where others have the rest.
    """

    def __init__(
        self,
        net: Graph,
        inputs: Mapping[str, Tensor],
        *,
        loss: str = "squared_error",
        keep: Collection[str] = (),
        free: Collection[str] = (),
        wave: Wave | None = None,
        total: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.net, self.wave = net, wave or Wave()
        self.total = total or (lambda part: part)
        first = next(iter(inputs.values()))
        self.batch = first.shape[0]
        self.work = Work()
        self.energy = energies_of(net, loss)
        self.free = free
        self.d: dict[str, Tensor] = {}
        self.held: dict[str, Tensor] = {}
        self.mu0: dict[str, Tensor] = dict(inputs)
        self.predictions: dict[str, Prediction] = {}
        self.kept: dict[str, Prediction] = {}
        self._differences: dict[str, Difference] = {}
        self._stretched: dict[str, Prediction] = {}  # those that the last differences were taken by
        self._extents: dict[str, tuple[Tensor, ...]] = {}  # of deviations, until they change
        self._activities: dict[str, Tensor] = {}
        self._draws = Draws(first.device)
        self._new_weights: set[str] = set()  # nodes whose weights have changed since initialisation

        for v in net.nodes:
            prediction = self._begin(v, moving_statistics=v in keep)
            if v in keep:
                self.kept[v] = prediction
        for v in net.outputs:
            check_output(v, self.mu0[v], self.batch)
        self._response0: dict[str, Tensor] = {}
        ends = {v: (self.mu0[v], *map(self.activity, net.parents[v])) for v in net.nodes}
        self._large = reuse.largest({v: sum(prod(x.shape[1:]) for x in tensors) for v, tensors in ends.items()})

    def _begin(self, v: str, *, moving_statistics: bool = False) -> Prediction:
        """Set the initial prediction of ``v``."""
        prediction = self.predict(v, moving_statistics=moving_statistics)
        self.mu0[v] = prediction.mu.detach()
        if any(reuse.share_memory(self.mu0[v], w) for w in self.net.nodes[v].parameters()):
            self.mu0[v] = self.mu0[v].clone()  # a learnt constant, which iPC changes in place
        kind = self.wave.difference(v, self.mu0[v].dtype) if self.energy[v].canonical else "direct"
        self._differences[v] = kind
        if kind == "linear":
            self.kept[v] = prediction
        return prediction

    def unit(self, v: str) -> float:
        """What deviations and errors of ``v`` are counted in."""
        return self.wave.unit(v)

    def activity(self, v: str) -> Tensor:
        """``x_v = mu0_v + d_v``, a leaf that predictions of the successors are differentiated by."""
        if v not in self._activities:
            x = self.mu0[v]
            if v in self.d:
                x = x.add(self.d[v], alpha=self.unit(v)).to(x.dtype)
            moves = v in self.net.nodes or v in self.free
            self._activities[v] = x.detach().requires_grad_(moves) if moves else x
        return self._activities[v]

    def forget(self, v: str) -> None:
        """Drop the cached ``x_v``: as soon as the successors have read it, to hold less memory."""
        self._activities.pop(v, None)

    def undisturbed(self, v: str) -> bool:
        """Whether the prediction of ``v`` is the initial one: neither its parents nor its weights have changed."""
        return v not in self._new_weights and not any(p in self.d for p in self.net.parents[v])

    def at_rest(self, v: str) -> bool:
        """Whether no error is possible: neither the node nor what predicts it has changed since initialisation."""
        return v not in self.d and v not in self.held and self.energy[v].settles and self.undisturbed(v)

    def predict(self, v: str, *, moving_statistics: bool = False) -> Prediction:
        """Return a valid prediction of ``v``, made anew only where it must be."""
        if v not in self.predictions or (moving_statistics and freezable(self.net.nodes[v])):
            parents = {p: self.activity(p) for p in self.net.parents[v]}
            self.predictions[v] = self._predict(v, parents, moving_statistics)
        return self.predictions[v]

    def recent(self, v: str) -> Prediction:
        """Return the prediction to pull the error of ``v`` back through, just after that error was taken.

        That of the present state; or, of a hidden node, the one that its difference was taken by, if there is: nearer
        to the present state than slopes can tell.
        """
        stretched = self._stretched.pop(v, None)
        return self.predict(v) if stretched is None or v in self.net.outputs else stretched

    def initial(self, v: str) -> Prediction:
        """Take out the initial prediction of ``v``, for learning: as it was kept, or made anew from initial parents."""
        if v in self.kept:
            return self.kept.pop(v)
        return self._predict(v, {p: self.mu0[p] for p in self.net.parents[v]}, False)

    def _predict(
        self, v: str, parents: dict[str, Tensor], moving_statistics: bool, *, graph: bool = True
    ) -> Prediction:
        module = self.net.nodes[v]
        versions = [x._version for x in parents.values()]
        try:
            with (
                torch.set_grad_enabled(graph),
                nullcontext() if moving_statistics else frozen(module),
                self._draws.of(v),
            ):
                mu = module(*(parents[p] for p in self.net.parents[v]))
        except Exception as error:
            error.add_note(f"(while predicting the node {v!r})")
            if isinstance(error, RuntimeError) and "in-place" in str(error):
                raise ValueError(IN_PLACE.format(v)) from error
            raise
        if not isinstance(mu, Tensor):
            raise TypeError(f"the module of node {v!r} must return one tensor, not {type(mu).__name__}")
        if not mu.is_floating_point():
            raise TypeError(f"the module of node {v!r} returns {mu.dtype}, but activities are floats: convert it there")
        if [x._version for x in parents.values()] != versions:
            raise ValueError(IN_PLACE.format(v))
        self.work.predictions[v] += 1
        return Prediction(mu, parents)

    def clamp(self, v: str, target: Tensor, beta: Scale = 1.0) -> None:
        """Move an output by ``beta`` of the way to its target, where it stays."""
        if self.energy[v].canonical:
            self.d[v] = beta * (target - self.response0(v))
        else:  # which has no nudging
            self.held[v] = target

    def response0(self, v: str) -> Tensor:
        """What the activity of ``v`` deviates from: ``mu0``, or under cross-entropy its softmax."""
        if v not in self._response0:
            self._response0[v] = reuse.widened(self.energy[v].respond(self.mu0[v]))
        return self._response0[v]

    def value(self, v: str) -> Tensor:
        """The activity, in the numbers that energies are taken in."""
        if v in self.held:
            return self.held[v]
        return self.response0(v).add(self.d[v], alpha=self.unit(v)) if v in self.d else self.response0(v)

    def error(self, v: str, mu_scale: float = 1.0) -> Tensor:
        """``eps_v`` in the unit of ``v``, what it sends: the message of its energy.

        For half the squared error it is ``x_v - mu_v``, or ``d_v - (mu_v - mu0_v)``; the second term is exactly 0 where
        nothing disturbed it, and ``mu_scale`` multiplies it elsewhere. It may be ``d_v`` itself: not to be written to.
        """
        energy, d = self.energy[v], self.d.get(v)
        if not energy.canonical:
            return energy.message(self.value(v), reuse.widened(self.predict(v).mu.detach())) / self.unit(v)
        if self.undisturbed(v):
            return energy.weigh(torch.zeros_like(self.mu0[v]) if d is None else d)
        if self._differences[v] == "direct" or v in self._new_weights:
            eps = self.response0(v) - energy.respond(self.predict(v).mu.detach())
            factor = mu_scale / self.unit(v)
            return energy.weigh(eps.mul_(factor) if d is None else torch.add(d, eps, alpha=factor, out=eps))
        if self.adds(v):
            terms = [(self.wave.unit(p, v), self.d[p]) for p in self.net.parents[v] if p in self.d]
            (weight, first), *rest = terms
            eps = first * (-mu_scale * weight) if d is None else torch.add(d, first, alpha=-mu_scale * weight)
            return energy.weigh(reuse.add(eps, rest, -mu_scale))
        change, step = self._small_change(v)
        slope = torch.as_tensor(-mu_scale / step)
        return energy.weigh(change.mul_(slope) if d is None else torch.addcmul(d, change, slope, out=change))

    def adds(self, v: str) -> bool:
        """Whether a hidden ``v`` is the sum of its parents and nothing else: its change is the sum of theirs."""
        module = self.net.nodes[v]
        adds = type(module) is nn.Identity or (type(module) is Sum and not len(module))
        alike = all(self.mu0[p].shape == self.mu0[v].shape for p in self.net.parents[v])  # none is repeated
        return adds and alike and v not in self.net.outputs

    def _small_change(self, v: str) -> tuple[Tensor, Tensor]:
        """``mu_v - mu0_v`` where rounding would spoil it, as a difference and what to divide it by to have it in units.

        It is taken along a longer step in the direction of the parents' deviations, which balances rounding, which
        falls with its length, against curvature, which grows; but never along a shorter one.
        """
        moved = {p: self.wave.unit(p, v) for p in self.net.parents[v] if p in self.d}
        response0, rounding = self.response0(v), torch.finfo(self.mu0[v].dtype).eps
        linear, fine = self._differences[v] == "linear" and v in self.kept, rounding <= FLOAT32
        shared = fine and not linear  # in bfloat16 the slope would be that of another state
        length = (2 if not fine else 16 if not self.wave.balanced else 4 if linear else 2) * rounding ** (2 / 3)
        extents = [(unit * size, both, own) for p, unit in moved.items() for size, both, own in [self._extent(p)]]
        size, both, own = map(torch.stack, zip(*extents, strict=True))
        share = size / size.max()
        step = length * (share * both).sum() / (share.square() * own).sum() / size.max()
        step = step.nan_to_num(0.0, posinf=0.0).clamp(max(self.unit(v), 1e-30), 1e30)  # nothing moves: as it is
        parents = {p: self.activity(p) for p in self.net.parents[v] if p not in moved}
        for p, unit in moved.items():
            parents[p] = torch.addcmul(self.mu0[p], self.d[p], step * unit).to(self.mu0[p].dtype).requires_grad_(shared)
        prediction = self._predict(v, parents, False, graph=shared)
        if shared:
            self._stretched[v] = prediction
        else:
            torch.clear_autocast_cache()  # it holds weights without a graph
        return reuse.widened(self.energy[v].respond(prediction.mu.detach())).sub(response0), step

    def _extent(self, v: str) -> tuple[Tensor, ...]:
        """``sum |d|``, ``sum |x d|`` and ``sum d^2`` over the whole batch, the latter with ``d`` in parts of the first.

        So squares of small deviations do not underflow. Of images :func:`reuse.some` is looked at.
        """
        if v not in self._extents:
            x, d = reuse.some(self.mu0[v]), reuse.some(self.d[v])
            size = self.total(d.abs().sum())
            d = d / size
            sums = self.total(torch.stack([(x * d).abs().sum(), d.square().sum()]))
            self._extents[v] = (size, *sums.nan_to_num(0.0))
        return self._extents[v]

    def force(self, v: str, eps: Tensor) -> Tensor:
        """``dE_v/dx_v`` in the unit of ``v``, given its message."""
        energy = self.energy[v]
        if energy.canonical:
            return eps
        return energy.force(self.value(v), reuse.widened(self.predict(v).mu.detach())) / self.unit(v)

    def energies(self) -> dict[str, Tensor]:
        """The energy of each node and sample, (batch,), at the present state."""
        return {v: self._energy(v) for v in self.net.nodes}

    def _energy(self, v: str) -> Tensor:
        energy = self.energy[v]
        if energy.plain and self._differences[v] != "direct":  # the prediction may be another, or rounded
            eps = self.error(v)
            return by_sample(eps.to(reuse.widest(eps)).square()) / 2 * self.unit(v) ** 2
        return energy.value(self.value(v), reuse.widened(self.predict(v).mu.detach()))

    def moved(self, v: str) -> bool:
        """Whether the activity of ``v`` is another than its initial prediction."""
        return v in self.d or v in self.held or not self.energy[v].settles

    def error_from_start(self, v: str) -> Tensor:
        """The message of ``v`` from its activity and its *initial* prediction, in its unit: what +f learns from."""
        energy = self.energy[v]
        if energy.canonical:
            return energy.weigh(self.d[v])
        return energy.message(self.value(v), reuse.widened(self.mu0[v])) / self.unit(v)

    def pull_back(
        self,
        v: str,
        eps: Tensor,
        parents: Names = (),
        weights: Weights = (),
        prediction: Prediction | None = None,
        sample_weights: Tensor | None = None,
    ) -> tuple[list[Tensor | None], list[Tensor | None]]:
        """``J^T eps`` by the activities of ``parents`` and by ``weights``, through one prediction of ``v``.

        For the weights alone, each sample's error may be multiplied by one of ``sample_weights``.

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
        inputs = [prediction.parents[p] for p in parents]
        output, eps = get_gradient_edge(prediction.mu), eps.to(prediction.mu.dtype)
        kept = self.kept.get(v) is prediction
        if not kept:
            self.predictions.pop(v, None)
        del prediction  # with it goes mu, which is not needed any more
        if sample_weights is not None and weights:
            weighted = eps * sample_weights.view(-1, *[1] * (eps.dim() - 1)).to(eps.dtype)
            learnt = torch.autograd.grad(output, list(weights), weighted, retain_graph=True, allow_unused=True)
            pulls = torch.autograd.grad(output, inputs, eps, retain_graph=kept, allow_unused=True) if inputs else ()
            return list(pulls), list(learnt)
        gradients = torch.autograd.grad(output, [*inputs, *weights], eps, retain_graph=kept, allow_unused=True)
        return list(gradients[: len(parents)]), list(gradients[len(parents) :])

    def move(self, v: str, d: Tensor) -> None:
        """Set the deviation of ``v``. The predictions that ``x_v`` enters are out of date then."""
        self.d[v] = d
        self._extents.pop(v, None)
        self.forget(v)
        for successor in self.net.successors[v]:
            self._stretched.pop(successor, None)
            if self._differences[successor] == "linear" and successor in self.kept:
                continue  # its slope stays
            self.predictions.pop(successor, None)
            if successor in self._large:
                self.kept.pop(successor, None)

    def let_go(self, v: str) -> None:
        """Free what is held of a hidden ``v``, which nobody will ask for any more."""
        if v not in self.net.outputs:
            predictions = (self.predictions, self._stretched, self.kept)
            for held in (self.d, self.mu0, self._response0, self._activities, *predictions):
                held.pop(v, None)

    def move_all(self, d: dict[str, Tensor]) -> None:
        """Go to the state with the deviations ``d``."""
        self.d = d
        self._extents.clear()
        self._activities.clear()
        self._stretched.clear()
        self.predictions.clear()

    def move_statistics(self, v: str) -> None:
        """Let the running statistics of the norms of ``v`` move, by a prediction at the present state."""
        if freezable(self.net.nodes[v]):
            self.predict(v, moving_statistics=True)

    def weights_changed(self, nodes: Iterable[str]) -> None:
        """Take note that the weights of ``nodes`` have changed: their predictions are out of date."""
        torch.clear_autocast_cache()  # it holds the weights of before
        for v in nodes:
            self._new_weights.add(v)
            self._stretched.pop(v, None)
            self.predictions.pop(v, None)
            self.kept.pop(v, None)

    def follow(self) -> None:
        """Start from the feed-forward pass of the weights as they are now: hidden nodes keep their deviations from it.

        Clamped outputs stay where they are. What is said of *initial* predictions holds for the new ones from then on.
        """
        held = {v: self.value(v) for v in self.net.outputs if v in self.d}
        deviations, self.d = self.d, {}
        self._activities.clear()
        changed, self._new_weights = self._new_weights, set()
        for v, parents in self.net.parents.items():
            if v in changed or any(p in changed for p in parents):
                changed.add(v)
                for known in (self.predictions, self.kept, self._stretched, self._extents, self._response0):
                    known.pop(v, None)
                self._begin(v)
                if v not in self.kept and any(p in deviations for p in parents):
                    self.predictions.pop(v)  # that of the present state is another
        self._activities.clear()
        self.d = deviations
        for v, x in held.items():
            self.d[v] = (x - self.response0(v)) / self.unit(v)
