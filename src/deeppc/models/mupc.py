"""muPC: weights of residual networks so scaled that activities and updates keep their size at any width and depth.

    z_1 = a_1 W_1 x          z_l = z_(l-1) + a_l W_l phi(z_(l-1))          y = a_L W_L phi(z_(L-1))
    a_1 = D^-1/2             a_l = (N K)^-1/2                              a_L = N^-1

with all weights drawn from N(0, 1), D inputs, N units and K residual branches. A sum of K branches is as large as one
then. As torch starts them, activities grow exponentially with K. For SGD at a rate that grows with N the change of the
output by a step does not depend on the depth either; AdamW, whose steps have the same length for every weight, needs a
rate that falls with sqrt(N K). A branch of two layers (as in a ResNet) has the factor K^-1/2 once, in its last layer.
Branches have no biases: K of them would add up.

Innocenti, Achour, Buckley: muPC: Scaling predictive coding to 100+ layer networks. NeurIPS 2025, arXiv:2505.13124.
After the Depth-muP of Yang et al. (Tensor programs VI, arXiv:2310.02244) and Bordelon et al. (arXiv:2309.16620).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from torch import Tensor, nn
from torch.nn.utils import parametrize

from deeppc.core.graph import Graph
from deeppc.models.layers import DEFAULT, Style, in_a_row, parts
from deeppc.models.registry import model
from deeppc.models.resnet import BLOCKS, resnet


def mupc(net: Graph, branches: Collection[str]) -> Graph:
    """Draw the weights of ``net`` anew, and scale them. ``branches`` are the nodes that residual branches end in."""
    for v, module in net.nodes.items():
        for layer in [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]:
            fan_in = layer.weight[0].numel()
            depth = len(branches) if v in branches else 1
            nn.init.normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
            scale = 1 / fan_in if v in net.outputs else 1 / math.sqrt(fan_in * depth)
            parametrize.register_parametrization(layer, "weight", Times(scale))
    return net


class Times(nn.Module):
    """Multiply by a number."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * x


class Skip(nn.Sequential):
    """``x + modules(x)``."""

    def forward(self, x: Tensor) -> Tensor:
        branch = x
        for module in self:
            branch = module(branch)
        return x + branch


def residual_mlp(branches: int, size: int = 128, style: Style = DEFAULT) -> Graph:
    """Build the chain ``first, branch1, ..., linear`` of so many residual branches of ``size`` units, without biases.

    A branch is ``z + linear(act(z))``, one node: its skip is inside of it, so that energy takes no short cut. Weights
    start as torch starts them.
    """
    size = style.channels(size)
    first = parts(flatten=nn.Flatten(), linear=nn.Linear(math.prod(style.in_shape), size, bias=False))
    nodes: dict[str, nn.Module] = {"first": nn.Sequential(first)}
    for i in range(1, branches + 1):
        nodes[f"branch{i}"] = Skip(parts(act=style.act(), linear=nn.Linear(size, size, bias=False)))
    nodes["linear"] = nn.Sequential(parts(act=style.act(), linear=nn.Linear(size, style.classes, bias=False)))
    return in_a_row(nodes)


@model("resnet10-mupc")
def resnet10_mupc(style: Style = DEFAULT, aux: bool = True) -> Graph:
    """Build a ResNet10 with the weights of muPC."""
    net = resnet(BLOCKS["resnet10"], style, aux)
    return mupc(net, [v for v in net.nodes if v.endswith("_m2")])
