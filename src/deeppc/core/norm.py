"""What a predicting module remembers or draws: running statistics and dropout masks.

A node is predicted many times for one batch. Two things must not notice:

*BatchNorm freezing (BF).* Batch statistics normalise every prediction in training, but the *running* statistics
move exactly once per batch, in a prediction at the state that the weights learn from. This holds for every torch norm
layer that tracks statistics, with or without affine parameters: nothing to subclass. The paper's failing baseline, in
which every prediction moves them, is :func:`thaw`.

*Dropout.* One mask per node and batch, the same in every prediction: a node that drew random numbers when it was
predicted first replays them ever after, whatever kind of module it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy


def thaw(module: nn.Module) -> nn.Module:
    """Let every prediction move the running statistics of the norm layers in ``module``, and return it."""
    for layer in module.modules():
        if isinstance(layer, _NormBase):
            layer.thawed = True  # type: ignore[assignment]
    return module


def freezable(module: nn.Module) -> list[_NormBase]:
    """The layers of ``module`` whose running statistics would move now, and may move only once per batch."""
    norms = [
        layer for layer in module.modules() if isinstance(layer, _NormBase) and not getattr(layer, "thawed", False)
    ]
    return [layer for layer in norms if layer.training and layer.track_running_stats]


@contextmanager
def frozen(module: nn.Module) -> Iterator[None]:
    """Within, batch statistics normalise and running statistics stand still."""
    layers = [(layer, layer.running_mean, layer.running_var) for layer in freezable(module)]
    for layer, _, _ in layers:
        layer.track_running_stats, layer.running_mean, layer.running_var = False, None, None
    try:
        yield
    finally:
        for layer, mean, var in layers:
            layer.track_running_stats, layer.running_mean, layer.running_var = True, mean, var


def generators(device: torch.device) -> list[torch.Generator]:
    """Return those that a module on ``device`` may draw from (a CUDA graph under capture cannot give its own)."""
    if device.type == "cuda" and not torch.cuda.is_current_stream_capturing():
        return [torch.default_generator, torch.cuda.default_generators[device.index or 0]]
    return [torch.default_generator, *([torch.mps._get_default_mps_generator()] if device.type == "mps" else [])]


def random_state(device: torch.device) -> list[Tensor]:
    """Return the states of :func:`generators`."""
    return [generator.get_state() for generator in generators(device)]


def set_random_state(states: list[Tensor], device: torch.device) -> None:
    """Put :func:`generators` back to ``states``."""
    for generator, state in zip(generators(device), states, strict=True):
        generator.set_state(state)


class Draws:
    """The random numbers of one batch: each node draws in every prediction what it drew in its first."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before: dict[str, list[Tensor] | None] = {}  # by node, the generators' states; None if it drew nothing

    @contextmanager
    def of(self, v: str) -> Iterator[None]:
        """Within, ``v`` is predicted: for the first time, or with the same numbers again, as if none were drawn."""
        if v not in self._before:
            before = random_state(self._device)
            yield
            drew = not all(map(torch.equal, before, random_state(self._device)))
            self._before[v] = before if drew else None
        elif (first := self._before[v]) is None:
            yield
        else:
            now = random_state(self._device)
            set_random_state(first, self._device)
            try:
                yield
            finally:
                set_random_state(now, self._device)


@contextmanager
def unchanged_on_error(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Put running statistics and random generators back if the block raises: a refused batch leaves no trace."""
    norms = [m for m in module.modules() if isinstance(m, _NormBase)]
    saved = [(b, b.clone()) for m in norms for b in m.buffers(recurse=False) if not is_lazy(b)]
    random = random_state(device)
    try:
        yield
    except BaseException:
        for buffer, value in saved:
            buffer.copy_(value)
        set_random_state(random, device)
        raise
