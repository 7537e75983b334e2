"""A multilayer perceptron: the smallest deep network, for samples of any shape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from deeppc.core.graph import Graph
from deeppc.models.layers import DEFAULT, Style, in_a_row, parts
from deeppc.models.registry import model


@model("mlp")
def mlp(hidden: Sequence[int] = (256, 256, 256), style: Style = DEFAULT) -> Graph:
    """Build the chain ``hidden1, hidden2, ..., linear``; a hidden node is linear -> (norm) -> activation.

    Samples may have any number of dimensions. Weights start as torch starts them.
    """
    sizes = [math.prod(style.in_shape), *map(style.channels, hidden)]
    nodes: dict[str, nn.Module] = {}
    for i, (before, size) in enumerate(pairwise(sizes), 1):
        flatten = nn.Flatten() if i == 1 else None
        linear, norm_layer = nn.Linear(before, size), style.normalise(size, nn.BatchNorm1d)
        nodes[f"hidden{i}"] = nn.Sequential(parts(flatten=flatten, linear=linear, norm=norm_layer, act=style.act()))
    flatten = None if nodes else nn.Flatten()
    nodes["linear"] = nn.Sequential(parts(flatten=flatten, linear=nn.Linear(sizes[-1], style.classes)))
    return in_a_row(nodes)
