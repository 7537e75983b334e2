"""Table 2 and the appendix's table on Tiny ImageNet: fifteen layers, with and without BatchNorm freezing.

Grid: {BP, PC, PC+D, PC+S, PC+D+F, PC+S+F, iPC+S} x {VGG15 plain, with BF (BP: with plain BatchNorm)}. At paper scale 70
runs on Tiny ImageNet, of 50 epochs at most. At smaller scales CIFAR-10 stands in, so that only the order compares.
"""

from __future__ import annotations

from deeppc.paper.recipe import accuracy_recipe

RECIPE = accuracy_recipe(
    name="vgg15",
    shows="Fifteen layers, with and without BatchNorm freezing",
    paper=("Table 2", "Appendix table on Tiny ImageNet"),
    expect="In the paper BF lifts PC+S+F to BP's level, iPC+S is best without it, and the others are lost.",
    datasets={"tiny-imagenet": ("top1", "top5")},
    rows=("BP", "PC", "PC+D", "PC+S", "PC+D+F", "PC+S+F", "iPC+S"),
    nets=("VGG15",),
    variants={"": {"norm": "none"}, "BF": {"norm": "bf"}},
    title="Test accuracy",
    figure="VGG15",
)
