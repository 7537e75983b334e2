"""Train a ResNet of hundreds of levels by pc+s+f beside backprop, and compare each layer's update.

    nice python benchmarks/levels.py [--model resnet514] [--steps 200] [--alphas 0,0.0001] [--alpha 0.0005]

First the cosine of each layer's update with backprop's, untrained, by alpha. Then so many updates by each of the two
from the same weights, on the same batches of CIFAR-10: the loss in each quarter. Narrow (width 0.0625), BatchNorm
freezing, ReLU, batches of 16, ``lr_x`` 0.2, the gain, AdamW with ``lr_w`` 0.001, pc+s+f in one stride. One thread.
"""

import argparse
import copy
from pathlib import Path
from statistics import fmean

import torch

from deeppc import Algorithm, Graph
from deeppc.bench.timing import in_words, origin
from deeppc.core import memory
from deeppc.data import load
from deeppc.models import build

RATE = {"lr_x": 0.2, "depth_gain": True}


def cosines(net: Graph, images: torch.Tensor, labels: torch.Tensor, algorithm: Algorithm) -> list[float]:
    """The cosine of the update of every weight tensor of a layer (not of its norms) with backprop's."""
    found = []
    for algo in (Algorithm.parse("bp"), algorithm):
        copied = copy.deepcopy(net)
        algo.gradients(copied, images, labels)
        found.append([p.grad for p in copied.parameters() if p.dim() > 1])
    pairs = zip(*found, strict=True)
    return [float(torch.cosine_similarity(a.flatten(), b.flatten(), dim=0)) for a, b in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet514")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--alphas", default="0,0.0001,0.0005,0.001", help="for the cosines")
    parser.add_argument("--alpha", type=float, default=0.0005, help="for the updates")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    memory.keep()
    data = load("cifar10", given.data_dir)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))
    torch.manual_seed(0)
    net = build(given.model, width=0.0625, norm="bf", activation="relu")
    order = torch.randperm(len(data.train))[: 16 * given.steps].split(16)
    batches = [((data.train.images[i] / 255 - mean) / std, data.train.labels[i]) for i in order]
    print(f"{net.L} levels, {sum(p.numel() for p in net.parameters()):,} parameters. Cosines with backprop's:\n")
    print("| `alpha` | lowest cosine | mean | layers |\n|---|---|---|---|")
    for alpha in map(float, given.alphas.split(",")):
        found = cosines(net, *batches[0], Algorithm.parse("pc+s+f", alpha=alpha, strides=1, **RATE))
        print(f"| {alpha:g} | {min(found):.5f} | {fmean(found):.5f} | {len(found)} |", flush=True)
    print(
        f"\nMean loss in each quarter of {given.steps} updates:\n\n| | 1st | 2nd | 3rd | 4th |\n|---|---|---|---|---|"
    )
    names = {"`bp`": Algorithm.parse("bp")}
    names[f"`pc+s+f`, `alpha` {given.alpha:g}"] = Algorithm.parse("pc+s+f", alpha=given.alpha, strides=1, **RATE)
    for name, algo in names.items():
        copied = copy.deepcopy(net)
        optimizer = torch.optim.AdamW(copied.parameters(), lr=1e-3)
        losses = []
        for images, labels in batches:
            losses.append(float(algo.step(copied, images, labels, optimizer).loss))
        quarters = torch.tensor(losses).chunk(4)
        print(f"| {name} | {' | '.join(f'{float(quarter.mean()):.4f}' for quarter in quarters)} |", flush=True)
    print(f"\n{in_words(origin())}")


if __name__ == "__main__":
    main()
