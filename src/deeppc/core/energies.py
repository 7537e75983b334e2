"""Energies: half the squared error of a node, or the cross-entropy of the output."""

import torch
from torch import Tensor

_RAISE = 2.0**100  # an exact factor, by which the smallest float32 errors have squares in float32's range
_SMALL = 2.0**-40  # norms below this may have lost squares to underflow
_CACHE = 2**18  # numbers whose copy fits a cache


def respond(mu: Tensor, loss: str) -> Tensor:
    """Return what is compared with the target: the prediction itself, or under cross-entropy its softmax.

    Either way the energy's derivative by ``mu`` is the response minus the target.
    """
    return torch.softmax(mu, dim=1) if loss == "cross_entropy" else mu


def cross_entropy(target: Tensor, mu: Tensor) -> Tensor:
    """``-y . log_softmax(mu)``, summed over the batch."""
    return -(target * torch.log_softmax(mu, dim=1)).sum()


def half_square(eps: Tensor, *, small: bool = True) -> Tensor:
    """``1/2 |eps|^2``, in float64 where the device has it: deep in a network it is below float32's range.

    To copy the error to float64 would take longer than all the rest. So the norm of each sample is taken in float32,
    and only the norms are squared in float64. Where errors may be so ``small`` that squares underflow within the norm,
    the norm of 2^100 times the error is taken as well.
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
