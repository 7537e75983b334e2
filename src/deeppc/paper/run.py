"""Plan recipes, train what they lack, and write their results.

plans = [plan("gap", "laptop", Path("paper"))]
run(plans, jobs(plans), processes=2)
"""

from __future__ import annotations

import dataclasses
import fnmatch
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from deeppc.errors import ConfigError
from deeppc.files import Busy, Lock, require_writable
from deeppc.paper import results, store
from deeppc.paper.hyper import LEVELS
from deeppc.paper.recipe import NAMES, Cell, Evidence, Place, Recipe, find
from deeppc.paper.scales import ALL_DATA, NETS, SCALES, Scale, scale_for
from deeppc.paper.store import Record, Store
from deeppc.report.tables import Table
from deeppc.training import pool
from deeppc.training.config import TrainConfig, replace
from deeppc.training.events import BatchDone, Event, Started

TURN = 120  # seconds to wait for another process that writes the same results
TOLD_EVERY = 50  # batches between two messages on how far a run is


@dataclass(frozen=True)
class Plan:
    """A recipe at a scale: its cells, and where they are kept."""

    recipe: Recipe
    scale: Scale
    cells: tuple[Cell, ...]
    out: Path
    store: Store
    data_dir: Path = Path("data")

    @property
    def folder(self) -> Path:
        """That of the scale, which the claims read; one beside it if anything but more seeds was asked for."""
        usual = scale_for(self.scale.name, self.recipe.name)
        seeds = self.scale.seeds if set(usual.seeds) <= set(self.scale.seeds) else usual.seeds
        changed = self.scale != dataclasses.replace(usual, seeds=seeds)
        return results.folder_of(self.out, self.recipe.name, self.scale.name + ("-changed" if changed else ""))

    def record(self, cell: Cell, seed: int) -> Record:
        """Return what there is of a run."""
        return self.store.find(replace(cell.config, seed=seed))

    def wanted(self, only: str | None) -> list[Cell]:
        return [cell for cell in self.cells if only is None or fnmatch.fnmatchcase(str(cell).lower(), only.lower())]

    def todo(self, only: str | None = None) -> list[tuple[Cell, int]]:
        """Return the cells and seeds that are left. ``only`` is a pattern such as ``*VGG10*``."""
        wanted = [(cell, seed) for cell in self.wanted(only) for seed in cell.seeds]
        return [(cell, seed) for cell, seed in wanted if not self.recipe.has(self.record(cell, seed))]

    def evidence(self) -> Evidence:
        """Return all that is there by now."""
        places = tuple(Place(cell, tuple(self.record(cell, seed) for seed in cell.seeds)) for cell in self.cells)
        return Evidence(self.scale, places, self.store.extra(self.folder.name))


@dataclass(frozen=True)
class Job:
    """One training, and the recipes that measure it. ``cost`` is in seconds of one core, only roughly."""

    name: str
    folder: Path
    config: TrainConfig
    measures: Mapping[str, Scale]
    cost: float


def plan(
    name: str,
    scale: str,
    out: Path,
    data_dir: Path = Path("data"),
    *,
    records: Path | None = None,
    store: Store | None = None,
    **overrides: Any,
) -> Plan:
    """Plan the recipe called ``name`` at a scale. ``overrides`` are fields of :class:`Scale`; None leaves as it is.

    ``records`` is a folder of finished cells beside those in ``out``; recipes that share a ``store`` read it once.
    """
    recipe = find(name)
    chosen = scale_for(scale, name, **overrides)
    for what, given, known in (("models", chosen.models, NETS), ("datasets", chosen.datasets, ALL_DATA)):
        if unknown := [x for x in given if x not in known]:
            raise ConfigError(f"--{what}: the paper has no {', '.join(unknown)}. Choose among {', '.join(known)}.")
    cells = recipe.grid(chosen)
    if not cells and recipe.work is None:
        raise ConfigError(f"The recipe {name} has no cell with these data sets and networks: choose others.")
    return Plan(recipe, chosen, cells, out, store or Store(out, records), data_dir)


def jobs(plans: Sequence[Plan], only: str | None = None) -> list[Job]:
    """Return what is left to do, all of the first seed first, cheap runs first. What plans share is done once."""
    found: dict[Path, Job] = {}
    for planned in plans:
        for cell, seed in planned.todo(only):
            config = replace(cell.config, seed=seed, data_dir=planned.data_dir)
            folder = planned.store.folder(config)
            name = f"{cell.row} {cell.column}, {cell.table}, seed {seed}"
            job = found.setdefault(folder, Job(name, folder, config, {}, cost(config)))
            if planned.recipe.measure is not None:
                measures = {**job.measures, planned.recipe.name: planned.scale}
                found[folder] = dataclasses.replace(job, measures=measures)
    if only is not None and not any(planned.wanted(only) for planned in plans):
        there = "; ".join(str(cell) for planned in plans for cell in planned.cells)
        raise ConfigError(f"--only {only}: no cell is called so. There are {there}.")
    return sorted(found.values(), key=lambda job: (job.config.seed, job.cost))


