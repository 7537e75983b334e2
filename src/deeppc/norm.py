"""What a predicting module remembers or draws: running statistics and dropout masks.

A node is predicted many times for one batch. Two things must not notice:

*BatchNorm freezing (BF).* Batch statistics normalise every prediction in training, but the *running* statistics
move exactly once per batch, in the prediction that the weights learn from. This holds for every torch norm layer
that tracks statistics, with or without affine parameters: nothing to subclass. The paper's failing baseline, in
which every prediction moves them, is :func:`thaw`.

*Dropout.* One mask per node and batch, the same in every prediction: each prediction replays the same random
numbers. A module of your own that draws random numbers in ``forward`` says so by an attribute ``stochastic = True``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd


def thaw(module: nn.Module) -> nn.Module:
    """Let every prediction move the running statistics of the norm layers in ``module``: the plain-BN baseline."""
    for layer in module.modules():
        if isinstance(layer, _NormBase):
            layer.thawed = True  # type: ignore[assignment]
    return module


def freezable(module: nn.Module) -> list[_NormBase]:
    """The layers of ``module`` whose running statistics would move now, and may move only once per batch."""
    return [
        layer
        for layer in module.modules()
        if isinstance(layer, _NormBase)
        and layer.training
        and layer.track_running_stats
        and not getattr(layer, "thawed", False)
    ]


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Within: batch statistics normalise, running statistics stand still."""
    layers = freezable(module)
    for layer in layers:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in layers:
            layer.track_running_stats = True


def draws_numbers(module: nn.Module) -> bool:
    """Does a prediction of ``module`` depend on random numbers?"""
    return any(
        layer.training
        and (isinstance(layer, _DropoutNd | nn.RReLU | nn.MultiheadAttention) or getattr(layer, "stochastic", False))
        for layer in module.modules()
    )


@contextmanager
def replayed(seed: int, device: torch.device) -> Iterator[None]:
    """Within: random numbers start from ``seed``; outside, the generators are as if nothing had been drawn."""
    on_cpu = device.type in ("cpu", "meta")
    with torch.random.fork_rng([] if on_cpu else [device], device_type="cuda" if on_cpu else device.type):
        torch.manual_seed(seed)
        yield


@contextmanager
def unchanged_on_error(module: nn.Module) -> Iterator[None]:
    """Put running statistics back if the block raises: a refused batch leaves no trace."""
    buffers = [b for m in module.modules() if isinstance(m, _NormBase) for b in m.buffers(recurse=False)]
    saved: list[Tensor] = [b.clone() for b in buffers]
    try:
        yield
    except BaseException:
        with torch.no_grad():
            for buffer, value in zip(buffers, saved, strict=True):
                buffer.copy_(value)
        raise
