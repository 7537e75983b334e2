"""Energies: half the squared error of a node, or the cross-entropy of the output."""

from __future__ import annotations

import torch
from torch import Tensor

_RAISE = 2.0**100  # an exact factor, by which the smallest float32 errors have squares in float32's range
_SMALL = 2.0**-40  # norms below this may have lost squares to underflow
_CACHE = 2**18  # numbers whose copy fits a cache


def respond(mu: Tensor, loss: str) -> Tensor:
    """What the output answers with: the prediction itself, or under cross-entropy its softmax.

    Either way the energy's derivative by ``mu`` is the answer minus the target.
    """
    return torch.softmax(mu, dim=1) if loss == "cross_entropy" else mu


def cross_entropy(target: Tensor, mu: Tensor) -> Tensor:
    """``-y . log_softmax(mu)``, summed over the batch."""
    return -(target * torch.log_softmax(mu, dim=1)).sum()


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
    samples = max(1, _CACHE // max(1, eps[:1].numel()))
    raised = torch.cat([norm(part * _RAISE) for part in torch.split(eps, samples)])
    return torch.where(norms > _SMALL, norms, raised / _RAISE).square().sum() / 2
