"""Which BatchNorm breaks PC+S+F? By what it normalises, and when its running statistics move.

    nice python benchmarks/batchnorm.py [--data-dir data]

A norm layer in training may normalise by the batch's own statistics, as torch's does, or by its running ones, which
the batch has moved first, as in JAX's Equinox. And these may move once for each batch (BatchNorm freezing) or in every
prediction. In the last case a prediction changes although no activity has, so that every layer has an error that nobody
sent: *stray energy*, here that of all hidden nodes before the first step, relative to the output's.

deeppc never predicts again what has not moved, so this is a plain engine of its own: a chain, activities as they are,
every node predicted at every step. VGG10 of width 0.25 with ReLU, 10,000 images of CIFAR-10 without augmentation, two
epochs in batches of 64, AdamW (``lr_w`` 0.00093), ``lr_x`` 0.85, ``alpha`` 0.001, ``T = L``; 2,000 held-out images,
normalised by the running statistics. One seed, one thread.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from deeppc import Graph
from deeppc.bench.timing import in_words, origin
from deeppc.data import load
from deeppc.models import build
from deeppc.report.tables import Table

LR_X, ALPHA, LR_W = 0.85, 0.001, 0.00093
IMAGES, HELD, BATCH, EPOCHS = 10_000, 2_000, 64, 2
TORCH, EQUINOX = 0.1, 0.01  # how far a batch moves the running statistics by default


class Norm(nn.Module):
    """BatchNorm that normalises by ``running`` statistics or the batch's; these move while ``moves`` is set."""

    def __init__(self, channels: int, running: bool) -> None:
        super().__init__()
        self.running, self.moves, self.fresh = running, True, True
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.moves:
            share = 1.0 if self.fresh else EQUINOX if self.running else TORCH
            self.mean.lerp_(x.detach().mean((0, 2, 3)), share)
            self.var.lerp_(x.detach().var((0, 2, 3)), share)
            self.fresh = False
        if self.training and not self.running:
            return functional.batch_norm(x, None, None, self.weight, self.bias, training=True)
        return functional.batch_norm(x, self.mean, self.var, self.weight, self.bias)


def with_norms(net: Graph, running: bool) -> list[Norm]:
    """Put :class:`Norm` in place of every BatchNorm, and return them."""
    found = []
    for module in list(net.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                found.append(Norm(child.num_features, running))
                setattr(module, name, found[-1])
    return found


def spiking(t: int, arrival: int) -> float:
    return 1.0 if t == arrival else ALPHA


def gradients(net: Graph, norms: list[Norm], images: Tensor, target: Tensor, freeze: bool) -> float:
    """Fill ``.grad`` by PC+S+F (T = L), and return the stray energy."""
    nodes, arrivals, stray = list(net.nodes.values()), [net.arrival[v] for v in net.nodes], 0.0
    with torch.no_grad():
        mu0, x = [], images
        for f in nodes:
            x = f(x)
            mu0.append(x)
    xs = [*mu0[:-1], target]
    for norm in norms:
        norm.moves = not freeze
    for t in range(net.L):
        xs = [x.detach().requires_grad_() for x in xs]
        energies = [(x - f(p)).square().sum() / 2 for x, f, p in zip(xs, nodes, [images, *xs[:-1]], strict=True)]
        if t == 0:
            *hidden, out = (float(energy.detach()) for energy in energies)
            stray = sum(hidden) / out
        energy = torch.stack([spiking(t, a) * e for a, e in zip(arrivals, energies, strict=True)]).sum()
        forces = torch.autograd.grad(energy, xs[:-1])
        xs[:-1] = [x.detach() - LR_X * force for x, force in zip(xs, forces, strict=False)]
    for x, before, f, p in zip(xs, mu0, nodes, [images, *mu0[:-1]], strict=True):
        (-((x - before).detach() * f(p)).sum() / len(images)).backward()
    for norm in norms:
        norm.moves = True
    return stray


def accuracy(net: Graph, images: Tensor, labels: Tensor) -> float:
    net.eval()
    with torch.no_grad():
        answers = torch.cat([net(x).argmax(1) for x in images.split(500)])
    net.train()
    return 100 * float((answers == labels).float().mean())


def trained(running: bool, freeze: bool, data_dir: Path) -> list[str]:
    """Train; return the mean stray energy, and the accuracy on held-out images after each epoch."""
    torch.manual_seed(0)
    data = load("cifar10", data_dir)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))
    images = ((data.train.images[: IMAGES + HELD] / 255 - mean) / std).to(memory_format=torch.channels_last)
    labels = data.train.labels[: IMAGES + HELD]
    net = build("vgg10", width=0.25, norm="bf", activation="relu").to(memory_format=torch.channels_last)
    norms = with_norms(net, running)
    optimizer, strays, found = torch.optim.AdamW(net.parameters(), lr=LR_W, weight_decay=1e-4), [], []
    for _ in range(EPOCHS):
        for i in torch.randperm(IMAGES).split(BATCH):
            optimizer.zero_grad()
            strays.append(gradients(net, norms, images[i], functional.one_hot(labels[i], 10).float(), freeze))
            optimizer.step()
        found.append(f"{accuracy(net, images[IMAGES:], labels[IMAGES:]):.1f}")
        print(running, freeze, found, file=sys.stderr, flush=True)
    return [f"{sum(strays) / len(strays):.2g}", *found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        [
            "its running statistics" if running else "the batch's statistics",
            "once for each batch" if freeze else "in every prediction",
            *trained(running, freeze, given.data_dir),
        ]
        for running in (False, True)
        for freeze in (True, False)
    ]
    names = ["normalised by", "running statistics move", "stray energy", *(f"epoch {i + 1}, %" for i in range(EPOCHS))]
    print(Table(names, rows).markdown())
    print(in_words(origin()))


if __name__ == "__main__":
    main()
