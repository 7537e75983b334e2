"""The paper's networks by name, at any input size, number of classes and width.

>>> net = build("resnet18", classes=100, width=0.5, norm="bf")

A network of another depth comes from the function behind its name: :func:`deeppc.models.vgg.vgg` takes a plan,
:func:`deeppc.models.resnet.resnet` the blocks per stage, :func:`deeppc.models.mlp.mlp` the hidden sizes. Nothing in
them is special: any :class:`deeppc.Graph` of your own modules trains as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from deeppc.core.graph import Graph
from deeppc.models import mlp, resnet, vgg
from deeppc.models.layers import ACTIVATIONS, NORMS, choose

_BUILDERS: dict[str, Callable[..., Graph]] = {
    "mlp": mlp.mlp,
    **{name: partial(vgg.vgg, plan) for name, plan in vgg.PLANS.items()},
    **{name: partial(resnet.resnet, blocks) for name, blocks in resnet.BLOCKS.items()},
}
NAMES = tuple(_BUILDERS)

__all__ = ["ACTIVATIONS", "NAMES", "NORMS", "build"]


def build(
    name: str,
    classes: int = 10,
    in_shape: tuple[int, ...] = (3, 32, 32),
    width: float = 1.0,
    activation: str = "gelu",
    norm: str = "none",
    aux: bool = True,
    affine: bool = True,
) -> Graph:
    """The network called ``name``: one of :data:`NAMES`.

    ``classes``     size of the output.
    ``in_shape``    shape of one sample, (channels, height, width); for ``mlp`` any shape. A ``ValueError`` says which
                    images are too small for a VGG.
    ``width``       multiplies every channel count (rounded, at least 1); 1.0 is the paper's net.
    ``activation``  ``gelu`` (tanh form), ``relu``, ``leaky_relu`` or ``hard_tanh``.
    ``norm``        ``none``, ``bf`` (BatchNorm freezing) or ``bn`` (the paper's failing baseline: running statistics
                    move in every prediction).
    ``aux``         auxiliary nodes on the skip paths of a ResNet; chains have no skip paths, and nothing changes.
    ``affine``      whether norms learn a scale and a shift.
    """
    builder = _BUILDERS[choose("model", name, NAMES)]
    if name in resnet.BLOCKS:
        builder = partial(builder, aux=aux)
    return builder(classes=classes, in_shape=in_shape, width=width, activation=activation, norm=norm, affine=affine)
