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
CLIPPING = ("relu", "hard_tanh")  # the largest of some units is the same unit after these, or none has a slope
NORMS = ("none", "bn", "bf")
LARGEST = 2**31 - 1  # of a layer or a sample: what torch's shapes can hold in any product of two


def choose(kind: str, name: str, choices: Collection[str]) -> str:
    """Return ``name`` if it is one of the choices; else raise an error that names the nearest."""
    if name not in choices:
        raise ValueError(f"unknown {kind} {name!r}: {nearest(name, choices)}")
    return name


@dataclass(frozen=True)
class Style:
    """The settings that all networks share; those that cannot be raise a ``ValueError``.

    ``classes``     size of the output.
    ``in_shape``    shape of one sample.
    ``width``       multiplies every channel count (rounded, at least 1); 1.0 is the paper's net.
    ``activation``  one of :data:`ACTIVATIONS`.
    ``norm``        ``none``; ``bf``, BatchNorm whose running statistics move once per batch (BatchNorm freezing, what
                    deeppc does with any BatchNorm); ``bn``, whose every prediction moves them (the failing baseline).
    ``affine``      whether norms learn a scale and a shift.
    """

    classes: int = 10
    in_shape: tuple[int, ...] = (3, 32, 32)
    width: float = 1.0
    activation: str = "gelu"
    norm: str = "none"
    affine: bool = True

    def __post_init__(self) -> None:
        choose("activation", self.activation, ACTIVATIONS)
        choose("norm", self.norm, NORMS)
        if not 0 < self.width < math.inf:
            raise ValueError(f"width is {self.width!r}, but must be positive: 1.0 gives the paper's channel counts")
        if not 1 <= self.classes <= LARGEST:
            raise ValueError(f"classes is {self.classes}, but a network answers with at least 1, at most {LARGEST:,}")
        if not self.in_shape or not 1 <= min(self.in_shape) <= math.prod(self.in_shape) <= LARGEST:
            raise ValueError(f"in_shape is {self.in_shape}: expected the sizes of one sample, e.g. (3, 32, 32)")

    def image(self) -> tuple[int, int, int]:
        """Return the (channels, height, width) that a convolution needs."""
        if len(self.in_shape) != 3:
            raise ValueError(f"in_shape is {self.in_shape}: a convolution needs (channels, height, width)")
        return self.in_shape

    def channels(self, count: int) -> int:
        if count * self.width > LARGEST:
            raise ValueError(f"width is {self.width:g}: layers of more than {LARGEST:,} channels cannot be built")
        return max(1, round(count * self.width))

    @property
    def clips(self) -> bool:
        """Whether the activation passes a unit on as it is, or clips it."""
        return self.activation in CLIPPING

    def act(self) -> nn.Module:
        return ACTIVATIONS[self.activation]()

    def normalise(
        self, channels: int, kind: type[nn.BatchNorm1d] | type[nn.BatchNorm2d] = nn.BatchNorm2d
    ) -> nn.Module | None:
        if self.norm == "none":
            return None
        layer = kind(channels, affine=self.affine)
        return thaw(layer) if self.norm == "bn" else layer


DEFAULT = Style()


def parts(**modules: nn.Module | None) -> OrderedDict[str, nn.Module]:
    """Return the named steps of one prediction, those that are None left out.

    Named, so that ``nodes.conv1.conv.weight`` is called so with and without a norm.
    """
    return OrderedDict((name, module) for name, module in modules.items() if module is not None)


def in_a_row(modules: Mapping[str, nn.Module]) -> Graph:
    """Return the graph in which each node predicts the next: a :class:`deeppc.Chain` whose nodes have names."""
    parents = [INPUT, *modules]
    return Graph({v: (f, parents[i]) for i, (v, f) in enumerate(modules.items())})
