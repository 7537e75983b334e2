"""Why does plain predictive coding break down? The largest curvature of its energy, beside what its rate bears.

    nice python benchmarks/stability.py [--data-dir data] [--only ResNet10]

The first epochs of plain PC's trainings in ``deeppc paper run accuracy --scale workstation``, seed 0: VGG5, VGG7, VGG10
and ResNet10, of which the VGG7 and the ResNet10 break down; and these two at a smaller rate, nothing else changed.
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

from deeppc import fit
from deeppc.bench.timing import in_words, origin
from deeppc.diagnostics.stability import Stability, stability
from deeppc.paper.run import plan
from deeppc.report.tables import Table
from deeppc.training.builder import PASSED_ON, build
from deeppc.training.config import TrainConfig, replace
from deeppc.training.events import BatchDone, EpochDone, Event, StopRun

EVERY = 50  # batches
# Network, changes of its settings, epochs.
ROWS: list[tuple[str, dict[str, Any], int]] = [
    ("VGG5", {}, 3),
    ("VGG7", {}, 4),
    ("VGG7", {"lr_x": 0.07, "momentum_x": 0.0}, 4),
    ("VGG10", {}, 3),
    ("ResNet10", {}, 2),
    ("ResNet10", {"lr_x": 0.02}, 3),
]


def watch(config: TrainConfig, epochs: int) -> list[list[str]]:
    """Train; return for each epoch limit, range of the curvature, accuracy on held-out images and lowest cosine."""
    parts, rows = build(config), []
    images, _ = next(parts.sources().train.epoch(0))
    seen: list[Stability] = []

    def look(event: Event) -> None:
        if isinstance(event, BatchDone) and event.batch % EVERY == 0:
            seen.append(stability(parts.algorithm, parts.net, images))
        elif isinstance(event, EpochDone):
            rows.append(in_numbers(event.metrics, seen))
            seen.clear()
            if len(rows) == epochs:
                raise StopRun

    weights = partial(torch.optim.AdamW, lr=config.lr_w, weight_decay=config.weight_decay, eps=config.epsilon)
    given = {name: getattr(config, name) for name in PASSED_ON}
    with suppress(StopRun):
        fit(parts.net, parts.dataset, parts.algorithm, optimizer=weights, callbacks=[look], show=False, **given)
    return rows


def in_numbers(metrics: Mapping[str, Any], seen: list[Stability]) -> list[str]:
    curvatures = [found.curvature for found in seen]
    return [
        f"{seen[0].limit:.1f}",
        str(metrics["epoch"]),
        f"{min(curvatures):.0f} to {max(curvatures):.0f}",
        f"{100 * metrics['validation_accuracy']:.1f}",
        f"{min(map(float, metrics['bp_cosine'].values())):.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--only")
    given = parser.parse_args()
    torch.set_num_threads(1)
    planned = plan("accuracy", "workstation", Path("nothing"))
    cells = {place.column: place for place in planned.cells if (place.table, place.row) == ("cifar10", "PC")}
    rows = []
    for net, changes, epochs in ROWS:
        if given.only in (None, net):
            config = replace(cells[f"{net} BF"].config, data_dir=given.data_dir, **changes)
            rate = f"{config.setting('lr_x'):.2g}, {config.setting('momentum_x'):g}"
            rows += [[net, rate, *found] for found in watch(config, epochs)]
    names = ["network", "`lr_x`, `momentum_x`", "limit", "epoch", "curvature", "held out, %", "lowest cosine"]
    print(Table(names, rows).markdown())
    print(in_words(origin()))


if __name__ == "__main__":
    main()
