"""Measure what the loader costs beside one backpropagation step: it should stay under 3 %.

    python benchmarks/loader.py

For each data set's shape: an augmented batch of 128, then one step of AdamW on a plain convolutional net of
VGG5's plan at width 0.5, in turns, so that whatever else the machine does falls on both. Medians of 15 turns
after 3 to warm up. The pixels are random; the work does not depend on them.
"""

import statistics
import time
from itertools import islice

import torch
from torch import nn

from deeppc.bench.timing import in_words, origin
from deeppc.data import Batches, Dataset, Split

BATCH, WARM_UP, TURNS = 128, 3, 15
SETS = (  # name, shape, padding, flip, classes
    ("digits", (1, 32, 32), 2, False, 10),
    ("cifar10", (3, 32, 32), 4, True, 10),
    ("cifar100", (3, 32, 32), 4, True, 100),
    ("tiny-imagenet", (3, 64, 64), 8, True, 200),
)


def made_up(name: str, shape: tuple[int, int, int], padding: int, flip: bool, classes: int) -> Dataset:
    count = BATCH * (WARM_UP + TURNS)
    split = Split(torch.randint(256, (count, *shape), dtype=torch.uint8), torch.randint(classes, (count,)))
    grey = (0.5,) * shape[0]
    names = tuple(str(label) for label in range(classes))
    return Dataset(name, split, split, names, grey, grey, padding, flip, (count, count))


def vgg5(channels: int, side: int, classes: int) -> nn.Module:
    """128M 256M 512M 512vM at width 0.5, then linear."""
    layers: list[nn.Module] = []
    for width, padding in ((64, 1), (128, 1), (256, 1), (256, 0)):
        layers += [nn.Conv2d(channels, width, 3, padding=padding), nn.GELU(approximate="tanh"), nn.MaxPool2d(2)]
        channels = width
    features = nn.Sequential(*layers, nn.Flatten())
    return nn.Sequential(features, nn.Linear(256 * ((side // 8 - 2) // 2) ** 2, classes))


def measure(dataset: Dataset) -> tuple[float, float]:
    """Median seconds of an augmented batch, and of a step."""
    channels, side, _ = dataset.in_shape
    net = vgg5(channels, side, len(dataset.classes)).to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(net.parameters())
    loading, stepping = [], []
    batches = Batches(dataset.train, dataset, BATCH).epoch(0)
    for _ in range(WARM_UP + TURNS):
        start = time.perf_counter()
        ((images, labels),) = islice(batches, 1)
        loaded = time.perf_counter()
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimiser.step()
        loading.append(loaded - start)
        stepping.append(time.perf_counter() - loaded)
    return statistics.median(loading[WARM_UP:]), statistics.median(stepping[WARM_UP:])


def main() -> None:
    print("| data set | batch | BP step | share |\n|---|---|---|---|")
    for row in SETS:
        loading, stepping = measure(made_up(*row))
        times = f"{1e3 * loading:.2f} ms | {1e3 * stepping:.1f} ms | {loading / stepping:.2%}"
        print(f"| {row[0]} | {times} |", flush=True)
    print(f"\n{in_words(origin())}")


if __name__ == "__main__":
    main()
