"""How well it goes: the metric that fits the targets, the running sums of an epoch, and the scores on a split."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from deeppc.core.graph import Graph
from deeppc.diagnostics.contexts import evaluating
from deeppc.errors import ConfigError, nearest
from deeppc.training.sources import Source


@dataclass(frozen=True)
class Metric:
    """A mean over samples. ``name`` selects the epoch; evaluations report all of ``names``.

    ``totals(outputs, targets)`` are their sums over a batch, of which the first is that of ``name``;
    ``running`` is the first alone, for training batches.
    """

    names: tuple[str, ...]
    higher_is_better: bool
    running: Callable[[Tensor, Tensor], Tensor]
    totals: Callable[[Tensor, Tensor], list[Tensor]]

    @property
    def name(self) -> str:
        return self.names[0]

    def better(self, value: float, than: float | None) -> bool:
        return than is None or math.isnan(than) or (value > than if self.higher_is_better else value < than)

    def text(self, value: float) -> str:
        """``97.3 %`` for an accuracy, or else ``mse 0.1234``."""
        return f"{100 * value:.1f} %" if self.name == "accuracy" else f"{self.name} {value:.4g}"


def _correct(outputs: Tensor, labels: Tensor) -> Tensor:
    return (outputs.argmax(dim=1) == labels).sum()


def _correct_and_top5(outputs: Tensor, labels: Tensor) -> list[Tensor]:
    first = outputs.topk(min(5, outputs.shape[1]), dim=1).indices == labels.unsqueeze(1)
    return [first[:, 0].sum(), first.any(dim=1).sum()]


def _correct_and_cross_entropy(outputs: Tensor, targets: Tensor) -> list[Tensor]:
    return [_correct(outputs, targets.argmax(dim=1)), -(targets * log_softmax(outputs.float(), dim=1)).sum()]


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.float().reshape(targets.shape) - targets).square().flatten(1).mean(dim=1).sum()


METRICS = {
    "classes": Metric(("accuracy", "top5"), True, _correct, _correct_and_top5),
    "soft labels": Metric(
        ("accuracy", "cross_entropy"),
        True,
        lambda outputs, targets: _correct(outputs, targets.argmax(dim=1)),
        _correct_and_cross_entropy,
    ),
    "values": Metric(("mse",), False, _squared_error, lambda outputs, targets: [_squared_error(outputs, targets)]),
}
ACCURACY = METRICS["classes"]
_FEW = Metric(("accuracy",), True, _correct, lambda outputs, labels: [_correct(outputs, labels)])  # no top 5 of 5


def metric_for(targets: Tensor, kind: str = "auto", outputs: int = 10) -> Metric:
    """Return the metric that fits: accuracy for class indices and for distributions over classes, or else the MSE.

    ``kind`` may say instead what targets are: ``classes``, ``soft labels`` or ``values``. ``outputs`` is how many
    numbers the network answers with: the correct class is among the best five of six, or more.
    """
    if kind in METRICS:
        if targets.is_floating_point() == (kind == "classes") or (kind == "soft labels" and targets.dim() != 2):
            shape = f"{targets.dtype} of the shape {tuple(targets.shape)}"
            raise ConfigError(f"targets are called {kind!r}, but are {shape}: leave it out, or name what they are.")
        return _FEW if kind == "classes" and outputs < 6 else METRICS[kind]
    if kind != "auto":
        raise ConfigError(f"unknown kind of targets {kind!r}: {nearest(str(kind), ['auto', *METRICS])}")
    if not targets.is_floating_point():
        return _FEW if outputs < 6 else METRICS["classes"]
    distribution = (
        targets.dim() == 2
        and targets.shape[1] > 1
        and bool((targets >= 0).all())
        and bool(((targets.sum(1) - 1).abs() < 1e-4).all())
    )
    return METRICS["soft labels" if distribution else "values"]


def responding(metric: Metric, respond: Callable[[Tensor], Tensor]) -> Metric:
    """Return the metric of ``respond(outputs)``: of probabilities, say, where outputs are logits."""
    return replace(
        metric,
        running=lambda outputs, targets: metric.running(respond(outputs), targets),
        totals=lambda outputs, targets: metric.totals(respond(outputs), targets),
    )


class Sums:
    """Running sums of an epoch, on the device: nothing waits for them until they are read.

    ``tensors``: ``score`` is the metric's sum over ``samples``, ``energy`` (nodes,) the sum over ``batches`` of each
    node's mean energy.
    """

    def __init__(self, nodes: tuple[str, ...], metric: Metric, device: torch.device) -> None:
        self.nodes, self.metric = nodes, metric
        wide = torch.float32 if device.type == "mps" else torch.float64
        self.tensors = {
            "samples": torch.zeros((), dtype=torch.int64, device=device),
            "score": torch.zeros((), dtype=wide, device=device),
            "energy": torch.zeros(len(nodes), dtype=wide, device=device),
            "batches": torch.zeros((), dtype=torch.int64, device=device),
        }

    def add(
        self,
        outputs: Tensor,
        targets: Tensor,
        energy: Mapping[str, Tensor],
        total: Callable[[Tensor], Tensor] = lambda part: part,
    ) -> Tensor:
        """Take in a batch, or a part of it that ``total`` adds to the others'. Returns its energies, (nodes,)."""
        like = self.tensors["energy"]
        score = self.metric.running(outputs, targets).to(like)
        batch = total(torch.stack([*(energy[v].to(like) for v in self.nodes), score, like.new_full((), len(targets))]))
        self.tensors["samples"] += batch[-1].to(torch.int64)
        self.tensors["score"] += batch[-2]
        self.tensors["energy"] += batch[:-2]
        self.tensors["batches"] += 1
        return batch[:-2]

    def value(self) -> float:
        """Return the metric over the samples so far."""
        return self.tensors["score"].item() / max(1, int(self.tensors["samples"].item()))

    def energy(self) -> Tensor:
        """Return the mean over the batches so far, (nodes,)."""
        return self.tensors["energy"] / self.tensors["batches"].clamp(min=1)

    def energies(self) -> dict[str, float]:
        return dict(zip(self.nodes, self.energy().tolist(), strict=True))

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, value in self.tensors.items():
            value.copy_(tensors[name])


def evaluate(
    net: Graph,
    batches: Source,
    metric: Metric = ACCURACY,
    between: Callable[[], None] = lambda: None,
    total: Callable[[Tensor], Tensor] = lambda part: part,
) -> dict[str, float]:
    """Return the metric's values over all the batches, the last smaller one included.

    ``total`` adds the sums of other workers to those of ours, where each has a part of every batch.
    """
    totals, samples = [0.0] * len(metric.names), 0
    with evaluating(net):
        for inputs, targets in batches.epoch(0):
            between()
            if not len(targets):
                continue
            for i, value in enumerate(metric.totals(net(inputs), targets)):
                totals[i] += value.item()
            samples += len(targets)
    *sums, count = total(torch.tensor([*totals, samples], dtype=torch.float64)).tolist()
    return {name: value / count for name, value in zip(metric.names, sums, strict=True)}
