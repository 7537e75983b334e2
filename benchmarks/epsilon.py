"""How much of each layer's steps does AdamW's epsilon leave? By algorithm, after the first epoch.

    nice python benchmarks/epsilon.py [--data-dir data]

VGG10's trainings of ``deeppc paper run control schedules --scale workstation``, seed 0, stopped after their first epoch
of 20,000 images of CIFAR-10: what ``deeppc.diagnostics.epsilon`` reads off the optimiser. One thread.
"""

import argparse
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch

from deeppc import fit
from deeppc.bench.timing import in_words, origin
from deeppc.paper.run import plan
from deeppc.report.tables import Table
from deeppc.training.builder import PASSED_ON, build
from deeppc.training.config import TrainConfig, replace
from deeppc.training.events import EpochDone, Event, StopRun

CELLS = {
    "schedules": (
        "BP VGG10 BF",
        "PC VGG10 BF",
        "PC+F VGG10 BF",
        "PC+L+F VGG10 BF",
        "PC+D+F VGG10 BF",
        "PC+S+F VGG10 BF",
    ),
    "control": ("PC+S+F, gain VGG10",),
}


def after_an_epoch(config: TrainConfig) -> dict[str, float]:
    """Train for an epoch; return what epsilon leaves of each layer's steps."""
    parts, found = build(config), {}

    def look(event: Event) -> None:
        if isinstance(event, EpochDone):
            found.update(event.metrics["left_by_epsilon"])
            raise StopRun

    weights = partial(torch.optim.AdamW, lr=config.lr_w, weight_decay=config.weight_decay, eps=config.epsilon)
    given = {name: getattr(config, name) for name in PASSED_ON}
    with suppress(StopRun):
        fit(parts.net, parts.dataset, parts.algorithm, optimizer=weights, callbacks=[look], show=False, **given)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, dict[str, float]] = {}
    for recipe, names in CELLS.items():
        for name in names:
            (cell,) = (x for x in plan(recipe, "workstation", Path("nothing")).cells if str(x) == f"cifar10 {name}")
            rows[cell.row] = after_an_epoch(replace(cell.config, data_dir=given.data_dir, diagnostics=True))
            print(cell.row, rows[cell.row], file=sys.stderr, flush=True)
    nodes = list(next(iter(rows.values())))
    print(
        Table(["", *nodes], [[row, *(f"{100 * left[v]:.1f}" for v in nodes)] for row, left in rows.items()]).markdown()
    )
    print(in_words(origin()))


if __name__ == "__main__":
    main()
