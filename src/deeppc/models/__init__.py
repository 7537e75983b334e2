"""The paper's networks by name, at any input size, number of classes and width.

>>> net = build("resnet18", classes=100, width=0.5, norm="bf")

A network of another depth comes from the function behind its name: :func:`deeppc.models.vgg.vgg` takes a plan,
:func:`deeppc.models.resnet.resnet` the blocks per stage, :func:`deeppc.models.mlp.mlp` the hidden sizes, and each a
:class:`Style`. Nothing in them is special: any :class:`deeppc.Graph` of your own modules trains as well, by name after
``@model("name")``, or as ``build("path/to/file.py:function")``, where the function may return any torch module.
"""

from __future__ import annotations

from deeppc.models import mlp, vgg, resnet, mupc  # isort: skip - in this order their names are listed
from deeppc.models.layers import ACTIVATIONS, NORMS, Style
from deeppc.models.registry import build, described, model, names, takes

__all__ = [
    "ACTIVATIONS",
    "NORMS",
    "Style",
    "build",
    "described",
    "mlp",
    "model",
    "mupc",
    "names",
    "resnet",
    "takes",
    "vgg",
]
