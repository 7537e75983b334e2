"""Where do the updates of predictive coding leave backprop's? By rate, by number of steps, and by algorithm.

    nice python benchmarks/directions.py [--data-dir data]

A VGG10 of width 0.25 with BatchNorm freezing and ReLU, untrained, and after 500 batches of 64 images of CIFAR-10 by
backprop (AdamW, ``lr_w`` 0.001). The gradient of each layer on one batch more, in float32 with the gain, beside
backprop's on the same: the lowest and the mean cosine. L is the number of levels. The *curvature* is the largest of the
energy, and ``lr_x`` times it is below 2 where inference settles. One thread.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from deeppc import Algorithm, Graph
from deeppc.bench.timing import in_words, origin
from deeppc.data import load
from deeppc.diagnostics.stability import stability
from deeppc.diagnostics.updates import compare_with_backprop
from deeppc.models import build
from deeppc.report.tables import Table

RATES, TURNS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5), (1, 2, 4)  # T in levels
SPIKES: dict[str, dict[str, Any]] = {"alpha 0.01": {"alpha": 0.01}, "alpha 0.1": {"alpha": 0.1}}
BATCHES, BATCH = 500, 64


def rows(levels: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Algorithm, number of steps in words, settings."""
    for spec in ("pc", "pc+f"):
        for n in TURNS:
            yield spec, f"T = {n if n > 1 else ''}L", {"T": n * levels}
    for words, settings in SPIKES.items():
        yield "pc+s+f", words, settings
        yield "pc+s", words, settings


def cosines(net: Graph, images: torch.Tensor, labels: torch.Tensor) -> Iterator[list[str]]:
    """One cell for each row and rate: lowest and mean, and where the lowest is."""
    for spec, _, settings in rows(net.L):
        found = []
        for lr in RATES:
            algorithm = Algorithm.parse(spec, lr_x=lr, depth_gain=True, **settings)
            compared = {v: x.cosine for v, x in compare_with_backprop(algorithm, net, images, labels).items()}
            lowest = min(compared, key=lambda v: compared[v])
            found.append(f"{compared[lowest]:.3f}, {fmean(compared.values()):.3f} ({lowest})")
        print(spec, settings, *found, file=sys.stderr, flush=True)
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = load("cifar10", given.data_dir)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))
    net = build("vgg10", width=0.25, norm="bf", activation="relu")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    order = torch.randperm(len(data.train)).split(BATCH)
    last = order[BATCHES]
    images, labels = (data.train.images[last] / 255 - mean) / std, data.train.labels[last]
    for when in ("untrained", f"after {BATCHES} batches"):
        curvature = stability(Algorithm.parse("pc"), net, images).curvature
        words = [[f"`{spec}`", steps] for spec, steps, _ in rows(net.L)]
        lines = [before + found for before, found in zip(words, cosines(net, images, labels), strict=True)]
        print(f"VGG10, {when}: largest curvature {curvature:.0f}, which an `lr_x` below {2 / curvature:.2f} bears.")
        print()
        print(Table(["", "", *(f"`lr_x` {lr:g}" for lr in RATES)], lines).markdown())
        if when == "untrained":
            for i in order[:BATCHES]:
                x = (data.train.images[i] / 255 - mean) / std
                Algorithm.parse("bp").step(net, x, data.train.labels[i], optimizer)
    print(in_words(origin()))


if __name__ == "__main__":
    main()
