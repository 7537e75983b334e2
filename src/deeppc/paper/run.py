"""``deeppc paper``: run a recipe, list the recipes and what is at hand of them."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeppc.errors import ConfigError
from deeppc.files import read_json
from deeppc.paper import cost, grid, pool, results
from deeppc.paper.grid import GridListener, Job
from deeppc.paper.recipe import EXTRA, NAMES, Cell, Evidence, Place, Recipe, Tell, find
from deeppc.paper.scales import ALL_DATA, NETS, SCALES, Scale, scale_for
from deeppc.training.config import TrainConfig


@dataclass(frozen=True)
class Plan:
    """A recipe at a scale: its cells, and where they are kept."""

    recipe: Recipe
    scale: Scale
    cells: tuple[Cell, ...]
    out: Path
    data_dir: Path = Path("data")

    @property
    def folder(self) -> Path:
        """That of the scale, which the claims read; one beside it if anything but more seeds was asked for."""
        usual = scale_for(self.scale.name, self.recipe.name)
        seeds = self.scale.seeds if set(usual.seeds) <= set(self.scale.seeds) else usual.seeds
        changed = self.scale != dataclasses.replace(usual, seeds=seeds)
        return results.folder_of(self.out, self.recipe.name, self.scale.name + ("-changed" if changed else ""))

    def config(self, cell: Cell, seed: int) -> TrainConfig:
        config = dataclasses.replace(cell.config, seed=seed, data_dir=self.data_dir)
        return dataclasses.replace(config, run_dir=pool.folder_of(self.out, config))

    def jobs(self, only: str | None = None) -> list[Job]:
        """What is left to do, all cells of the first seed first. ``only`` is a pattern such as ``*VGG10*``."""
        wanted = [cell for cell in self.cells if only is None or fnmatch.fnmatchcase(str(cell).lower(), only.lower())]
        if only is not None and not wanted:
            raise ConfigError(f"--only {only}: no cell is called so. There are {'; '.join(map(str, self.cells))}.")
        jobs: dict[Path, Job] = {}  # by folder: two cells of a recipe may be one training
        for seed, cell in itertools.product(self.scale.seeds, wanted):
            if not (found := self._run(cell, seed)).over:
                name, config = f"{cell.row} {cell.column}, {cell.table}, seed {seed}", self.config(cell, seed)
                jobs.setdefault(found.folder, Job(name, config, self.recipe.name, self.scale, cost.seconds(config)))
        return list(jobs.values())

    def evidence(self) -> Evidence:
        """All that is there by now."""
        extra = self.folder / EXTRA
        places = tuple(Place(cell, tuple(self._run(cell, seed) for seed in self.scale.seeds)) for cell in self.cells)
        return Evidence(self.scale, places, read_json(extra) if extra.exists() else {})

    def _run(self, cell: Cell, seed: int) -> pool.Run:
        folder = pool.folder_of(self.out, dataclasses.replace(cell.config, seed=seed))
        return pool.look(folder, seed, self.recipe.name)


def plan(name: str, scale: str, out: Path, data_dir: Path = Path("data"), **overrides: Any) -> Plan:
    """The recipe called ``name`` at a scale. ``overrides`` are fields of :class:`Scale`; None leaves as it is."""
    recipe = find(name)
    chosen = scale_for(scale, name, **overrides)
    for what, given, known in (("models", chosen.models, NETS), ("datasets", chosen.datasets, ALL_DATA)):
        if unknown := [x for x in given if x not in known]:
            raise ConfigError(f"--{what}: the paper has no {', '.join(unknown)}. Choose among {', '.join(known)}.")
    cells = tuple(recipe.cells(chosen))
    if not cells and recipe.work is None:
        raise ConfigError(f"The recipe {name} has no cell with these data sets and networks: choose others.")
    return Plan(recipe, chosen, cells, out, data_dir)


def run(
    planned: Plan,
    todo: Sequence[Job],
    workers: int = 1,
    listener: GridListener = lambda event: None,
    tell: Tell = lambda text: None,
) -> Path:
    """Perform ``todo`` (of :meth:`Plan.jobs`), then write the result. Returns the report's path.

    The result is written on an interruption, too: of what is there.
    """
    from deeppc.data import load

    for name in sorted({job.config.dataset for job in todo}):
        load(name, planned.data_dir)  # whatever is wrong with the data is said before anything is trained
    try:
        grid.run(todo, workers, listener)
        if planned.recipe.work is not None:
            planned.folder.mkdir(parents=True, exist_ok=True)
            planned.recipe.work(planned.scale, planned.folder, tell)
    finally:
        path = render(planned)
    return path


def render(planned: Plan) -> Path:
    """Write the result of what is there, without any training."""
    return results.write(planned.recipe, planned.evidence(), planned.folder)


# What of the paper is no recipe, and how to get it.
ELSEWHERE = {
    "Figure 1: sketch of inference and of the precision schedules": "deeppc show vgg10",
    "Figure: residual connections (a), a block with auxiliary nodes": "deeppc show resnet10",
    "Appendix table of architectures": "deeppc show MODEL",
    "Appendix table of the search space": "deeppc search --help",
    "Appendix tables of importance (2)": "deeppc search importance",
    "Appendix tables of transfer (2)": "deeppc search transfer",
}


@dataclass(frozen=True)
class Listed:
    """A recipe, and what there is of it: runs that are over of those planned, by scale."""

    name: str
    paper: tuple[str, ...]
    shows: str
    at_hand: dict[str, str]


def listed(out: Path) -> list[Listed]:
    """All recipes, with the state of their results in ``out``."""
    return [_listed(find(name), out) for name in NAMES]


def _listed(recipe: Recipe, out: Path) -> Listed:
    at_hand = {}
    for scale in SCALES:
        found = results.read(results.folder_of(out, recipe.name, scale))
        if found is not None:
            at_hand[scale] = "complete" if found.complete else f"{found.over} of {found.planned} runs"
    return Listed(recipe.name, recipe.paper, recipe.shows, at_hand)


def estimate(todo: Sequence[Job], workers: int) -> float:
    """Seconds that jobs will take, roughly, with so many processes of one core each."""
    return sum(job.cost for job in todo) / workers
