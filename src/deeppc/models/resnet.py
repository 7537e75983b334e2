"""ResNets: pre-activation blocks, with or without the auxiliary nodes that slow energy on the skip paths.

Every convolution is preceded by its norm and activation (norm -> act -> conv, He et al. 2016b) and has no bias. The
stem is a bare 3x3 convolution. A shortcut is a bare 1x1 convolution on the block's input where the shape changes,
the identity elsewhere. The head, (norm ->) act -> global mean -> linear, is one node: the output.

With auxiliary nodes a block whose input is the sum ``s`` of its parents is

    m1 = conv1(act(s))     m2 = conv2(act(m1))      the main path
    a1 = shortcut(s)       a2 = a1                  beside it, as long

and the next block's parents are ``m2`` and ``a2``: each edge joins neighbouring levels, so that energy comes down both
paths at the same step. Without them it is

    m1 = conv1(act(x))     m2 = conv2(act(m1)) + shortcut(x)

and energy takes the short cut. The feed-forward pass is the same. So are the parameters, made and listed in the same
order: under one seed both start alike, and
``plain.load_state_dict(dict(zip(plain.state_dict(), net.state_dict().values())))`` converts one into the other.

Weights start as torch starts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn

from deeppc.core.graph import INPUT, Graph, Sum
from deeppc.models.layers import DEFAULT, Style, parts
from deeppc.models.registry import model

BLOCKS = {"resnet10": (1, 1, 1, 1), "resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3)}  # by levels
BLOCKS |= {f"resnet{8 * n + 2}": (n, n, n, n) for n in (8, 16, 64)}  # 66, 130 and 514: far deeper than the paper's
STEM_CHANNELS = 64  # those of the first stage too; each stage after it has twice the channels, at half the resolution


def resnet(blocks: Sequence[int], style: Style = DEFAULT, aux: bool = True) -> Graph:
    """Build a ResNet with so many ``blocks`` in each stage: (2, 2, 2, 2) has 18 levels, (3, 4, 6, 3) has 34.

    Nodes: ``stem``, ``s1b1_m1``, ``s1b1_m2`` (and ``s1b1_a1``, ``s1b1_a2``) for stage 1, block 1, ..., ``head``. Images
    of any size fit.
    """
    channels = style.channels(STEM_CHANNELS)
    nodes: dict[str, tuple[nn.Module, Sequence[str]]] = {"stem": (_conv(style.image()[0], channels, 3), [INPUT])}
    tail = ["stem"]  # the nodes whose sum is the next block's input
    for stage, count in enumerate(blocks):
        out = style.channels(STEM_CHANNELS * 2**stage)
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            m1, m2, a1, a2 = (f"s{stage + 1}b{block + 1}_{part}" for part in ("m1", "m2", "a1", "a2"))
            first = parts(norm=style.normalise(channels), act=style.act(), conv=_conv(channels, out, 3, stride))
            second = parts(norm=style.normalise(out), act=style.act(), conv=_conv(out, out, 3))
            shortcut = _projection(channels, out, stride) if stride > 1 or channels != out else None
            nodes[m1] = (Sum(first), tail)
            if aux:
                nodes[m2] = (nn.Sequential(second), [m1])
                nodes[a1] = (Sum(parts(shortcut=shortcut)), tail)
                nodes[a2] = (nn.Identity(), [a1])
                tail = [m2, a2]
            else:
                nodes[m2] = (Residual(nn.Sequential(second), shortcut or nn.Identity()), [m1, *tail])
                tail = [m2]
            channels = out
    mean = parts(norm=style.normalise(channels), act=style.act(), pool=nn.AdaptiveAvgPool2d(1), flatten=nn.Flatten())
    nodes["head"] = (Sum(mean | parts(linear=nn.Linear(channels, style.classes))), tail)
    return Graph(nodes)


class Residual(nn.Module):
    """``main(m) + shortcut(x)``: the end of a block without auxiliary nodes."""

    def __init__(self, main: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.main = main
        self.shortcut = shortcut

    def forward(self, m: Tensor, x: Tensor) -> Tensor:
        total: Tensor = self.main(m) + self.shortcut(x)
        return total


def _conv(channels: int, out: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, out, kernel, stride, padding=kernel // 2, bias=False)


def _projection(channels: int, out: int, stride: int) -> nn.Module:
    """A 1x1 convolution that takes every ``stride``-th pixel.

    Of fewer than 8 channels the pixels are taken first: the backward pass of torch 2.13 for the other way writes beyond
    its memory, if the image is channels-last and on an x86 CPU.
    """
    if channels >= 8 or stride == 1:
        return _conv(channels, out, 1, stride)
    return nn.Sequential(nn.MaxPool2d(1, stride), _conv(channels, out, 1))


for _name, _blocks in BLOCKS.items():
    model(_name)(partial(resnet, _blocks))
