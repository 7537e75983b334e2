"""Fixed random feedback: what feedback alignment carries errors by, in place of the weights.

Feedback is drawn from a seed and the name of what it stands for, whenever it is asked for: nothing is stored, so that a
run resumes as it was, and all workers have the same.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.utils.parametrize import is_parametrized

from deeppc.core.graph import Graph


@lru_cache(maxsize=256)
def draw(seed: int, name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return even random numbers of the size that torch starts weights of this shape with: +- 1 / sqrt(fan-in)."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
    bound = 1 / math.sqrt(math.prod(shape[1:]))
    return torch.empty(shape, device="cpu").uniform_(-bound, bound, generator=generator).to(device, dtype)


@contextmanager
def carried(net: Graph, seed: int) -> Iterator[None]:
    """Within, what is computed with a matrix is differentiated by its input as if feedback stood in the matrix's place.

    Autograd keeps a matrix for nothing but that derivative, and is given the feedback to keep instead, in the same
    strides. Derivatives by the matrix need its input only, and are what they always are (unless two matrices are
    multiplied by each other). A matrix is a parameter of two dimensions or more: of linear layers, of convolutions.
    Norms and biases stay as they are. Raises ``ValueError`` where matrices are read as copies.
    """
    norms = {w for m in net.modules() if isinstance(m, nn.LayerNorm | nn.RMSNorm) for w in m.parameters()}
    named = [(name, w) for name, w in net.named_parameters() if w.dim() > 1 and w not in norms]
    matrices = {w.untyped_storage().data_ptr(): (name, w) for name, w in named}
    devices = {w.device.type for _, w in matrices.values()}
    if any(map(torch.is_autocast_enabled, devices)) or any(map(is_parametrized, net.modules())):
        raise ValueError("feedback cannot take the place of weights that autocast or a parametrization copies: use pc")

    def keep(x: Tensor) -> Tensor:
        found = matrices.get(x.untyped_storage().data_ptr())
        if found is None:
            return x.detach()
        name, w = found
        feedback = torch.empty_like(w).copy_(draw(seed, name, tuple(w.shape), w.dtype, w.device))
        return feedback.as_strided(x.shape, x.stride(), x.storage_offset() - w.storage_offset())

    with saved_tensors_hooks(keep, lambda kept: kept):
        yield
