"""One batch on its way through an algorithm: what a family's ``run`` works with."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from deeppc.core import reuse
from deeppc.core.algorithms import Result
from deeppc.core.energies import Bernoulli, CrossEntropy, Energy, half_square
from deeppc.core.graph import Graph
from deeppc.core.inputs import UntaughtWarning, by_name, check, check_parts
from deeppc.core.norm import unchanged_on_error
from deeppc.core.state import Observer, Prediction, Scale, State
from deeppc.core.wave import Wave


class Workers(Protocol):
    """Processes that each hold a part of the samples of one batch, and sum what their weights learn.

    ``samples``  how many the whole batch has: a number, or a tensor () of it on the device.
    """

    @property
    def samples(self) -> Scale: ...

    def learnt(self, v: str) -> None:
        """The gradients of node ``v`` are there: those that no other node adds to may be sent."""

    def wait(self) -> None:
        """Return when every ``.grad`` is that of the whole batch."""

    def agree(self, drawn: Tensor) -> Tensor:
        """Return what one of the workers has drawn, the same in all."""

    def total(self, part: Tensor) -> Tensor:
        """Return the sum of all workers' parts."""


class Batch:
    """A network, inputs and targets; then the state that they are in, and what the weights have learnt.

    ``state``       there after :meth:`initialise`, with ``targets``: ``y`` of each output, as its energy wants it.
    ``beta``        the strength of nudging, by which weight gradients are divided.
    ``parameters``  by node, those that want a gradient.
    ``gain``        by node, a factor on its weight gradients; where none is set, the unit that errors are counted in.
    ``energy``      by node, what its weights learnt from, mean over the batch.
    ``workers``     others that have the rest of the batch, if it is divided: ``energy`` is then our part of that mean.
    """

    state: State
    targets: dict[str, Tensor]

    def __init__(
        self,
        net: Graph,
        inputs: Any,
        targets: Any,
        loss: str,
        optimizer: Optimizer | None,
        observe: Observer | None,
        sample_weights: Tensor | None = None,
        workers: Workers | None = None,
    ) -> None:
        check_parts(net, optimizer, observe)
        self.net, self.loss, self.optimizer, self.observe, self.workers = net, loss, optimizer, observe, workers
        self.inputs = by_name(inputs, net.inputs, "inputs")
        self._given = by_name(targets, net.outputs, "targets")
        check(self.inputs, self._given, sample_weights, least=1 if workers is None else 0)
        self.sample_weights = sample_weights
        self.parameters = net.trainable()
        self.beta: Scale = 1.0
        self.gain: dict[str, float] = {}
        self.energy: dict[str, Tensor] = {}
        self._taught: set[str] = set()
        self._clamped: dict[str, Tensor] = {}

    def bounded(self, energies: Mapping[str, Energy]) -> bool:
        """Whether nodes move by about 1 at most: outputs to a class, or within what their energy answers with.

        Values may be of any size, and so may precisions. (A network that is to tell classes by half the squared error
        is taken to answer by numbers near 0 and 1.)
        """
        shares = {v for v, energy in energies.items() if isinstance(energy, CrossEntropy | Bernoulli)}
        values = {v for v, given in self._given.items() if given.is_floating_point()}
        return all(v in shares or (energy.plain and v not in values) for v, energy in energies.items())

    def initialise(self, keep: Collection[str] = (), wave: Wave | None = None) -> State:
        """Run the feed-forward pass. Whatever is wrong with the batch is found here, and leaves no trace.

        ``keep`` names the nodes whose weights will learn through this pass; ``wave`` is what is known of the energy.
        """
        torch.clear_autocast_cache()  # it may hold the weights of an earlier batch
        with unchanged_on_error(self.net, self._device()):
            total = None if self.workers is None else self.workers.total
            self.state = State(self.net, self.inputs, loss=self.loss, keep=keep, wave=wave, total=total)
            if any(self.state.mu0[v].dtype == torch.float16 for v in self.net.nodes):
                raise ValueError("float16 cannot hold the small errors of deep layers: use float32 or bfloat16")
            self._outs = {v: self.state.mu0[v] for v in self.net.outputs}
            self.targets = {v: self.state.energy[v].target(self._given[v], out) for v, out in self._outs.items()}
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        return self.state

    def clamp(self, beta: Scale = 1.0) -> None:
        """Move each output by ``beta`` of the way to its target: ``mu0 + beta (y - mu0)``.

        Under cross-entropy that holds for the softmax of ``mu0``.
        """
        self.beta = beta
        for v, target in self.targets.items():
            self.state.clamp(v, target, beta)
            self._clamped[v] = self.state.value(v)

    def random_sign(self) -> Tensor:
        """Draw +1 or -1."""
        like = next(iter(self.targets.values()))
        sign = 2 * torch.randint(0, 2, (), device=like.device) - 1
        sign = sign.to(torch.promote_types(like.dtype, torch.float32))
        return sign if self.workers is None else self.workers.agree(sign)

    @property
    def samples(self) -> Scale:
        """The number of samples that a mean over the batch is taken of."""
        return self.state.batch if self.workers is None else self.workers.samples

    def learn(
        self,
        v: str,
        eps: Tensor,
        prediction: Prediction | None = None,
        *,
        parents: Sequence[str] = (),
        pi: float = 1.0,
        mu: Tensor | None = None,
        carried: bool = False,
    ) -> list[Tensor | None]:
        """Add the gradient of ``pi E_v``, mean over the batch, by the weights of ``v`` to their ``.grad``.

        The error is pulled back through ``prediction`` (None: that of the present state). ``mu``: the prediction that
        ``eps`` was measured from, if it is not ``prediction.mu``. ``carried``: it was not measured, but came down from
        the outputs, as by backprop. Returns ``J^T eps`` for each of ``parents``.
        """
        own: list[nn.Parameter] = []
        learnt: Sequence[Tensor | None] = ()
        if carried:
            self.energy[v] = self._half_square(v, eps)
        else:
            own = [p for p in self.state.energy[v].parameters() if p.requires_grad and pi]
            self.energy[v], learnt = self._energy(v, eps, prediction, mu, own)
        weights = self.parameters[v] if pi else ()
        if pi:
            self._taught.add(v)
        pulls, gradients = self.state.pull_back(v, eps, parents, weights, prediction, self.sample_weights)
        scale = -pi * self.gain.get(v, self.state.unit(v)) / (self.samples * self.beta)
        _accumulate(weights, gradients, scale)
        _accumulate(own, learnt, pi / self.samples)
        if self.workers is not None and pi:
            self.workers.learnt(v)
        return pulls

    def update(self, nodes: Iterable[str]) -> None:
        """Step the optimiser. ``nodes`` are those whose weights have a gradient."""
        assert self.optimizer is not None
        if self.workers is not None:
            self.workers.wait()
        self.optimizer.step()
        self.optimizer.zero_grad()
        changed = {id(weight) for v in nodes for weight in self.parameters[v]}
        self.state.weights_changed([v for v, own in self.parameters.items() if any(id(w) in changed for w in own)])

    def warn_of_untaught(self, steps: int) -> None:
        """Warn, at the line that asked for this batch, of nodes whose weights have learnt nothing."""
        untaught = [v for v, weights in self.parameters.items() if weights and v not in self._taught]
        if untaught:
            names = ", ".join(untaught[:5]) + (f" and {len(untaught) - 5} more" if len(untaught) > 5 else "")
            what = f"{names} learnt nothing: the energy does not reach them in {steps} inference steps"
            text = f"Nodes {what}. Leave T out (this network has {self.net.L} levels), or raise it."
            if steps >= self.net.L:
                text = f"Nodes {names} learnt nothing: what follows them passes no gradient on (detach, no_grad)."
            warnings.warn(text, UntaughtWarning, stacklevel=4)

    def result(self) -> Result:
        zero = torch.zeros((), device=self._device())
        energy = {v: self.energy.get(v, zero) for v in self.net.nodes}
        outs = self._outs
        logits = outs if len(outs) > 1 else next(iter(outs.values()))
        losses = [self.state.energy[v].value(y, reuse.widened(outs[v])) for v, y in self.targets.items()]
        each = torch.stack(losses).sum(0)
        loss = (each if self.sample_weights is None else each * self.sample_weights).sum() / self.samples
        return Result(logits, energy, self.state.work, loss)

    def _half_square(self, v: str, eps: Tensor) -> Tensor:
        return half_square(eps) * self.state.unit(v) ** 2 / self.samples

    def _energy(
        self, v: str, eps: Tensor, prediction: Prediction | None, mu: Tensor | None, own: Sequence[nn.Parameter]
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """The energy that ``v`` learns from, mean over the batch, and its gradient (a sum) by ``own`` parameters.

        These learn from the target as it was given, not nudged: a precision is that of the whole error.
        """
        state, energy = self.state, self.state.energy[v]
        if energy.plain:
            return self._half_square(v, eps), ()
        if energy.canonical and v not in self._clamped:  # of the error alone; the state may be another than its own
            x = (eps * state.unit(v) / energy.weigh(torch.ones_like(eps))).detach()
            mu = torch.zeros_like(x)
        else:
            x = self._clamped[v] if v in self._clamped else state.value(v)
            mu = reuse.widened((prediction or state.predict(v)).mu.detach() if mu is None else mu)
        each = energy.value(x, mu).detach().sum() / self.samples
        if not own:
            return each, ()
        if v in self._clamped:
            x = x + (self.targets[v] - self._clamped[v])
        with torch.enable_grad():
            values = energy.value(x, mu)
            total = (values if self.sample_weights is None else values * self.sample_weights).sum()
        return each, torch.autograd.grad(total, list(own), allow_unused=True)

    def _device(self) -> torch.device:
        return next(iter(self.inputs.values())).device


def _accumulate(weights: Sequence[nn.Parameter], gradients: Sequence[Tensor | None], scale: Scale) -> None:
    for weight, gradient in zip(weights, gradients, strict=True):
        if gradient is not None:
            scaled = gradient * scale  # a sum is a new tensor: who has sent the old one sees that there is more
            weight.grad = scaled if weight.grad is None else weight.grad + scaled
