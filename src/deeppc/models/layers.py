"""Building blocks of the networks: activations, norms, scaled channel counts, and rows of nodes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from torch import nn

from deeppc.core.graph import INPUT, Graph
from deeppc.core.norm import thaw
from deeppc.errors import nearest

# Never in place: a prediction is differentiated by its parents' activities, which later predictions read again.
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": lambda: nn.GELU(approximate="tanh"),
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "hard_tanh": nn.Hardtanh,
}
NORMS = ("none", "bn", "bf")


@dataclass(frozen=True)
class Style:
    """The settings that the layers of one network share.

    ``width``       multiplies every channel count (rounded, at least 1).
    ``activation``  one of :data:`ACTIVATIONS`.
    ``norm``        ``none``; ``bf``, BatchNorm whose running statistics move once per batch (BatchNorm freezing, what
                    deeppc does with any BatchNorm); ``bn``, whose every prediction moves them (the failing baseline).
    ``affine``      whether the norm has a scale and a shift to learn.
    """

    width: float
    activation: str
    norm: str
    affine: bool

    def __post_init__(self) -> None:
        choose("activation", self.activation, ACTIVATIONS)
        choose("norm", self.norm, NORMS)
        if not 0 < self.width < math.inf:
            raise ValueError(f"width is {self.width!r}, but must be positive: 1.0 gives the paper's channel counts")

    def channels(self, count: int) -> int:
        return max(1, round(count * self.width))

    def act(self) -> nn.Module:
        return ACTIVATIONS[self.activation]()

    def normalise(
        self, channels: int, kind: type[nn.BatchNorm1d] | type[nn.BatchNorm2d] = nn.BatchNorm2d
    ) -> nn.Module | None:
        if self.norm == "none":
            return None
        layer = kind(channels, affine=self.affine)
        return thaw(layer) if self.norm == "bn" else layer


def parts(**modules: nn.Module | None) -> OrderedDict[str, nn.Module]:
    """Return the named steps of one prediction, those that are None left out.

    Named, so that ``nodes.conv1.conv.weight`` is called so with and without a norm.
    """
    return OrderedDict((name, module) for name, module in modules.items() if module is not None)


def in_a_row(modules: Mapping[str, nn.Module]) -> Graph:
    """Return the graph in which each node predicts the next: a :class:`deeppc.Chain` whose nodes have names."""
    parents = [INPUT, *modules]
    return Graph({v: (f, parents[i]) for i, (v, f) in enumerate(modules.items())})


def choose(kind: str, name: str, choices: Collection[str]) -> str:
    """Return ``name`` if it is one of the choices; else raise an error that names the nearest."""
    if name not in choices:
        raise ValueError(f"unknown {kind} {name!r}: {nearest(name, choices)}")
    return name


def check_sizes(in_shape: tuple[int, ...], classes: int) -> None:
    if classes < 1:
        raise ValueError(f"classes is {classes}, but a network answers with at least 1")
    if not in_shape or min(in_shape) < 1:
        raise ValueError(f"in_shape is {in_shape}: expected the sizes of one sample, all at least 1, e.g. (3, 32, 32)")


def check_images(in_shape: tuple[int, ...], classes: int) -> None:
    check_sizes(in_shape, classes)
    if len(in_shape) != 3:
        raise ValueError(f"in_shape is {in_shape}: a convolution needs (channels, height, width), e.g. (3, 32, 32)")
