"""Energies: how much a node's activity ``x`` and its prediction ``mu`` disagree, and what follows from it.

    value    E(x, mu) of each sample
    message  -dE/dmu, what is pulled back to the parents and to the weights
    force    dE/dx, what moves the node itself

A node has half the squared error unless its network says otherwise, ``Graph(nodes, energies={"y": Bernoulli()})``; an
output has the energy that the algorithm's ``loss`` names. An energy of one's own needs ``value`` alone:

    class Huber(Energy):
        def value(self, x, mu):
            return nn.functional.huber_loss(mu, x, reduction="none").flatten(1).sum(1)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from deeppc.core import inputs, reuse
from deeppc.core.graph import Graph


class Energy(nn.Module):
    """An energy by its :meth:`value`; the rest follows by autograd, unless a formula is at hand.

    ``canonical``  message and force are both ``weigh(x - respond(mu))``: then they are taken from deviations, exactly.
    ``settles``    there is neither force nor message where ``x == mu``: a node stays as it is until something moves.
    ``plain``      it is half the squared error.

    Its parameters, if any, learn with the node's weights.
    """

    canonical = settles = plain = False

    def value(self, x: Tensor, mu: Tensor) -> Tensor:
        """Return the energy of each sample, (batch,)."""
        raise NotImplementedError(f"{type(self).__name__} needs a value(x, mu): the energy of each sample")

    def message(self, x: Tensor, mu: Tensor) -> Tensor:
        """``-dE/dmu``."""
        return -self._gradient(x.detach(), mu.detach().requires_grad_(), by=1)

    def force(self, x: Tensor, mu: Tensor) -> Tensor:
        """``dE/dx``."""
        return self._gradient(x.detach().requires_grad_(), mu.detach(), by=0)

    def target(self, targets: Tensor, out: Tensor) -> Tensor:
        """Return ``x`` for an output that answers ``out``. ``ValueError`` for targets that do not fit."""
        return inputs.same_shape(targets, out) if targets.is_floating_point() else inputs.one_hot(targets, out)

    def respond(self, mu: Tensor) -> Tensor:
        """Return what is compared with ``x``: the prediction itself."""
        return mu

    def weigh(self, eps: Tensor) -> Tensor:
        """Return the message of the error ``x - respond(mu)``: itself, but for precisions.

        Of a hidden node's error it is a product by elements.
        """
        return eps

    def _gradient(self, x: Tensor, mu: Tensor, by: int) -> Tensor:
        with torch.enable_grad():
            value = self.value(x, mu)
            if value.shape != x.shape[:1]:
                shape = tuple(value.shape)
                raise ValueError(
                    f"{type(self).__name__}.value returns {shape}, but must return a number for each sample"
                )
            return torch.autograd.grad(value.sum(), (x, mu)[by])[0]


class Gaussian(Energy):
    """``1/2 sum precision (x - mu)^2``, less ``1/2 sum log precision`` where it is learnt.

    ``precision``  a number, or one for each unit (a tensor that broadcasts to a sample's shape).
    ``learnt``     let the precision learn, in its logarithm; each unit then finds the inverse of its error's variance.
    """

    canonical = settles = True

    log_precision: Tensor | None
    precision: Tensor | None

    def __init__(self, precision: float | Tensor = 1.0, *, learnt: bool = False) -> None:
        super().__init__()
        given = precision if isinstance(precision, Tensor) else torch.tensor(float(precision))
        if not bool((given > 0).all() & given.isfinite().all()):
            raise ValueError(f"precision is {precision}, but must be above 0")
        self.plain = not learnt and given.dim() == 0 and float(given) == 1
        self.register_parameter("log_precision", nn.Parameter(given.log()) if learnt else None)
        self.register_buffer("precision", None if learnt or self.plain else given)

    def weigh(self, eps: Tensor) -> Tensor:
        if self.log_precision is not None:
            return eps * self.log_precision.exp()
        return eps if self.precision is None else eps * self.precision

    def value(self, x: Tensor, mu: Tensor) -> Tensor:
        each = by_sample(self.weigh(x - mu) * (x - mu)) / 2
        return each if self.log_precision is None else each - self.log_precision.expand(x.shape[1:]).sum() / 2


class CrossEntropy(Energy):
    """``-sum w y log softmax(mu)`` over the classes, which are dimension 1, and over positions, if there are any.

    ``weight`` (w) has a number for each class; ``label_smoothing`` mixes targets with equal shares; targets that are
    ``ignore_index`` count for nothing. Targets are class indices (batch, positions...) or distributions. An output that
    is not clamped follows the softmax of its prediction.
    """

    weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, *, label_smoothing: float = 0.0, ignore_index: int | None = None
    ) -> None:
        super().__init__()
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing is {label_smoothing}, but must be from 0 to 1")
        self.register_buffer("weight", weight)
        self.label_smoothing, self.ignore_index = label_smoothing, ignore_index
        self.canonical = self.settles = weight is None and ignore_index is None

    def value(self, x: Tensor, mu: Tensor) -> Tensor:
        return -by_sample(self._weighed(x) * torch.log_softmax(mu, dim=1))

    def message(self, x: Tensor, mu: Tensor) -> Tensor:
        y = self._weighed(x)
        return y - y.sum(1, keepdim=True) * torch.softmax(mu, dim=1)

    def force(self, x: Tensor, mu: Tensor) -> Tensor:
        return x - torch.softmax(mu, dim=1)

    def target(self, targets: Tensor, out: Tensor) -> Tensor:
        if out.dim() < 2:
            raise ValueError(f"cross-entropy needs an output of (batch, classes), not {tuple(out.shape)}")
        if targets.is_floating_point():
            y = inputs.same_shape(targets, out)
            shares = ((y.sum(1) - 1).abs() < 1e-4).all() & (y >= 0).all()
            inputs.require(shares, "under cross-entropy a target must be a distribution over classes (dimension 1)")
        elif self.ignore_index is None:
            y = inputs.one_hot(targets, out)
        else:
            ignored = targets == self.ignore_index
            y = inputs.one_hot(targets.masked_fill(ignored, 0), out) * ~ignored.unsqueeze(1)
        if not self.label_smoothing:
            return y
        return (1 - self.label_smoothing) * y + self.label_smoothing / out.shape[1] * y.sum(1, keepdim=True)

    def respond(self, mu: Tensor) -> Tensor:
        return torch.softmax(mu, dim=1)

    def _weighed(self, x: Tensor) -> Tensor:
        if self.weight is None:
            return x
        return x * self.weight.view(-1, *[1] * (x.dim() - 2))


class Bernoulli(Energy):
    """``sum log(1 + exp(mu)) - x mu``: several labels at once, each there (1) or not (0), or anything between."""

    canonical = settles = True

    def value(self, x: Tensor, mu: Tensor) -> Tensor:
        return by_sample(nn.functional.softplus(mu) - x * mu)

    def respond(self, mu: Tensor) -> Tensor:
        return torch.sigmoid(mu)

    def target(self, targets: Tensor, out: Tensor) -> Tensor:
        y = inputs.same_shape(targets, out).to(out.dtype)
        inputs.require(((y >= 0) & (y <= 1)).all(), "targets must be from 0 to 1 for each label")
        return y


SQUARED_ERROR = Gaussian()
BY_NAME: dict[str, Energy] = {"squared_error": SQUARED_ERROR, "cross_entropy": CrossEntropy()}


def energies_of(net: Graph, loss: str) -> dict[str, Energy]:
    """Return the energy of each node: what the network says; else, for an output, what ``loss`` names."""
    found: dict[str, Energy] = {}
    net.require_nodes(net.energies)
    for v in net.nodes:
        energy = net.energies[v] if v in net.energies else BY_NAME[loss] if v in net.outputs else SQUARED_ERROR
        if not isinstance(energy, Energy):
            raise TypeError(f"the energy of node {v!r} is {type(energy).__name__}, but must be a deeppc Energy")
        if v not in net.outputs and type(energy).respond is not Energy.respond:
            raise ValueError(f"{type(energy).__name__} is for outputs, but node {v!r} predicts others: choose another")
        found[v] = energy
    return found


def by_sample(x: Tensor) -> Tensor:
    """The sum over each sample of (batch, ...), which may be one number: (batch,)."""
    return x.unsqueeze(-1).flatten(1).sum(1)


def half_square(eps: Tensor) -> Tensor:
    """``1/2 |eps|^2``, in float64 where the device has it: in a unit of one's own it may leave float32's range.

    To copy the error to float64 would take longer than all the rest. So the norm of each sample is taken in float32,
    and only the norms are squared in float64.
    """
    kind = torch.promote_types(eps.dtype, torch.float32)  # bfloat16 has 8 bits
    eps = eps.unsqueeze(-1)
    norms: Tensor = torch.linalg.vector_norm(eps, dim=tuple(range(1, eps.dim())), dtype=kind)
    return norms.to(reuse.widest(eps)).square().sum() / 2
