"""The appendix's table without BF: what do spiking precision (S) and the forward update (F) do, alone and together?

Grid: {BP, PC, iPC, PC+S, PC+F, iPC+S, PC+S+F} x {VGG5, VGG7, VGG10, ResNet10, ResNet18} x {CIFAR-10, CIFAR-100},
without normalisation (at the scale of a workstation with BF). At paper scale 350 runs, of 50 epochs at most; those of
`accuracy` without BF are among them.
"""

from __future__ import annotations

from deeppc.paper.recipe import accuracy_recipe

RECIPE = accuracy_recipe(
    name="ablation",
    shows="Spiking precision and forward update, alone and together",
    paper=("Appendix table without BF",),
    expect="In the paper F alone saves the VGGs, S alone keeps ResNets alive, PC needs both to reach BP, iPC only S.",
    datasets={"cifar10": ("top1",), "cifar100": ("top1", "top5")},
    rows=("BP", "PC", "iPC", "PC+S", "PC+F", "iPC+S", "PC+S+F"),
    nets=("VGG5", "VGG7", "VGG10", "ResNet10", "ResNet18"),
    variants={"": {}},
    title="Test accuracy (the paper's: without BF)",
    figure="S and F, alone and together",
)
