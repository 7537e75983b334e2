"""What a run will cost, roughly: multiply-adds counted, at the speed of one core.

Good enough to plan a grid by and to weigh its progress; the display corrects the speed as runs finish.
"""

from __future__ import annotations

from functools import cache
from math import inf

from deeppc.training.config import TrainConfig

SPEED = 1.4e10  # multiply-adds per second of one core of a recent CPU, in convolutions of a narrow net
OVERHEAD = 0.5  # seconds of a run besides: loading, building, writing
# (training images, test images, classes, shape of an image)
DATA: dict[str, tuple[int, int, int, tuple[int, int, int]]] = {
    "digits": (1438, 359, 10, (1, 32, 32)),
    "cifar10": (50_000, 10_000, 10, (3, 32, 32)),
    "cifar100": (50_000, 10_000, 100, (3, 32, 32)),
    "tiny-imagenet": (100_000, 10_000, 200, (3, 64, 64)),
}


def seconds(config: TrainConfig) -> float:
    """Of one run on one core, if it takes all its epochs."""
    train, test, _, _ = DATA[config.dataset]
    held = round(config.validation * train) if config.select == "validation" else test
    images = min(config.limit or inf, train - (held if config.select == "validation" else 0))
    forward, step = _multiply_adds(config.dataset, config.model, config.width, config.algorithm, config.T or 0)
    return OVERHEAD + (config.epochs * (images * step + held * forward) + test * forward) / SPEED


@cache
def _multiply_adds(dataset: str, model: str, width: float, algorithm: str, T: int) -> tuple[int, int]:
    """Of a forward pass and of a training step, for one image.

    A node that the wave reaches at step a is predicted and pulled back through in each of the T - a steps that are
    left, and its weights learn once; with ipc they learn in each of these steps, too.
    """
    import torch

    from deeppc.bench.steps import multiply_adds
    from deeppc.models import build

    _, _, classes, shape = DATA[dataset]
    net = build(model, classes=classes, in_shape=shape, width=width)
    counts = multiply_adds(net, torch.zeros(1, *shape))
    forward = sum(counts.values())
    if algorithm.startswith("bp"):
        return forward, 3 * forward
    passes = 3 if algorithm.startswith("ipc") else 2
    steps = T or net.L
    return forward, 2 * forward + sum(passes * max(0, steps - net.arrival[v]) * macs for v, macs in counts.items())
