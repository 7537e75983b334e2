"""Contexts that leave a network as it was, for diagnostics in the middle of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from deeppc.core.norm import random_state, set_random_state


@contextmanager
def mode_kept(net: nn.Module) -> Iterator[None]:
    """Restore the mode, training or evaluation, of each module afterwards."""
    original = getattr(net, "original", net)  # a converted network asks it for its mode
    modes = {module: module.training for root in (net, original) for module in root.modules()}
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Put ``net`` in evaluation mode without gradients; restore the mode of each module afterwards."""
    with mode_kept(net), torch.no_grad():
        net.eval()
        yield


@contextmanager
def untouched(net: nn.Module, device: torch.device) -> Iterator[None]:
    """Restore gradients, buffers and torch's random numbers afterwards, whatever happens within."""
    gradients = [(p, p.grad) for p in net.parameters()]
    named = [(module, *pair) for module in net.modules() for pair in module.named_buffers(recurse=False)]
    buffers = [(module, name, buffer, buffer.clone()) for module, name, buffer in named if not is_lazy(buffer)]
    generators = random_state(device)
    for parameter, _ in gradients:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for module, name, buffer, value in buffers:
                module._buffers[name] = buffer.copy_(value)  # a module may have put another in its place
        set_random_state(generators, device)
