"""Figure on residual connections (b): what happens to a ResNet without auxiliary nodes?

Grid: {iPC+S, PC+S+F} x {ResNet10, ResNet18} x {with, without auxiliary nodes} on CIFAR-10. At paper scale 40 runs, of
50 epochs at most. The paper's bars have no numbers; its text gives 64 % as the most that a ResNet18 reaches without.
"""

from __future__ import annotations

from deeppc.paper.recipe import accuracy_recipe

RECIPE = accuracy_recipe(
    name="auxiliary",
    shows="ResNets with and without auxiliary nodes on their skip paths",
    paper=("Figure: residual connections (b)",),
    expect="In the paper ResNet18 reaches almost 92 % with auxiliary nodes and at most 64 % without.",
    datasets={"cifar10": ("top1",)},
    rows=("iPC+S", "PC+S+F"),
    nets=("ResNet10", "ResNet18"),
    variants={"": {}, "without": {"aux": False}},
    title="Test accuracy with and without auxiliary nodes",
    figure="Auxiliary nodes on skip paths",
    by="row",
)
