"""What the four examples share: digits, a network that generates them, its training without labels, and a picture.

A generative network runs the other way round: a latent node ``z`` on top predicts ``h``, which predicts the image. The
node "input" holds nothing but a row for each image; what z is, inference finds out.
"""

from pathlib import Path

import matplotlib
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import deeppc

matplotlib.use("Agg")
from matplotlib import pyplot as plt

SCALE = 4.0  # pixels from 0 to 4: errors of a pixel are then of the order of 1, as a Gaussian with precision 1 expects


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return images (N, 64) and labels to train on, 1,500 of them, and 297 to test on."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).flatten(1) / 16 * SCALE
    labels = torch.tensor(data.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    train, test = order[:1500], order[1500:]
    return images[train], labels[train], images[test], labels[test]


def generator(latents: int = 24, hidden: int = 96) -> deeppc.Graph:
    """Return a network from latents to images of 64 pixels."""
    torch.manual_seed(0)
    return deeppc.Graph(
        {
            "z": (deeppc.Latent(latents), "input"),
            "h": (nn.Sequential(nn.Linear(latents, hidden), nn.Tanh()), "z"),
            "image": (nn.Linear(hidden, 64), "h"),
        }
    )


def rows(images: Tensor) -> Tensor:
    """Return what the node "input" holds: nothing, for as many samples."""
    return torch.zeros(len(images), 1)


def train(net: deeppc.Graph, inputs: Tensor, images: Tensor, epochs: int) -> None:
    """Learn to generate ``images``: they are the targets, and inference finds the latents of each."""
    deeppc.fit(
        net,
        {"train": (inputs, images)},
        deeppc.Algorithm.parse("pc", T=15, lr_x=0.05, momentum_x=0.5),
        optimizer=lambda weights: torch.optim.AdamW(weights, lr=2e-3, weight_decay=0.1),
        epochs=epochs,
        batch_size=100,
        select="last",
        show=False,
    )


def picture(path: Path, lines: dict[str, Tensor], title: str) -> None:
    """Draw rows of images, each with its name."""
    columns = max(len(images) for images in lines.values())
    height = 0.66 * len(lines) + 0.5
    figure, axes = plt.subplots(len(lines), columns, figsize=(0.62 * columns + 1.4, height))
    figure.subplots_adjust(top=1 - 0.4 / height)  # room for the title, however many rows there are
    for row, (name, images) in zip(axes.reshape(len(lines), -1), lines.items(), strict=True):
        for axis in row:
            axis.axis("off")
        for axis, image in zip(row, images, strict=False):
            axis.imshow(image.reshape(8, 8).clamp(0, SCALE).numpy(), cmap="gray_r", vmin=0, vmax=SCALE)
        row[0].text(-0.15, 0.5, name, transform=row[0].transAxes, ha="right", va="center", fontsize=9)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=130, bbox_inches="tight")
    plt.close(figure)
