"""VGG: a chain of 3x3 convolutions, then linear layers. A value node after each.

A plan is the network. ``128`` is a convolution to 128 channels,

    conv 3x3 -> (norm) -> activation -> (max-pool 2) -> value node

``M`` pools after it, ``v`` leaves out its padding, ``4096L`` is a linear layer with an activation. The last linear
layer, to the classes, stands in no plan because all have it. ReLU and hard tanh, which pass a unit on or clip it, come
after the pooling, on a quarter of the units: the same numbers.

A convolution keeps its bias beside a norm, so that nets that differ in the norm differ in nothing else. Weights
start as torch starts them.
"""

from __future__ import annotations

import re
from functools import partial

from torch import nn

from deeppc.core.graph import Graph
from deeppc.models.layers import DEFAULT, Style, in_a_row, parts
from deeppc.models.registry import model

PLANS = {
    "vgg5": "128M 256M 512M 512vM",
    "vgg7": "128M 128 256M 256v 512M 512v",
    "vgg10": "64 128 128M 128 256M 256 256M 256 512M",
    "vgg15": "64 64M 128 128M 256 256 256M 512 512 512M 512 512 512M 4096L",
}


def vgg(plan: str, style: Style = DEFAULT) -> Graph:
    """Build the chain ``conv1, conv2, ..., (hidden1, ...,) linear`` of a plan: ``vgg(PLANS["vgg5"])``."""
    convs, hidden = _parse(plan)
    smallest = _smallest_image(convs)
    channels, *size = style.image()
    if min(size) < smallest:
        raise ValueError(
            f"images of {size[0]}x{size[1]} are too small for the plan {plan!r}: the smallest that fit are "
            f"{smallest}x{smallest}; mlp and the resnets take any"
        )

    nodes: dict[str, nn.Module] = {}
    for i, (count, unpadded, pooled) in enumerate(convs, 1):
        conv = nn.Conv2d(channels, style.channels(count), 3, padding=0 if unpadded else 1)
        channels = conv.out_channels
        pool = nn.MaxPool2d(2) if pooled else None
        ends = {"pool": pool, "act": style.act()} if style.clips else {"act": style.act(), "pool": pool}
        nodes[f"conv{i}"] = nn.Sequential(parts(conv=conv, norm=style.normalise(channels), **ends))
        size = [(s - 2 * unpadded) // (2 if pooled else 1) for s in size]

    features = channels * size[0] * size[1]
    flatten: nn.Module | None = nn.Flatten()
    for i, count in enumerate(hidden, 1):
        linear = nn.Linear(features, style.channels(count))
        features = linear.out_features
        nodes[f"hidden{i}"] = nn.Sequential(parts(flatten=flatten, linear=linear, act=style.act()))
        flatten = None
    nodes["linear"] = nn.Sequential(parts(flatten=flatten, linear=nn.Linear(features, style.classes)))
    return in_a_row(nodes)


def _parse(plan: str) -> tuple[list[tuple[int, bool, bool]], list[int]]:
    """Return the convolutions as (channels, unpadded, pooled), and the sizes of the hidden linear layers."""
    if not re.fullmatch(r"\d+v?M?( \d+v?M?)*( \d+L)*", plan):
        raise ValueError(
            f"cannot read the plan {plan!r}: expected convolutions such as 128, 128M, 128v, 128vM, then linear layers "
            "such as 4096L, with a space between"
        )
    convs = [(int(n), bool(v), bool(m)) for n, v, m in re.findall(r"(\d+)(v?)(M?)(?: |$)", plan)]
    return convs, [int(n) for n in re.findall(r"(\d+)L", plan)]


def _smallest_image(convs: list[tuple[int, bool, bool]]) -> int:
    """Return the height or width of which one pixel is left, found from the last layer back."""
    size = 1
    for _, unpadded, pooled in reversed(convs):
        size = size * (2 if pooled else 1) + (2 if unpadded else 0)
    return size


for _name, _plan in PLANS.items():
    model(_name)(partial(vgg, _plan))
