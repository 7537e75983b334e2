"""Work that is counted, so that no machine and no load enters: multiply-adds, in training steps of backprop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deeppc.report.tables import number
from deeppc.training.config import TrainConfig

SHAPES = {"digits": ((1, 32, 32), 10), "cifar100": ((3, 32, 32), 100), "tiny-imagenet": ((3, 64, 64), 200)}


def relative_cost(config: TrainConfig) -> float:
    """Return the multiply-adds of a training step relative to a backprop step on the same network."""
    import torch

    from deeppc.core.algorithms import Algorithm
    from deeppc.diagnostics.work import multiply_adds, step_cost
    from deeppc.models import build

    shape, classes = SHAPES.get(config.dataset, ((3, 32, 32), 10))
    # With the norms, for which a node may be predicted once more.
    net = build(config.model, classes, shape, config.width, config.activation, config.norm, config.aux)
    images, labels = torch.zeros(2, *shape), torch.zeros(2, dtype=torch.long)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    macs = multiply_adds(net, images[:1])
    steps = [Algorithm.parse("bp"), config.algorithm_object()]
    backprop, ours = (step_cost(step.step(net, images, labels, optimizer).work, macs) for step in steps)
    return ours / backprop


def held_out(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return (epoch, accuracy on the images that select the epoch) of a run."""
    return [
        (float(line["epoch"]), number(line.get("test_accuracy", line.get("validation_accuracy")))) for line in metrics
    ]
