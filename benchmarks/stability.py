"""Why does plain predictive coding break down? The largest curvature of its energy, beside what its rate bears.

    nice python benchmarks/stability.py [--data-dir data] [--others]

The first epochs of plain PC's trainings in ``deeppc paper run accuracy --scale workstation``, seed 0: VGG5, VGG7, VGG10
and ResNet10, of which the VGG7 and the ResNet10 break down; and these two at a smaller rate, nothing else changed.
``--others``: these two by backprop, and the ResNet10 by ``hpc``, which measures the curvature of each batch and chooses
its rate by it.

After each 50 batches ``deeppc.diagnostics.stability`` looks at the first batch. Activities settle while the largest
curvature is below the limit; beyond it they overshoot by more at every step. Cosines are those of the worst layer's
update with backprop's, after the epoch.
"""

import argparse
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch

from deeppc import Algorithm, fit
from deeppc.bench.timing import in_words, origin
from deeppc.diagnostics.stability import Stability, stability
from deeppc.paper.run import plan
from deeppc.report.tables import UNKNOWN, Table
from deeppc.training.builder import PASSED_ON, build
from deeppc.training.config import TrainConfig, replace
from deeppc.training.events import BatchDone, EpochDone, Event, StopRun

EVERY = 50  # batches
# Recipe, cell, changes of its settings, epochs.
Row = tuple[str, str, dict[str, Any], int]
PC: list[Row] = [
    ("accuracy", "PC VGG5 BF", {}, 3),
    ("accuracy", "PC VGG7 BF", {}, 4),
    ("accuracy", "PC VGG7 BF", {"lr_x": 0.07, "momentum_x": 0.0}, 4),
    ("accuracy", "PC VGG10 BF", {}, 3),
    ("accuracy", "PC ResNet10 BF", {}, 2),
    ("accuracy", "PC ResNet10 BF", {"lr_x": 0.02}, 3),
]
OTHERS: list[Row] = [
    ("accuracy", "BP VGG7 BF", {}, 4),
    ("accuracy", "BP ResNet10 BF", {}, 3),
    ("rivals", "hPC ResNet10", {}, 3),
]


def watch(config: TrainConfig, epochs: int) -> list[list[str]]:
    """Train; return for each epoch the rate, what it bears, and :func:`in_numbers`."""
    parts, rows = build(config), []
    images, _ = next(parts.sources().train.epoch(0))
    seen: list[Stability] = []
    measured = parts.algorithm if parts.algorithm.family == "pc" else Algorithm.parse("pc")  # for the curvature alone

    def look(event: Event) -> None:
        if isinstance(event, BatchDone) and event.batch % EVERY == 0:
            seen.append(stability(measured, parts.net, images))
        elif isinstance(event, EpochDone):
            rate = [f"{x:.2g}" for x in (config.setting("lr_x"), config.setting("momentum_x"))]
            limit = f"{seen[0].limit:.1f}" if measured is parts.algorithm else UNKNOWN
            rows.append([", ".join(rate) if limit != UNKNOWN else UNKNOWN, limit, *in_numbers(event.metrics, seen)])
            seen.clear()
            if len(rows) == epochs:
                raise StopRun

    weights = partial(torch.optim.AdamW, lr=config.lr_w, weight_decay=config.weight_decay, eps=config.epsilon)
    given = {name: getattr(config, name) for name in PASSED_ON}
    with suppress(StopRun):
        fit(parts.net, parts.dataset, parts.algorithm, optimizer=weights, callbacks=[look], show=False, **given)
    return rows


def in_numbers(metrics: Mapping[str, Any], seen: list[Stability]) -> list[str]:
    """An epoch, the range of the curvature in it, accuracy on held-out images and the lowest cosine."""
    curvatures = [found.curvature for found in seen]
    return [
        str(metrics["epoch"]),
        f"{min(curvatures):.0f} to {max(curvatures):.0f}",
        f"{100 * metrics['validation_accuracy']:.1f}",
        f"{min(map(float, metrics['bp_cosine'].values())):.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--others", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for recipe, name, changes, epochs in OTHERS if given.others else PC:
        (cell,) = (x for x in plan(recipe, "workstation", Path("nothing")).cells if str(x) == f"cifar10 {name}")
        config = replace(cell.config, data_dir=given.data_dir, **changes)
        rows += [[name.removeprefix("PC ").removesuffix(" BF"), *found] for found in watch(config, epochs)]
    names = ["network", "`lr_x`, `momentum_x`", "limit", "epoch", "curvature", "held out, %", "lowest cosine"]
    print(Table(names, rows).markdown())
    print(in_words(origin()))


if __name__ == "__main__":
    main()
