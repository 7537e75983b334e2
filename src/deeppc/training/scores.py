"""How well it goes: the running sums of an epoch, and the accuracy on a split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from deeppc.core.graph import Graph
from deeppc.data import Batches


@dataclass(frozen=True)
class Score:
    """Fractions of all the images of a split whose label is the first, or among the first five, of the answers."""

    top1: float
    top5: float


@dataclass
class Sums:
    """Running sums of an epoch, on the device: nothing waits for them until someone looks."""

    nodes: tuple[str, ...]
    images: Tensor  # int64 ()
    correct: Tensor  # int64 ()
    energy: Tensor  # (nodes,), sum over batches of the mean energy of each node
    batches: Tensor  # int64 ()

    @classmethod
    def zero(cls, nodes: tuple[str, ...], device: torch.device) -> Sums:
        wide = torch.float32 if device.type == "mps" else torch.float64
        zero = torch.zeros((), dtype=torch.int64, device=device)
        return cls(nodes, zero, zero.clone(), torch.zeros(len(nodes), dtype=wide, device=device), zero.clone())

    def add(self, logits: Tensor, labels: Tensor, energy: Tensor) -> None:
        self.images += len(labels)
        self.correct += (logits.argmax(dim=1) == labels).sum()
        self.energy += energy
        self.batches += 1

    def accuracy(self) -> float:
        return self.correct.item() / max(1, self.images.item())

    def energies(self) -> dict[str, float]:
        """Mean over the batches so far, by node."""
        return dict(zip(self.nodes, (self.energy / self.batches.clamp(min=1)).tolist(), strict=True))

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in _SUMMED}

    def put(self, tensors: dict[str, Tensor]) -> None:
        for name in _SUMMED:
            getattr(self, name).copy_(tensors[name])


_SUMMED = ("images", "correct", "energy", "batches")


def evaluate(net: Graph, batches: Batches, between: Callable[[], None] = lambda: None) -> Score:
    """Top-1 and top-5 accuracy over all the batches, the last smaller one included."""
    correct1, correct5, images = 0, 0, 0
    net.eval()
    try:
        with torch.no_grad():
            for inputs, labels in batches.epoch(0):
                between()
                logits = net(inputs)
                first = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels.unsqueeze(1)
                correct1 += int(first[:, 0].sum())
                correct5 += int(first.any(dim=1).sum())
                images += len(labels)
    finally:
        net.train()
    return Score(correct1 / images, correct5 / images)
