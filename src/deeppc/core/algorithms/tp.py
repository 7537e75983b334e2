"""Target propagation with differences, by the inverse that its feedback learns at best.

    delta_out = y - mu_out                                     delta_v: from the activity of v to its target
    delta_p   = sum over successors c of  (1 + damping) J_c^T (J_c J_c^T + damping)^-1 delta_c

A target goes down by ``t_p = x_p + g_c(t_c) - g_c(x_c)``, where ``g_c`` inverts the layer c; weights learn from
``delta_v = t_v - mu_v`` through their own layer alone. In the first paper below ``g_c`` is a second network that is
learnt; trained to its optimum it is, to first order, the damped inverse above (the second paper), the Gauss-Newton step
of the layer. Here that inverse is computed: ``iterations`` of conjugate gradients, each of which pulls back through the
layer and pushes the result forward again. So there are no weights but the network's, and no feedback to wait for.
The factor lets an identity pass on what it gets. With a damping far above all squared slopes this is backprop.

Lee, Zhang, Fischer, Bengio: Difference target propagation. ECML 2015. Meulemans, Carzaniga, Suykens, Sacramento, Grewe:
A theoretical framework for target propagation. NeurIPS 2020.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from deeppc.core.algorithms.base import Algorithm, register
from deeppc.core.algorithms.bp import BP
from deeppc.core.algorithms.options import option

if TYPE_CHECKING:
    from torch import Tensor

    from deeppc.core.batch import Batch
    from deeppc.core.state import Prediction, State


@register
@dataclass(frozen=True)
class TP(Algorithm):
    """One sweep from the output to the input, by damped inverses."""

    family: ClassVar[str] = "tp"
    searched: ClassVar[Mapping[str, str]] = BP.searched
    second_order: ClassVar[bool] = True

    damping: float = option(
        1.0, "Added to the squared slopes that tp inverts.", above=0, most=1e30, search="0.01..10 log"
    )
    iterations: int = option(5, "Steps of conjugate gradients by which tp inverts a layer.", least=1)

    def run(self, batch: Batch) -> None:
        net, state = batch.net, batch.initialise(keep=list(batch.net.nodes))
        if batch.workers is not None and state.total(state.mu0[net.outputs[0]].new_tensor(float(state.batch == 0))) > 0:
            raise ValueError("tp needs a sample in every worker: use fewer workers, or larger batches")
        batch.clamp()
        delta = {v: state.error_from_start(v) for v in net.outputs}
        for v in reversed(list(net.nodes)):
            prediction = state.initial(v)
            if v not in delta:
                continue
            if parents := net.hidden_parents(v):
                change = self._inverted(state, v, delta[v], prediction)
                for p, pull in zip(parents, change, strict=True):
                    if pull is not None:
                        delta[p] = delta[p] + pull if p in delta else pull
            batch.learn(v, delta.pop(v), prediction, carried=v not in net.outputs)
            state.predictions.pop(v, None)  # of a node without weights: its graph has served

    def _inverted(self, state: State, v: str, delta: Tensor, prediction: Prediction) -> list[Tensor | None]:
        """The damped inverse of ``v``'s slope, applied to ``delta``: a change of each hidden parent.

        One Krylov space for the whole batch, because norms mix its samples: ``state.total`` adds up over workers.
        """
        slope = Slope(state, v, prediction)
        if not slope.there:
            return [None] * slope.parents
        size = state.total(delta.abs().sum())  # squares of small numbers would underflow
        r = _share(delta.to(prediction.mu.dtype), size)
        z, direction, square = r.new_zeros(r.shape), r, slope.dot(r, r)
        for _ in range(self.iterations):
            product = slope.forward(slope.back(direction)).add(direction, alpha=self.damping)
            length = _share(square, slope.dot(direction, product))
            z, r = z + length * direction, r - length * product
            before, square = square, slope.dot(r, r)
            direction = r + _share(square, before) * direction
        factor = (1 + self.damping) * size
        return [pull if pull is None else pull * factor for pull in slope.back(z)]


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """``part / whole``, or 0 where the whole is 0: then nothing is left to find."""
    return (part / whole).where(whole > 0, 0.0)


class Slope:
    """``J`` of a prediction by the hidden parents, and ``J^T``, without running the module again."""

    def __init__(self, state: State, v: str, prediction: Prediction) -> None:
        import torch

        self.state, self.v, self.mu = state, v, prediction.mu
        inputs = [prediction.parents[p] for p in state.net.hidden_parents(v)]
        self.parents, self.inputs, self.there = len(inputs), inputs, prediction.mu.requires_grad
        if self.there:  # J^T w is linear in w, so its derivative by w is J
            state.work.pull_backs[v] += 1
            with torch.enable_grad(), self._said():
                self._w = torch.zeros_like(prediction.mu, requires_grad=True)
                self._pulled = self._grad(prediction.mu, inputs, self._w, create_graph=True)

    def back(self, eps: Tensor) -> list[Tensor | None]:
        self.state.work.pull_backs[self.v] += 1
        return self._grad(self.mu, self.inputs, eps)

    def forward(self, change: list[Tensor | None]) -> Tensor:
        import torch

        self.state.work.predictions[self.v] += 1
        known = [(a, b) for a, b in zip(self._pulled, change, strict=True) if a is not None and a.requires_grad]
        if not known:
            return torch.zeros_like(self.mu)
        ways, by = zip(*known, strict=True)
        with self._said():
            (found,) = torch.autograd.grad(ways, [self._w], by, retain_graph=True, allow_unused=True)
        if found is None:  # torch leaves an error in the graph, which does not lead to w
            raise ValueError(f"the module of node {self.v!r} cannot be differentiated twice, as tp needs: use another")
        return found

    def dot(self, a: Tensor, b: Tensor) -> Tensor:
        return self.state.total((a * b).sum())

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Add to torch's errors which node it was."""
        try:
            yield
        except RuntimeError as error:
            error.add_note(f"(while inverting the node {self.v!r}: tp differentiates its module twice)")
            raise

    @staticmethod
    def _grad(mu: Tensor, inputs: list[Tensor], eps: Tensor, *, create_graph: bool = False) -> list[Tensor | None]:
        import torch

        return list(
            torch.autograd.grad(mu, inputs, eps, retain_graph=True, create_graph=create_graph, allow_unused=True)
        )
