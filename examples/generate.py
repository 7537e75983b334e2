"""Generate digits of a class: python examples/generate.py

The label is the input, a latent node holds what the label does not say (slant, thickness). In training both ends are
clamped; to generate, only the label is, and the latents are drawn from their prior by Langevin dynamics.
"""

import sys
from pathlib import Path

import torch
from generative import digits, picture, train
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn
from torch.nn.functional import one_hot

import deeppc


class Both(nn.Module):
    """Predict from the label and the latents."""

    def __init__(self, latents: int, hidden: int) -> None:
        super().__init__()
        self.label, self.latents = nn.Linear(10, hidden), nn.Linear(latents, hidden)

    def forward(self, label: Tensor, z: Tensor) -> Tensor:
        return torch.tanh(self.label(label) + self.latents(z))


def main(folder: Path, epochs: int = 40) -> float:
    """Return the share of generated digits that a classifier of real digits takes for what they should be."""
    images, labels, _, _ = digits()
    torch.manual_seed(0)
    nodes = {"z": (deeppc.Latent(6), "input"), "h": (Both(6, 96), ["input", "z"]), "image": (nn.Linear(96, 64), "h")}
    net = deeppc.Graph(nodes)
    train(net, one_hot(labels, 10).float(), images, epochs)

    wanted = torch.arange(10).repeat_interleave(12)
    found = deeppc.infer(net, {"input": one_hot(wanted, 10).float()}, noise=0.1, steps=200, lr_x=0.1)
    drawn = net.nodes["image"](net.nodes["h"](one_hot(wanted, 10).float(), found.activities["z"])).detach()
    judge = KNeighborsClassifier(5).fit(images, labels)
    right = float((torch.tensor(judge.predict(drawn)) == wanted).float().mean())
    lines = {str(digit): drawn[12 * digit : 12 * digit + 12] for digit in range(10)}
    picture(folder / "generate.png", lines, "Digits generated from their label")
    print(f"{right:.1%} of {len(wanted)} generated digits are taken for their class by 5 nearest neighbours")
    return right


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
