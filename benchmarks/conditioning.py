"""How well is plain predictive coding determined at depth? Another last digit in the pixels, and the gradient turns.

    nice python benchmarks/conditioning.py

A ResNet of 66 levels (width 0.0625, BatchNorm freezing, ReLU, untrained), 8 random images, plain pc with the gain: the
lowest cosine of a layer's gradient, of float64 with float64 after the pixels have changed by 1e-8 of themselves, and of
float32 with float64.
"""

import copy

import torch

from deeppc import Algorithm, Graph
from deeppc.models import build


def gradients(algorithm: Algorithm, net: Graph, images: torch.Tensor, labels: torch.Tensor) -> list[torch.Tensor]:
    copied = copy.deepcopy(net).to(images.dtype)
    algorithm.gradients(copied, images, labels)
    return [p.grad.double().flatten() for p in copied.parameters() if p.dim() > 1 and p.grad is not None]


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = build("resnet66", width=0.0625, norm="bf", activation="relu")
    images, labels = torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
    exact = images.double()
    nearby = exact * (1 + 1e-8 * torch.randn(images.shape, generator=torch.Generator().manual_seed(1)).double())
    for lr_x in (0.05, 0.2):
        algorithm = Algorithm.parse("pc", lr_x=lr_x, depth_gain=True)
        expected = gradients(algorithm, net, exact, labels)
        for what, given in {"float64, other pixels": nearby, "float32": images}.items():
            found = zip(gradients(algorithm, net, given, labels), expected, strict=True)
            print(f"lr_x {lr_x}: {what}: {min(float(torch.cosine_similarity(a, b, dim=0)) for a, b in found):.4f}")


if __name__ == "__main__":
    main()
