"""One batch on its way through an algorithm: what a family's ``run`` works with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer

from deeppc.core import energies
from deeppc.core.algorithms import Result
from deeppc.core.graph import Graph
from deeppc.core.inputs import check, target_for
from deeppc.core.norm import unchanged_on_error
from deeppc.core.state import Observer, Prediction, Scale, State


class Batch:
    """A network, inputs and targets; then the state that they are in, and what the weights have learnt.

    ``state``       there after :meth:`initialise`, with ``target``: ``y`` in the shape of the output.
    ``beta``        the strength of nudging, by which weight gradients are divided.
    ``parameters``  by node, those that want a gradient.
    ``gain``        by node, a factor on its weight gradients; 1 where none is set.
    ``energy``      by node, what its weights learnt from, mean over the batch.
    """

    state: State
    target: Tensor

    def __init__(
        self,
        net: Graph,
        inputs: Tensor,
        targets: Tensor,
        loss: str,
        optimizer: Optimizer | None,
        observe: Observer | None,
    ) -> None:
        if isinstance(optimizer, LBFGS):
            raise ValueError("LBFGS needs a loss to evaluate again; predictive coding gives gradients only")
        check(inputs, targets)
        self.net, self.inputs, self.targets, self.loss = net, inputs, targets, loss
        self.optimizer, self.observe = optimizer, observe
        self.parameters = net.trainable()
        self.beta: Scale = 1.0
        self.gain: dict[str, float] = {}
        self.energy: dict[str, Tensor] = {}

    def initialise(self, keep: Collection[str] = ()) -> State:
        """Run the feed-forward pass. Whatever is wrong with the batch is found here, and leaves no trace.

        ``keep`` names the nodes whose weights will learn through this pass.
        """
        with unchanged_on_error(self.net, self.inputs.device):
            self.state = State(self.net, self.inputs, loss=self.loss, keep=keep)
            if any(mu.dtype == torch.float16 for mu in self.state.mu0.values()):
                raise ValueError("float16 cannot hold the small errors of deep layers: use float32 or bfloat16")
            out = self.state.mu0[self.net.output]
            self.target = target_for(self.targets, out, distribution=self.loss == "cross_entropy")
        if self.optimizer is not None:
            self.optimizer.zero_grad()
        return self.state

    def clamp(self, beta: Scale = 1.0) -> None:
        """Move the output by ``beta`` of the way to the target, which from now on is there: ``mu0 + beta (y - mu0)``.

        Under cross-entropy that holds for the softmax of ``mu0``.
        """
        self.beta = beta
        self.state.d[self.net.output] = beta * (self.target - self.state.response0)
        self.target = self.state.response0 + self.state.d[self.net.output]

    def random_sign(self) -> Tensor:
        """Draw +1 or -1."""
        sign = 2 * torch.randint(0, 2, (), device=self.target.device) - 1
        return sign.to(self.target.dtype)

    def learn(
        self, v: str, eps: Tensor, prediction: Prediction | None = None, *, parents: Sequence[str] = (), pi: float = 1.0
    ) -> list[Tensor | None]:
        """Add the gradient of ``pi / 2 |eps|^2``, mean over the batch, by the weights of ``v`` to their ``.grad``.

        The error is pulled back through ``prediction`` (None: that of the present state). Returns ``J^T eps`` for each
        of ``parents``.
        """
        self.energy[v] = self._energy(v, eps, prediction)
        weights = self.parameters[v] if pi else ()
        pulls, gradients = self.state.pull_back(v, eps, parents, weights, prediction)
        scale = -pi * self.gain.get(v, 1.0) / (self.state.batch * self.beta)
        for weight, gradient in zip(weights, gradients, strict=True):
            if gradient is not None:
                scaled = gradient * scale
                weight.grad = scaled if weight.grad is None else weight.grad + scaled
        return pulls

    def update(self, nodes: Iterable[str]) -> None:
        """Step the optimiser. ``nodes`` are those whose weights have a gradient."""
        assert self.optimizer is not None
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.state.weights_changed(nodes)

    def result(self) -> Result:
        zero = torch.zeros((), device=self.inputs.device)
        energy = {v: self.energy.get(v, zero) for v in self.net.nodes}
        return Result(self.state.mu0[self.net.output], energy, self.state.work)

    def _energy(self, v: str, eps: Tensor, prediction: Prediction | None) -> Tensor:
        if v == self.net.output and self.loss == "cross_entropy":
            mu = (prediction or self.state.predict(v)).mu.detach()
            return energies.cross_entropy(self.target, mu) / self.state.batch
        # Backprop moves the output alone, and its errors are not small.
        return energies.half_square(eps, small=len(self.state.d) > 1) / self.state.batch
