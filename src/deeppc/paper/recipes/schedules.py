"""The tables of precision schedules: fixed, linear, exponential and spiking, each with the forward update.

Grid: {BP, PC, PC+D, PC+S, PC+F (fixed), PC+L+F, PC+D+F, PC+S+F} x {VGG5, VGG7, VGG10} x {plain, BF} x {CIFAR-10,
CIFAR-100}. The main text's table is the column VGG10 of the four with F. At paper scale 480 runs, of 50 epochs at most.
"""

from __future__ import annotations

from deeppc.paper.recipe import accuracy_recipe

RECIPE = accuracy_recipe(
    name="schedules",
    shows="Precision schedules: fixed, linear, exponential, spiking",
    paper=("Table of precision schedules", "Appendix table comparing precision"),
    expect="In the paper, with F in a VGG10: fixed 87.3, linear 88.4, exponential 89.4, spiking 92.1 %.",
    datasets={"cifar10": ("top1",), "cifar100": ("top1", "top5")},
    rows=("BP", "PC", "PC+D", "PC+S", "PC+F", "PC+L+F", "PC+D+F", "PC+S+F"),
    nets=("VGG5", "VGG7", "VGG10"),
    variants={"": {"norm": "none"}, "BF": {"norm": "bf"}},
    title="Test accuracy by schedule",
    figure="Precision schedules",
)