def run(
    plans: Sequence[Plan],
    todo: Sequence[Job],
    processes: int = 1,
    on_message: Callable[[Job, Any], None] = lambda job, message: None,
    tell: Callable[[str], None] = lambda text: None,
    *,
    work: bool = True,
) -> list[Path]:
    """Do ``todo`` (of :func:`jobs`), then write the results. Returns the paths of the reports.

    ``work``: measure, too, what the recipes measure beside their trainings. On an interruption the results of what is
    there are written as well.
    """
    from deeppc.data import load

    for folder in sorted({planned.out for planned in plans}):
        require_writable(folder)
    for name, data_dir in sorted({(job.config.dataset, job.config.data_dir) for job in todo}):
        load(name, data_dir)  # whatever is wrong with the data is said before anything is trained

    stores = {id(planned.store): planned.store for planned in plans}.values()

    def note(job: Job, message: Any) -> None:
        for kept in stores:
            if isinstance(message, pool.Failed):
                kept.fail(job.config, message.reason, message.traceback)
            if isinstance(message, pool.Done | pool.Failed):
                kept.update(job.config)
        on_message(job, message)

    try:
        pool.run(perform, todo, processes, note)
        for planned in plans:
            if work and planned.recipe.work is not None:
                planned.folder.mkdir(parents=True, exist_ok=True)
                planned.recipe.work(planned.scale, planned.folder, tell)
    finally:
        paths = [render(planned) for planned in plans]
    return paths


def perform(job: Job, send: pool.Send) -> Record:
    """Train and measure a job; called in a worker. Sends the share that is done, now and then."""
    batches = 0

    def callback(event: Event) -> None:
        nonlocal batches
        if isinstance(event, Started):
            batches = event.batches
        elif isinstance(event, BatchDone) and event.batch % TOLD_EVERY == 0:
            send(((event.epoch - 1) * batches + event.batch) / (batches * job.config.epochs))

    found = {name: (find(name).measure, scale) for name, scale in job.measures.items()}
    measures = {name: partial(measure, scale) for name, (measure, scale) in found.items() if measure is not None}
    store.complete(job.config, job.folder, measures, callback)
    return store.read(job.folder)


def render(planned: Plan) -> Path:
    """Write the result of what is there, without any training. Returns the path of the report.

    Where several hosts share the folder, one after the other does.
    """
    until = time.monotonic() + TURN
    while True:
        try:
            with Lock(planned.folder / ".lock"):
                return results.write(planned.recipe, planned.evidence(), planned.folder)
        except Busy:
            if time.monotonic() > until:
                raise
            time.sleep(1)


# What of the paper is no recipe, and how to get it.
ELSEWHERE = {
    "deeppc show vgg10": "Figure 1: sketch of inference and of the precision schedules",
    "deeppc show resnet10": "Figure: residual connections (a), a block with auxiliary nodes",
    "deeppc show MODEL": "Appendix table of architectures",
    "deeppc search --help": "Appendix table of the search space",
    "deeppc search importance": "Appendix tables of importance (2)",
    "deeppc search transfer": "Appendix tables of transfer (2)",
}


def listed(out: Path) -> Table:
    """List all recipes, with the state of their results in ``out`` by scale."""
    rows = []
    for recipe in map(find, NAMES):
        read = {scale: results.read(results.folder_of(out, recipe.name, scale)) for scale in SCALES}
        found = [f"{scale}: {result.state}" for scale, result in read.items() if result is not None]
        of = "\n".join(recipe.paper) or "not in it"
        rows.append([recipe.name, of, recipe.shows, "\n".join(found) or "none"])
    return Table(["recipe", "of the paper", "what it shows", "results"], rows, title=f"results in {out}")


SPEED = 2e10  # multiply-adds per second of one core of a recent CPU, in convolutions of a narrow net
# Multiply-adds of a forward pass at width 1 for an image of 32 x 32; and, averaged over them, the inference steps that
# are left when the wave arrives, if T = L.
SIZES = {
    "mlp": (9.2e5, 1.2),
    "vgg5": (1.64e8, 2.6),
    "vgg7": (1.83e8, 3.4),
    "vgg10": (4.45e8, 4.2),
    "vgg15": (3.15e8, 6.7),
    "resnet10": (2.53e8, 5.4),
    "resnet18": (5.55e8, 9.4),
    "resnet34": (1.16e9, 17.4),
    "resnet66": (2.37e9, 33.4),
    "resnet130": (4.78e9, 65.4),
}
# Training images, test images, and the area of an image relative to 32 x 32.
IMAGES = {
    "digits": (1438, 359, 1),
    "cifar10": (50_000, 10_000, 1),
    "cifar100": (50_000, 10_000, 1),
    "tiny-imagenet": (100_000, 10_000, 4),
}


def cost(config: TrainConfig) -> float:
    """Estimate the seconds of a run on one core, to weigh jobs by; the display corrects the speed as runs finish."""
    train, test, area = IMAGES[config.dataset]
    held = round(config.validation * train) if config.select == "validation" else test
    images = min(config.limit or train, train - (held if config.select == "validation" else 0))
    model = config.model.removesuffix("-mupc")
    macs, left = SIZES[model]
    T: int = config.setting("T") or LEVELS[model]
    steps: float = config.options.get("strides") or left + max(0, T - LEVELS[model])
    known: dict[str, float] = {
        "ipc": 2 + (3 + config.setting("follow")) * steps,
        "epc": 2 + 2 * T,
        "tp": 4 + 2.0 * config.setting("iterations"),
        "hpc": 2 + 2 * (steps + config.setting("probes")),
    }
    known |= dict.fromkeys(("bp", "zil", "fa", "dfa"), 3.0 * config.setting("repeats"))
    passes = known.get(config.algorithm.split("+")[0], 2 + 2 * steps)
    return 0.5 + macs * config.width**2 * area * (config.epochs * (passes * images + held) + test) / SPEED
